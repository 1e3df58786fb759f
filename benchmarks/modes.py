"""Measure what each mode costs while a run runs, and how long it takes to resume after the kill of a worker.

A run resumes with the first record that it has not put out before. The rate of a replay is the records that were put
out at the restored snapshot, divided by the seconds in which the run is in the phase "replaying". So it has a figure
only where the replay begins with the first input.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.live import DEADLINE_S, Live, await_snapshots, wait_for
from benchmarks.mode_totals import measure_totals
from benchmarks.process_table import coordinators, kill, peak_bytes, written_bytes
from benchmarks.replayed_nodes import JOBS, LAGGARD, LARGE_KEYS, Progress, sums_graph
from benchmarks.result import Result, metric, metric_of_samples
from benchmarks.run_size import Cases, Configuration, RunSize, show_progress
from benchmarks.session import Place, scratch
from cutline import ChannelLogs, Deltas, FileSystemBackend, HeapState, PersistentState, RocksDBState, Run
from cutline.snapshot.errors import CutlineError
from cutline.snapshot.plan.modes import ModeWish, MonoidClocks, mode_of

#: Subtasks of the source and of the node, and workers.
PARALLELISM = 2
#: Seconds between snapshots, and snapshots of mode deltas from one state to the next.
INTERVAL_S, EVERY = 0.5, 10

#: The mode in which each subtask stores a record by itself, and the records of a node before anything is measured.
CHANNEL_LOGS, _RECORDS_MIN = ChannelLogs.name, 4
#: Modes, and those that store state in some snapshots.
MODES = ("markers", "inputLogging", "deltas", "persistentState", CHANNEL_LOGS)
_WITH_STATE = ("deltas", "persistentState")
#: Modes that keep totals in a store, the store, and seconds between their snapshots.
NEGOTIATED = "monoidClocks-negotiated"
STORE_MODES = ("markers", "monoidClocks", NEGOTIATED)
STORE, STORE_INTERVAL_S = "postgresql", 10.0
#: Jobs whose totals are a monoid's.
MONOID_JOBS = ("wordcount", "keyed_sum")
#: Seconds of run before the kill, and of a quick run.
RUN_S, QUICK_RUN_S = (10, 60), (2,)
#: A job that is killed when all its keys are in the state, 4 GB, and the memory for rows of its workers.
LARGE = "large_state"
_ROW_BYTES_MAX = 512 * 1024 * 1024
#: Seconds that a run may take to resume, for each second of run before. A replay takes at most some seconds a second.
_RESUME_S_MAX = 10.0
#: Seconds between two polls of the progress of a run, and of its phase.
_POLL_S, _PHASE_S = 0.002, 0.05


class Case(NamedTuple):
    """A run that is killed once."""

    job: str
    run_s: int
    mode: str
    #: where totals are, or None where the values are in keyed state
    store: str | None = None


class Measured(NamedTuple):
    """Figures of one run."""

    records_per_s: float
    bytes_per_s: float
    steps_per_s: float
    commit_ms: list[float]
    memory_bytes: int
    resume_s: float
    #: None where state was restored
    replayed_records_per_s: float | None
    #: None without a store of totals
    store_operations_per_s: float | None = None


def configurations(size: RunSize) -> Cases:
    """Return one case for each job, time of run and mode."""
    cases: dict[Case, Configuration] = {
        Case(job, run_s, mode): {
            "job": job, "run_s": run_s, "mode": mode, "every": EVERY if mode in _WITH_STATE else None, "store": None,
            **size.configuration(),
        }
        for job in JOBS
        for run_s in size.choose(RUN_S, QUICK_RUN_S)
        for mode in MODES
        if _has_case(job, run_s, mode)
    }  # fmt: skip
    for job in JOBS:
        for run_s in size.choose(RUN_S, QUICK_RUN_S):
            for mode in STORE_MODES if job in MONOID_JOBS else ():
                configuration = {"job": job, "run_s": run_s, "mode": mode, "every": None, "store": STORE}
                cases[Case(job, run_s, mode, STORE)] = {**configuration, **size.configuration()}
    return cases


def _has_case(job: str, run_s: int, mode: str) -> bool:
    if job == LARGE:
        return mode == "persistentState" and run_s == RUN_S[0]
    return job != LAGGARD or mode in ("inputLogging", CHANNEL_LOGS)


def measure(cases: Cases, size: RunSize, place: Place) -> Iterator[Result]:
    """Yield one result for each case. Each case has one run, because a run takes a minute or two."""
    live = place()
    records_per_s: dict[Case, float] = {}
    resume_s: dict[Case, float] = {}
    for case, configuration in cases.items():
        show_progress("modes", configuration, 1, 1)
        with scratch(live) as folder:
            measured = _measure(live, folder, case) if case.store is None else _measure_totals(live, folder, case, size)
        records_per_s[case] = measured.records_per_s
        beside = records_per_s.get(case._replace(mode="markers"))
        ratios = {} if beside is None or case.mode == "markers" else {"markers": measured.records_per_s / beside}
        resume_s[case] = measured.resume_s
        replay_s = resume_s.get(case._replace(mode="inputLogging"))
        if replay_s is not None and case.mode == CHANNEL_LOGS:
            ratios["full_replay"] = measured.resume_s / replay_s
        yield _result(configuration, measured, ratios)


def _result(configuration: Configuration, measured: Measured, ratios: dict[str, float]) -> Result:
    metrics = {
        "records_per_s": metric("records/s", [measured.records_per_s]),
        "bytes_per_s": metric("bytes/s", [measured.bytes_per_s]),
        "memory_mb": metric("MB", [measured.memory_bytes / 1e6]),
        "steps_per_s": metric("steps/s", [measured.steps_per_s]),
        "commit_ms": metric_of_samples("ms", [measured.commit_ms]),
        "resume_s": metric("s", [measured.resume_s]),
    }
    if measured.store_operations_per_s is not None:
        metrics["store_operations_per_s"] = metric("operations/s", [measured.store_operations_per_s])
    if measured.replayed_records_per_s is not None:
        metrics["replayed_records_per_s"] = metric("records/s", [measured.replayed_records_per_s])
    return Result("modes", configuration, metrics, ratios)


def _measure(live: Live, folder: Path, case: Case) -> Measured:
    progress = Progress(folder / "progress")
    backend = FileSystemBackend(folder / "snapshots")
    keyed_state = RocksDBState(memory=_ROW_BYTES_MAX) if case.mode == "persistentState" else HeapState()
    runtime = live.runtime(backend=backend, snapshotInterval=INTERVAL_S, workers=PARALLELISM, keyedState=keyed_state)
    run = live.submit(runtime, sums_graph(case.job, folder, PARALLELISM), mode=_mode(case.mode, folder))
    if case.mode == CHANNEL_LOGS:
        wait_for("records", lambda: _records(run).get("sums", 0) >= _RECORDS_MIN)
    else:
        await_snapshots(run, 2)
    incarnation, made = run.status["incarnation"], _records(run)
    writers = [*run.status["workers"].values(), *coordinators()]
    written = sum(map(written_bytes, writers))
    records, began = progress.until(incarnation), time.monotonic()
    record_ms = _watch_records(run, case.run_s) if case.mode == CHANNEL_LOGS else []
    threading.Event().wait(began + case.run_s - time.monotonic())
    while case.job == LARGE and progress.until(incarnation) < LARGE_KEYS:
        threading.Event().wait(_PHASE_S)
    ran = time.monotonic() - began
    rate = (progress.until(incarnation) - records) / ran
    written = sum(map(written_bytes, writers)) - written
    status = run.status
    reports = [each for each in status["snapshotReports"] if each["state"] == "published"]
    if case.mode == CHANNEL_LOGS:
        steps_per_s = (_records(run)["sums"] - made["sums"]) / PARALLELISM / ran
    else:
        steps_per_s = (len(reports) - 1) / (reports[-1]["timestamp"] - reports[0]["timestamp"])
    memory = sum(map(peak_bytes, status["workers"].values()))
    resumed, replaying = _kill(run, progress, incarnation, case.run_s)
    memory = max(memory, sum(map(peak_bytes, run.status["workers"].values())))
    replayed = progress.restored / replaying if case.mode == "inputLogging" else None
    _finish(folder, run)
    return Measured(
        rate, written / ran, steps_per_s,
        record_ms or [each["durationMs"] for each in reports], memory, resumed, replayed,
    )  # fmt: skip


def _records(run: Run) -> dict[str, int]:
    """Return how many records the subtasks of each node have stored by themselves; nothing in other modes."""
    return {name: node["records"] for name, node in run.status["mode"].get("nodes", {}).items()}


def _watch_records(run: Run, run_s: int) -> list[float]:
    """Return the milliseconds from a capture to the commit of its output, of the slowest node, twice an interval."""
    slowest = []
    for _ in range(int(run_s / INTERVAL_S * 2)):
        threading.Event().wait(INTERVAL_S / 2)
        slowest.append(max(node["recordMs"] for node in run.status["mode"]["nodes"].values()))
    return slowest


def _measure_totals(live: Live, folder: Path, case: Case, size: RunSize) -> Measured:
    mode: ModeWish = "markers"
    if case.mode != "markers":
        mode = MonoidClocks(clock="negotiated" if case.mode == NEGOTIATED else "epochs")
    interval_s = size.choose(STORE_INTERVAL_S, INTERVAL_S)
    return Measured(
        **measure_totals(live, folder, case.job, mode, run_s=case.run_s, interval_s=interval_s, parallelism=PARALLELISM)
    )


def _mode(name: str, folder: Path) -> ModeWish:
    match name:
        case "deltas":
            return Deltas(every=EVERY)
        case "persistentState":
            return PersistentState(str(folder / "disk"), every=EVERY)
        case ChannelLogs.name:
            return ChannelLogs(interval=INTERVAL_S)
        case _:
            return mode_of(name) or "markers"


def _kill(run: Run, progress: Progress, incarnation: int, run_s: int) -> tuple[float, float]:
    """Kill a worker. Return seconds until a new record was put out, and seconds in the phase "replaying"."""
    phases: list[tuple[float, str]] = []
    at = kill(run.status["workers"][0])
    deadline, due = at + DEADLINE_S + run_s * _RESUME_S_MAX, at
    while progress.after(incarnation) <= progress.until(incarnation):
        if (now := time.monotonic()) > deadline:
            raise CutlineError(f"modes: run {run.name} did not resume in {now - at:.0f} s: {run.status}")
        if now >= due:
            phases.append((now, run.status["phase"]))
            due = now + _PHASE_S
        time.sleep(_POLL_S)
    replaying = [at for at, phase in phases if phase == "replaying"]
    return time.monotonic() - at, max(replaying[-1] - replaying[0], _PHASE_S) if replaying else _PHASE_S


def _finish(folder: Path, run: Run) -> None:
    """Let the run end. Check that the values that were put out are those that are in the state."""
    (folder / "enough").touch()
    if not run.awaitTermination(DEADLINE_S) or run.status["outcome"] != "finished":
        raise CutlineError(f"modes: run {run.name} did not end: {run.status}")
    [state] = list(run.snapshots()[-1].node("balance").states)
    if state[1] != 0:
        raise CutlineError(f"modes: the values of {run.name} and its state differ by {state[1]}")
