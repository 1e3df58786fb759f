"""A driver in a process of its own, which a test may kill."""

from __future__ import annotations

from benchmarks.live import Live
from tests.programs import Script
from tests.slots import MASTER
from tests.source_files import ROOT

#: seconds until a driver is given up; passing tests do not wait for it
_DRIVER_SECONDS_MAX = 240.0

#: Submits in the test's folder, prints the process ids of the workers, and awaits the end of the run.
_DRIVER = """
from pathlib import Path

from pyspark.sql import SparkSession
from cutline.snapshot.errors import CutlineError
from benchmarks.session import SPARK_SETTINGS
from benchmarks.live import Live, await_snapshots

builder = SparkSession.builder.master("{master}")
for key, value in SPARK_SETTINGS.items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()
live = Live(spark, Path({folder!r}))
{submit}
for run in runs:
    await_snapshots(run, 2)
print("workers", *(pid for run in runs for pid in run.status["workers"].values()))
for run in runs:
    try:
        run.awaitTermination()
    except CutlineError as error:
        print(f"ended by {{type(error).__name__}}: {{error}}")
spark.stop()
"""


def other_driver(live: Live, submit: str) -> Script:
    """Return a driver that is not running yet.

    Parameters
    ----------
    live : Live
        The driver uses its folder.
    submit : str
        Python statements that import what they need, and make `runs` from `live`.
    """
    source = _DRIVER.format(master=MASTER, folder=str(live.folder), submit=submit)
    return Script(source, timeout_s=_DRIVER_SECONDS_MAX, environment={"PYTHONPATH": str(ROOT)})
