"""Install Bytewax in a virtual environment of its own, run the keyed sum there, and read what the run has left.

Bytewax runs as its documentation advises: a process for each core, because threads would share the interpreter's lock,
and a partition of the recovery store for each worker. Snapshots are taken each second. ``benchmarks/bytewax_flow.py``
has the dataflow.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import NamedTuple

from benchmarks.keyed_rows import BURST_MESSAGES, bursts, require_equal, sums_of_bursts
from benchmarks.run_size import MARGIN_SECONDS

VERSION = "0.21.1"
SNAPSHOT_SECONDS = 1

_ROOT = Path(__file__).parent.parent
#: Git ignores the folder, and ``make clean`` removes it.
ENVIRONMENT = _ROOT / ".bench" / f"bytewax-{VERSION}"
_INSTALL_SECONDS_MAX = 300.0


class PeerRun(NamedTuple):
    """Times and counts of a finished run of Bytewax."""

    #: seconds from the first record to the last result
    seconds: float
    #: bursts of each partition of the source
    rounds: list[int]
    #: number of results at the sinks
    results: int
    #: {key: sum} of the last snapshot
    sums: dict[str, int]
    #: number of snapshots
    snapshots: int

    @property
    def records_per_second(self) -> float:
        """Records sent, by the seconds from the first record to the last result."""
        return sum(self.rounds) * BURST_MESSAGES / self.seconds


def installed(environment: Path = ENVIRONMENT) -> Path:
    """Make the virtual environment, unless an earlier benchmark made it. Return its interpreter.

    Raises
    ------
    RuntimeError
        if the environment cannot be made, for example because the package registry cannot be reached.
    """
    python, stamp = environment / "bin" / "python", environment / "installed"
    if stamp.exists() and python.exists():
        return python
    print(f"installing bytewax {VERSION} into {environment}", file=sys.stderr)
    shutil.rmtree(environment, ignore_errors=True)
    _install([sys.executable, "-m", "venv", str(environment)])
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
    _install([*pip, f"bytewax=={VERSION}"])
    stamp.touch()
    return python


def _install(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_SECONDS_MAX)
        failure = f"exit code {done.returncode}: {done.stdout}{done.stderr}".strip() if done.returncode else ""
    except subprocess.TimeoutExpired:
        failure = f"no end after {_INSTALL_SECONDS_MAX:g} s"
    if failure:
        raise RuntimeError(
            f"bytewax {VERSION} cannot be installed, and the peers benchmark needs it."
            f" Make the package registry of pip reachable, or leave the benchmark out. {' '.join(command)}: {failure}"
        )


def run_peer(python: Path, folder: Path, workers: int, seconds: float, *, is_single: bool = False) -> PeerRun:
    """Run the keyed sum in an empty folder, one worker in each process, and compare its result with the expected one.

    Records go through the dataflow in lists, or one by one if `is_single`.

    Raises
    ------
    RuntimeError
        if a process failed or took far longer than its source sends, or if sums or counts are wrong.
    """
    (folder / "bursts.json").write_text(json.dumps(bursts()))
    store = folder / "store"
    store.mkdir()
    _finish([_started([str(python), "-m", "bytewax.recovery", str(store), str(workers)], folder, "recovery")], 0.0)
    flow = f"{_ROOT / 'benchmarks' / 'bytewax_flow.py'}:flow({str(folder)!r}, {seconds!r}, {workers}, {is_single})"
    recovery = ["-r", str(store), "-s", str(SNAPSHOT_SECONDS), "-b", "0"]
    command = [str(python), "-m", "bytewax.run", flow, *recovery]
    addresses = ";".join(f"127.0.0.1:{port}" for port in _free_ports(workers))
    clusters = [["-i", str(index), "-a", addresses] for index in range(workers)] if workers > 1 else [[]]
    _finish([_started([*command, *each], folder, f"run-{index}") for index, each in enumerate(clusters)], seconds)
    found = read_run(folder)
    require_equal("bytewax", found.sums, sums_of_bursts(found.rounds))
    require_equal("bytewax", {"results": found.results}, {"results": sum(found.rounds) * BURST_MESSAGES})
    return found


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(closing(socket.create_server(("127.0.0.1", 0)))) for _ in range(count)]
        return [sock.getsockname()[1] for sock in sockets]


def _started(command: Sequence[str], folder: Path, name: str) -> tuple[subprocess.Popen[bytes], Path]:
    """Start a process whose output goes to a file. The process must not see the modules of this environment."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "BYTEWAX"))}
    log = folder / f"{name}.log"
    with log.open("wb") as file:
        return subprocess.Popen(command, cwd=folder, env=environment, stdout=file, stderr=subprocess.STDOUT), log


def _finish(processes: Sequence[tuple[subprocess.Popen[bytes], Path]], seconds: float) -> None:
    """Wait for the processes, and kill those that have not ended in time."""
    end = time.monotonic() + seconds + MARGIN_SECONDS
    try:
        for process, log in processes:
            try:
                code = process.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise RuntimeError(f"bytewax has not ended after {seconds + MARGIN_SECONDS:g} s") from None
            if code:
                raise RuntimeError(f"bytewax ended with exit code {code}: {log.read_text(errors='replace')[-4000:]}")
    finally:
        for process, _ in processes:
            process.kill()
            process.wait()


def read_run(folder: Path) -> PeerRun:
    """Read the recovery store and the files of the sinks.

    Raises
    ------
    RuntimeError
        if a run of at least two snapshot intervals has stored no more than one snapshot.
    """
    sums: dict[str, int] = {}
    began: list[tuple[float, int]] = []
    frontier = 0
    for path in (folder / "store").glob("*.sqlite3"):
        with closing(sqlite3.connect(path)) as store:
            # Ascending epochs, so that the last state of a key wins.
            rows = store.execute("SELECT step_id, state_key, ser_change FROM snaps ORDER BY snap_epoch").fetchall()
            states = {(step, key): pickle.loads(state) for step, key, state in rows}  # noqa: S301  # our own process's
            fronts = store.execute("SELECT worker_frontier FROM fronts").fetchall()
        sums |= {key: state for (step, key), state in states.items() if step.startswith("peer.sums")}
        began += [state for (step, _), state in states.items() if step == "peer.records"]
        frontier = max([frontier, *(each for (each,) in fronts)])
    ended = [json.loads(path.read_text()) for path in folder.glob("results-*.json")]
    seconds = max(at for at, _ in ended) - min(at for at, _ in began)
    snapshots = frontier - 1  # because epochs begin with 1, and the frontier is the first epoch without a snapshot
    if seconds >= 2 * SNAPSHOT_SECONDS and snapshots < 2:
        raise RuntimeError(f"bytewax stored {snapshots} snapshots in {seconds:.1f} s")
    return PeerRun(seconds, [rounds for _, rounds in began], sum(count for _, count in ended), sums, snapshots)
