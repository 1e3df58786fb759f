"""Checker 10 of RELIABILITY: what a test started is gone after it.

Compares this process before and after: threads, file descriptors, listening sockets, files in the temporary directory
that carry our name, Spark jobs, and processes of the family. The family is all descendants, and all in the process
group of one of Spark's Python daemons, because a worker keeps that group when it loses its parent.

Spark's and Ray's own: their daemons, idle workers, and this process's connections to them come and go as they like.
"""

from __future__ import annotations

import gc
import os
import socket
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from benchmarks.process_table import Process, process_table
from cutline.state_backends.base import WAITING

#: How long background threads and processes that were told to end may take. Generous: passing tests do not wait.
LEAK_DEADLINE_S = 15.0
_POLL_S = 0.05
_OWN_PREFIX = "cutline"
_LISTEN = "0A"

#: Parts of the command lines of what Ray and the interpreter keep for themselves.
_INFRASTRUCTURE = (
    "ray::IDLE",
    "ray::DashboardAgent",
    "ray::RuntimeEnvAgent",
    "/ray/core/src/ray/",
    "/ray/_private/",
    "/ray/dashboard/",
    "/ray/autoscaler/",
    "multiprocessing.resource_tracker",
)


class Connection(NamedTuple):
    """One TCP socket, by its ports: addresses differ between a socket's ends where one end is IPv6."""

    local_port: int
    remote_port: int
    state: str


class LeakCheck:
    """Takes the base line when constructed; `wait` says what has come since and not gone."""

    def __init__(self) -> None:
        self._groups: list[int] = []
        gc.collect()
        self._before = self._everything()

    def wait(self, deadline_s: float = LEAK_DEADLINE_S) -> list[str]:
        """Poll until all is back to the base line or the deadline is over, and return what is left."""
        end = time.monotonic() + deadline_s
        while (leaks := self._leaks()) and time.monotonic() < end:
            threading.Event().wait(_POLL_S)
        return leaks

    def _leaks(self) -> list[str]:
        gc.collect()
        return [text for key, text in self._everything().items() if key not in self._before]

    def _everything(self) -> dict[str, str]:
        """All that this process holds now: a key that is unique, and how it is reported."""
        family = self._family()
        return {
            **{
                f"process {p.pid}": f"process {p.pid}: {p.command[:120] or p.state}"
                for p in family
                if not is_infrastructure(p)
            },
            # A backend keeps its helpers; `tests/state_backends/test_deadlines.py` has them leave with it.
            **{f"thread {t.ident}": f"thread {t.name}" for t in threading.enumerate() if t.name != WAITING},
            **{f"file {path}": f"file {path}" for path in Path(tempfile.gettempdir()).glob(f"{_OWN_PREFIX}*")},
            **_descriptors(family),
            **_spark_jobs(),
        }

    def _family(self) -> list[Process]:
        table = process_table()
        known = {os.getpid()}
        family: list[Process] = []
        # Parents may come after children in the table once ids have wrapped: go on until nothing is added.
        while new := [p for p in table if p.pid not in known and (p.parent in known or p.group in self._groups)]:
            known.update(p.pid for p in new)
            family += new
            self._groups += [p.pid for p in new if _is_python_daemon(p) and p.pid not in self._groups]
        return [p for p in family if p.state != "Z" or p.parent == os.getpid()]


def _is_python_daemon(process: Process) -> bool:
    return process.group == process.pid and "pyspark.daemon" in process.command


def is_infrastructure(process: Process) -> bool:
    """Whether `process` belongs to Spark or Ray themselves, which keep idle ones for the next task."""
    if any(part in process.command for part in _INFRASTRUCTURE):
        return True
    # The daemon, and the task's processes that it forked; what those forked in turn is a worker of Cutline.
    return "pyspark.daemon" in process.command and process.group in (process.pid, process.parent)


def _descriptors(family: list[Process]) -> dict[str, str]:
    connections = _connections()
    theirs = {_ports(connections, target) for p in family for target in open_files(p.pid).values()}
    found: dict[str, str] = {}
    seen: Counter[str] = Counter()
    for number, target in open_files(os.getpid()).items():
        connection = connections.get(target)
        if connection is not None and (connection.remote_port, connection.local_port) in theirs:
            continue
        seen[target] += 1
        found[f"fd {target} {seen[target]}"] = f"file descriptor {number}: {target}{_describe(connection)}"
    return found


def _ports(connections: dict[str, Connection], target: str) -> tuple[int, int]:
    connection = connections.get(target)
    return (connection.local_port, connection.remote_port) if connection else (0, 0)


def _describe(connection: Connection | None) -> str:
    if connection is None:
        return ""
    if connection.state == _LISTEN:
        return f", listening on port {connection.local_port}"
    return f", port {connection.local_port} to {connection.remote_port}"


def open_files(pid: int) -> dict[int, str]:
    """What the descriptors of `pid` refer to; empty when it has ended."""
    found = {}
    try:
        for name in os.listdir(f"/proc/{pid}/fd"):
            try:
                found[int(name)] = os.readlink(f"/proc/{pid}/fd/{name}")
            except FileNotFoundError:
                continue  # the descriptor of this very listing
    except (FileNotFoundError, ProcessLookupError):
        return {}
    return found


def _connections() -> dict[str, Connection]:
    """All TCP sockets of the machine, by the name that a descriptor has for them."""
    found = {}
    for table in ("tcp", "tcp6") if socket.has_ipv6 else ("tcp",):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            local, remote = (int(fields[i].rpartition(":")[2], 16) for i in (1, 2))
            found[f"socket:[{fields[9]}]"] = Connection(local, remote, fields[3])
    return found


def _spark_jobs() -> dict[str, str]:
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    if context is None:
        return {}
    return {f"job {job}": f"Spark job {job} still runs" for job in context.statusTracker().getActiveJobsIds()}
