"""What a notebook begins and ends with: a quiet Spark, a folder of its own, and nothing left behind.

The output of Spark and of the workers goes to a file in that folder instead of into the notebook.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import tempfile
from pathlib import Path

#: Small data in few tasks, and a JVM that is up soon: the best code for long jobs costs twice the time of short ones.
_SETTINGS = {
    "spark.sql.shuffle.partitions": "4",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


class Session:
    """Starts Spark on this machine. Ray is started by the first `BarrierRuntime.submit`, and ended with this.

    To be made before anything is imported that imports Ray.

    Parameters
    ----------
    workers : int
        Barrier tasks that there is room for; there is a spare slot besides.

    Attributes
    ----------
    spark : SparkSession
    folder : Path
        Empty. It is removed by `close`, and when the kernel ends.
    """

    def __init__(self, workers: int) -> None:
        _quieten_ray()
        import ray

        from barrier_runtime.cli.session import default_master, spark_session

        with contextlib.ExitStack() as stack:
            self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cutline-notebook-")))
            stack.callback(ray.shutdown)
            settings = {**_SETTINGS, "spark.sql.warehouse.dir": str(self.folder / "warehouse")}
            log = self.folder / "spark.log"
            self.spark = stack.enter_context(spark_session(default_master(workers), settings=settings, log_path=log))
            self._all = stack.pop_all()
        atexit.register(self.close)

    def close(self) -> None:
        """Stop Spark and Ray, and remove the folder."""
        atexit.unregister(self.close)
        self._all.close()


def _quieten_ray() -> None:
    """Ray speaks when it is imported, of widgets, and when it is started, of a token that a run sets anyway."""
    logging.getLogger("ray.widgets").setLevel(logging.WARNING)
    logging.getLogger("ray._private.authentication").setLevel(logging.ERROR)
