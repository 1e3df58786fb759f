"""The Spark session of the command line, with the settings that a run needs.

Sets and checks the environment before Spark starts. Sends the output of the JVM and of the workers to a log file,
because lines from other processes would break the live display.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cutline.barrier_runtime.cli.interrupts import signals_as_before
from cutline.snapshot.errors import RunFailed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: oldest version of Java that Spark 4 supports
JAVA_VERSION_MIN = 17

#: seconds for ``java -version``, so many because the command starts a whole JVM
_JAVA_SECONDS_MAX = 30.0

#: first characters of a master that names a Spark Connect server
_CONNECT = "sc://"

#: settings of the session that a run needs, or that keep the terminal readable; settings of the user replace these
SETTINGS: Mapping[str, str] = {
    "spark.python.task.killTimeout": "100ms",
    "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "1s",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}


def default_master(workers: int | None = None) -> str:
    """Return the local master with a slot more than the workers take, because a spare slot halves recovery time."""
    return f"local[{(workers or max(2, os.cpu_count() or 1)) + 1}]"


@contextlib.contextmanager
def spark_session(
    master: str, *, settings: Mapping[str, str] | None = None, log_path: Path | None = None
) -> Iterator[SparkSession]:
    """Start Spark, and stop Spark at the end.

    Parameters
    ----------
    master : str
        Spark's master. ``sc://host:port`` connects to a Spark Connect server.
    settings : mapping, optional
        Settings that are added to `SETTINGS`, or replace settings there.
    log_path : Path, optional
        Log file of the JVM and the workers. The default is a temporary file, which is kept only after an exception.

    Raises
    ------
    RunFailed
        if Java is missing or too old, or Spark does not start.
    """
    log = log_path or _temporary_log()
    spark = _start(master, settings or {}, log)
    try:
        yield spark
    except BaseException as error:
        if log.exists() and log.stat().st_size:
            error.add_note(f"What Spark and the workers wrote: {log}")
        elif log_path is None:
            log.unlink(missing_ok=True)
        raise
    else:
        if log_path is None:
            log.unlink(missing_ok=True)
    finally:
        spark.stop()


def ship(spark: SparkSession, files: Sequence[Path]) -> None:
    """Send ``.py``, ``.zip`` and ``.egg`` files to all workers, so that their Python can import the files."""
    from cutline.barrier_runtime.driver.stage import is_connect

    for file in files:
        if is_connect(spark):
            spark.addArtifacts(str(file), pyfile=True)
        else:
            spark.sparkContext.addPyFile(str(file))


def check_java() -> None:
    """Check that the Java which Spark will start exists and is new enough.

    Raises
    ------
    RunFailed
        if Java is missing or too old.
    """
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(os.path.join(home, "bin", "java") if home else "java")
    advice = "Install one (Debian: apt-get install openjdk-17-jre-headless), or set JAVA_HOME"
    if java is None:
        where = f"JAVA_HOME is {home}, and there is none" if home else "there is none on the PATH"
        raise RunFailed(f"Spark needs Java {JAVA_VERSION_MIN} or newer, and {where}. {advice}")
    said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=_JAVA_SECONDS_MAX, check=False)
    found = re.search(r'version "(\d+)', said.stderr)
    if found is None or int(found[1]) < JAVA_VERSION_MIN:
        what = found[1] if found else said.stderr.strip() or f"exit code {said.returncode}"
        raise RunFailed(f"Spark needs Java {JAVA_VERSION_MIN} or newer; {java} is {what}. {advice}")


def _start(master: str, settings: Mapping[str, str], log: Path) -> SparkSession:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("cutline")
    if master.startswith(_CONNECT):
        builder = builder.remote(master)
    else:
        check_java()
        builder = builder.master(master)
        settings = {**SETTINGS, **settings}  # not for a server, which took its settings when it started
        if master.startswith("local"):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    for key, value in settings.items():
        builder = builder.config(key, value)
    with _standard_error_to(log), signals_as_before():
        try:
            return builder.getOrCreate()
        except (PySparkException, Py4JError, OSError) as error:
            text = f"Spark does not start with the master {master}: {_said(error)} (see {log})"
            raise RunFailed(text) from error


def _temporary_log() -> Path:
    """Make a file of a new name that only its owner may read, because temporary folders are shared."""
    descriptor, name = tempfile.mkstemp(prefix="cutline-", suffix=".log")
    os.close(descriptor)
    return Path(name)


def _said(error: Exception) -> str:
    """Return the text of an error, of Java's without the stack."""
    lines = str(error).splitlines()
    return next((line.removeprefix(": ") for line in lines if line.startswith(": ")), str(error).strip())


@contextlib.contextmanager
def _standard_error_to(log: Path) -> Iterator[None]:
    """Redirect standard error to `log` while entered. Processes that start meanwhile keep writing to `log`."""
    sys.stderr.flush()
    kept = os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
