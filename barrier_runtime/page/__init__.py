"""The live page and the metrics of a driver's runs, served while they are on.

::

    Run's monitor --report--> RunView --document--> browser (server-sent events), JSON interface, /metrics
    browser --order--> Orders --takeSnapshot, stop--> Run

Reads what the driver's monitor has anyway and asks the coordinator nothing. Nothing here decides about a run.
"""
