"""Read the processes of this machine from ``/proc``, and kill one.

Benchmarks measure processes with the module. Tests find processes that outlive a test. Spark and Ray are not needed.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

#: positions in ``/proc/PID/stat`` after the name of the command (proc(5) counts from 1, and two fields stand before)
_STATE, _PARENT, _GROUP = 0, 1, 2
_USER_TICKS, _SYSTEM_TICKS, _STARTED_TICKS = 11, 12, 19


class Process(NamedTuple):
    """A line of the process table."""

    pid: int
    parent: int
    group: int
    state: str
    command: str


def process_table() -> list[Process]:
    """Return every process that can be seen."""
    return [process for name in os.listdir("/proc") if name.isdigit() and (process := _read_process(int(name)))]


def _read_process(pid: int) -> Process | None:
    try:
        fields = _stat_fields(pid)
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except (FileNotFoundError, ProcessLookupError):
        return None  # the process ended while the table was read
    return Process(pid, int(fields[_PARENT]), int(fields[_GROUP]), fields[_STATE], command)


def _stat_fields(pid: int) -> list[str]:
    """Return the fields of ``/proc/PID/stat`` after the name, because a name may hold spaces."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def parent_of(pid: int) -> int:
    """Return the parent of a process. The parent of a worker is its barrier task."""
    return int(_stat_fields(pid)[_PARENT])


def is_gone(pid: int) -> bool:
    """Return whether the process has ended."""
    try:
        return _stat_fields(pid)[_STATE] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def cpu_seconds(pid: int) -> float:
    """Return seconds of processor time that a process has taken, in user mode and in the kernel."""
    fields = _stat_fields(pid)
    return (int(fields[_USER_TICKS]) + int(fields[_SYSTEM_TICKS])) / os.sysconf("SC_CLK_TCK")


def peak_bytes(pid: int) -> int:
    """Return the most bytes of memory that a process had resident at a time."""
    [line] = [each for each in Path(f"/proc/{pid}/status").read_text().splitlines() if each.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024


def written_bytes(pid: int) -> int:
    """Return the bytes that a process has written to files on disks. The kernel counts them page by page."""
    [line] = [each for each in Path(f"/proc/{pid}/io").read_text().splitlines() if each.startswith("write_bytes:")]
    return int(line.split()[1])


def forked_at(pid: int) -> float:
    """Return when a process began, in seconds of the monotonic clock. The kernel counts hundredths since the boot."""
    since_boot = int(_stat_fields(pid)[_STARTED_TICKS]) / os.sysconf("SC_CLK_TCK")
    return since_boot - time.clock_gettime(time.CLOCK_BOOTTIME) + time.monotonic()


def kill(pid: int) -> float:
    """Send SIGKILL. Return when, in seconds of the monotonic clock."""
    at = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    return at


def coordinators() -> list[int]:
    """Process ids of the coordinators that the Ray of this driver runs."""
    return ray_processes("ray::CoordinatorActor")


def ray_processes(program: str) -> list[int]:
    """Process ids below this driver whose command line has `program` before its first option."""
    table = {process.pid: process for process in process_table()}
    return [
        p.pid for p in table.values() if program in p.command.partition(" --")[0] and _is_below(p, os.getpid(), table)
    ]


def _is_below(process: Process | None, ancestor: int, table: Mapping[int, Process]) -> bool:
    while process is not None and process.parent != ancestor:
        process = table.get(process.parent)
    return process is not None
