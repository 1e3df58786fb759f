"""The leak check has teeth: it sees each kind of thing that can be left behind, and its end."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.leaks import LeakCheck

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def _thread() -> Iterator[None]:
    end = threading.Event()
    thread = threading.Thread(target=end.wait, name="lost thread")
    thread.start()
    yield
    end.set()
    thread.join()


@contextmanager
def _process() -> Iterator[None]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield
        assert process.stdin is not None
        process.stdin.close()


@contextmanager
def _grandchild() -> Iterator[None]:
    source = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()  # lost'])"
    with subprocess.Popen([sys.executable, "-c", source], stdin=subprocess.PIPE) as process:
        yield
        assert process.stdin is not None
        process.stdin.close()


@contextmanager
def _listener() -> Iterator[None]:
    with socket.create_server(("127.0.0.1", 0)):
        yield


@contextmanager
def _file() -> Iterator[None]:
    with tempfile.NamedTemporaryFile(prefix="cutline-") as file:
        assert Path(file.name).exists()
        yield


@pytest.mark.parametrize(
    ("leak", "report"),
    [
        (_thread, "thread lost thread"),
        (_process, "process "),
        (_grandchild, "# lost"),
        (_listener, "listening on port"),
        (_file, "file /"),
    ],
)
def test_each_kind_of_leak_is_seen(leak: Callable[[], AbstractContextManager[None]], report: str) -> None:
    """What is left is named, and once it is gone the check is content."""
    check = LeakCheck()
    with leak():
        assert any(report in line for line in check.wait(deadline_s=0.2)), check.wait(deadline_s=0)
    assert check.wait() == []


@pytest.mark.spark
def test_a_process_forked_in_a_task_is_seen(spark: SparkSession) -> None:
    """A fork of a task's process looks like one of Spark's own, and is told from them."""

    def fork(_: Iterable[int]) -> list[int]:
        child = os.fork()
        if child == 0:
            os.closerange(3, 1024)
            signal.pause()
            os._exit(0)
        return [child]

    check = LeakCheck()
    children = spark.sparkContext.parallelize(range(2), 2).barrier().mapPartitions(fork).collect()
    leaks = check.wait(deadline_s=0.2)
    for child in children:
        os.kill(child, signal.SIGKILL)
    assert sorted(line.partition(":")[0] for line in leaks) == sorted(f"process {child}" for child in children)
    assert check.wait() == []
