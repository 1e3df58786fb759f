"""Sparks other than the session of the tests: a standalone cluster, and a home for local-cluster."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pyspark

from tests.programs import Program

#: Life of a cluster: the longest test that uses one.
_CLUSTER_SECONDS_MAX = 300.0
_LOOPBACK = "127.0.0.1"


@contextlib.contextmanager
def standalone_cluster(directory: Path, *, workers: int = 2, cores: int = 1) -> Iterator[str]:
    """A master and `workers` workers on loopback, of the pyspark package itself.

    Yields
    ------
    str
        the URL of the master; all workers have registered.
    """
    environment = {
        "SPARK_LOCAL_IP": _LOOPBACK,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_WORKER_DIR": str(directory),
        "SPARK_LOCAL_DIRS": str(directory),
    }
    with contextlib.ExitStack() as stack:

        def start(role: str, *arguments: str) -> Program:
            command = [
                os.path.join(spark_home(), "bin", "spark-class"),
                f"org.apache.spark.deploy.{role}",
                *("--host", _LOOPBACK, "--port", "0", "--webui-port", "0"),
                *arguments,
            ]
            return stack.enter_context(Program(command, timeout_s=_CLUSTER_SECONDS_MAX, environment=environment))

        master = start("master.Master")
        found = re.search(r"spark://\S+", master.read_until("Starting Spark master at"))
        assert found is not None
        started = [start("worker.Worker", "-c", str(cores), "-m", "1g", found.group()) for _ in range(workers)]
        for worker in started:
            worker.read_until("Successfully registered with master")
        yield found.group()


def spark_home() -> str:
    """The folder of the pyspark package, which is a whole Spark."""
    return os.path.dirname(pyspark.__file__)


def private_home(directory: Path) -> Path:
    """A Spark home in `directory` for local-cluster, whose workers write below the home and nowhere else."""
    home = directory / "home"
    home.mkdir()
    for name in os.listdir(spark_home()):
        (home / name).symlink_to(os.path.join(spark_home(), name))
    return home
