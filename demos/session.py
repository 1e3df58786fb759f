"""Begin and end a notebook: a quiet Spark, a folder of its own, and nothing left behind.

The output of Spark and of the workers goes to a file in that folder instead of into the notebook.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import tempfile
from pathlib import Path

#: Few tasks for small data, and a JVM that starts soon: the best code for long jobs doubles the time of short jobs.
_SETTINGS = {
    "spark.sql.shuffle.partitions": "4",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


class Session:
    """Starts Spark on this machine. The first `BarrierRuntime.submit` starts Ray, and `close` ends Ray with Spark.

    Make the session before any import of Ray.

    Parameters
    ----------
    workers : int
        Number of barrier tasks with room to run. A spare slot is added.

    Attributes
    ----------
    spark : SparkSession
    folder : Path
        Empty folder. `close` removes the folder, and so does the end of the kernel.
    """

    def __init__(self, workers: int) -> None:
        _quieten_ray()
        from cutline.barrier_runtime.cli.session import default_master, spark_session
        from cutline.barrier_runtime.driver.ray_gateway import end_ray

        with contextlib.ExitStack() as stack:
            self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cutline-notebook-")))
            stack.callback(end_ray)
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
    """Silence two messages of Ray: of widgets on import, and of a token on start, which a run sets anyway."""
    logging.getLogger("ray.widgets").setLevel(logging.WARNING)
    logging.getLogger("ray._private.authentication").setLevel(logging.ERROR)
