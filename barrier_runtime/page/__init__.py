"""The live page and the metrics of a driver's runs, served while the runs are active.

::

    Run's monitor --report--> RunView --document--> browser (server-sent events), JSON interface, /metrics
    browser --command--> Commands --takeSnapshot, stop--> Run

Reads the reports that the driver's monitor already has. The page sends nothing to the coordinator, and no code here
decides about a run.
"""
