"""A state that exceeds memory: written, changed, killed in the middle of its snapshots, restored and compared.

`benchmarks.killed_subtask` is the process of the subtask. The parent reads how much memory the process
has, and ends the process beyond the limit, as a container would::

    parent    starts ─────────────────────────> kills ── starts ─────────────────────> result
    process   fill ── change and store, again and again      restore ── compare ── store
"""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.result import Metric, metric
from cutline.snapshot.stored.certificate import SubtaskRecord

#: Bytes of a value.
VALUE_BYTES = 1_000

#: Free disk that is needed, in multiples of the state: two bases of snapshots while compaction makes a new one, and a
#: database that compaction doubles for a moment.
DISK_FACTOR = 5

#: Snapshots of changes before the process is killed.
_SNAPSHOTS_MIN = 5

_POLL_SECONDS = 0.02
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Size(NamedTuple):
    """How large the state is."""

    rows: int
    #: bytes of memory that the process may have
    memory_bytes_max: int
    #: `RocksDBState.memory`
    tier_bytes: int
    #: seconds between two snapshots, unless storing one takes longer
    interval: float
    seconds_max: float


@dataclass(slots=True)
class Progress:
    """Progress of a process, as it was at its newest acknowledged snapshot."""

    record: SubtaskRecord | None = None
    #: rows and changes in the snapshot
    filled: int = 0
    changes: int = 0
    #: snapshots of changes so far
    snapshots: int = 0
    fill_seconds: float = 0.0
    change_seconds: float = 0.0
    restore_seconds: float = 0.0
    #: seconds of each cut
    pauses: list[float] = field(default_factory=list)
    is_done: bool = False


def measured(size: Size, folder: Path) -> dict[str, Metric]:
    """Return the metrics of a state that is filled, killed, restored and compared.

    Raises
    ------
    RuntimeError
        if the disk is too small, the process exceeds its memory, or the restored rows are not those of the snapshot.
    """
    _require_disk(size, folder)
    began = time.monotonic()
    first, first_bytes = _run(size, folder, "fill", _is_worth_killing)
    second, second_bytes = _run(size, folder, "restore", lambda progress: progress.is_done)
    return {
        "pause_ms": metric("ms", [seconds * 1e3 for seconds in first.pauses]),
        "filled_rows_per_s": metric("rows/s", [size.rows / first.fill_seconds]),
        "updates_per_s": metric("updates/s", [first.changes / first.change_seconds]),
        "restored_rows_per_s": metric("rows/s", [size.rows / second.restore_seconds]),
        "memory_bytes": metric("bytes", [max(first_bytes, second_bytes)]),
        "state_bytes": metric("bytes", [size.rows * VALUE_BYTES]),
        "seconds": metric("s", [time.monotonic() - began]),
    }


def _require_disk(size: Size, folder: Path) -> None:
    needed, free = DISK_FACTOR * size.rows * VALUE_BYTES, shutil.disk_usage(folder).free
    if free < needed:
        raise RuntimeError(
            f"the case larger_than_memory needs {needed / 1e9:.0f} GB of free disk, and {folder} has {free / 1e9:.0f}: "
            "set TMPDIR to a larger disk, or leave the case out by --only, for instance by case=rows"
        )


# ---------------------------------------------------------------- the parent


def _is_worth_killing(progress: Progress) -> bool:
    return progress.snapshots >= _SNAPSHOTS_MIN


def _run(size: Size, folder: Path, deed: str, is_enough: Any) -> tuple[Progress, int]:
    """Run the process until `is_enough`, and kill it. Return its progress, and the most memory that it had."""
    arguments = [sys.executable, "-m", "benchmarks.killed_subtask", deed, str(folder), *map(str, size[:4])]
    process = subprocess.Popen(arguments)
    most, until = 0, time.monotonic() + size.seconds_max
    try:
        while not is_enough(read_progress(folder, deed)):
            most = max(most, _memory_bytes(process.pid))
            _require_well(process, deed, folder, size, most)
            if time.monotonic() > until:
                raise RuntimeError(f"{deed} of a state larger than memory takes more than {size.seconds_max:.0f} s")
            time.sleep(_POLL_SECONDS)
        if deed == "fill":
            time.sleep(1.2 * size.interval)  # so that the kill comes while the next snapshot is stored
    finally:
        process.kill()
        process.wait()
    return read_progress(folder, deed), most


def _require_well(process: subprocess.Popen[bytes], deed: str, folder: Path, size: Size, most: int) -> None:
    if process.poll() is not None:
        raise RuntimeError(f"the process for a state larger than memory has ended in {deed}; see standard error")
    if most > size.memory_bytes_max:
        progress = read_progress(folder, deed)
        raise RuntimeError(
            f"{deed} of a state larger than memory: the process has {most:,} bytes of memory, and may have "
            f"{size.memory_bytes_max:,}; its last snapshot has {progress.filled:,} of {size.rows:,} rows and "
            f"{progress.changes:,} changes"
        )


def _memory_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
    except (FileNotFoundError, ProcessLookupError):
        return 0


def read_progress(folder: Path, deed: str) -> Progress:
    try:
        found: Progress = pickle.loads((folder / deed).read_bytes())  # noqa: S301  # because our own process wrote it
    except FileNotFoundError:
        return Progress()
    return found
