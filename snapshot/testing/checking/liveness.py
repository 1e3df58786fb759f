"""Checker 9: when faults stop, a snapshot is published and the run ends."""

from __future__ import annotations

from collections.abc import Iterator

from cutline.snapshot.coordinator.run_state import Outcome
from cutline.snapshot.testing.checking.verdict import Verdict, verdict_of
from cutline.snapshot.testing.history import History
from cutline.snapshot.trace_events import Event, Kind


def liveness(history: History, within: float | None = None) -> Verdict:
    """Check that the run finished or was stopped, and that a snapshot was published after the last fault.

    A finished run needs no snapshot after its final snapshot, because a fault may come when everything is over.

    Parameters
    ----------
    history : History
    within : float, optional
        Virtual seconds from the last fault in which both must have happened. None: no limit.

    Returns
    -------
    Verdict
        Problems name the last fault and the outcome of the run.
    """
    faults = [event for event in history.events if event.kind is Kind.FAULT]
    last = faults[-1] if faults else None
    problems = [*_end_problems(history, last, within), *_snapshot_problems(history, last, within)]
    ended = "was cut off" if history.outcome is None else f"ended {history.outcome.value}"
    return verdict_of("liveness", problems, f"the run {ended} at {history.now:g} s, {_behind(last)}")


def _end_problems(history: History, last: Event | None, within: float | None) -> Iterator[str]:
    if history.outcome not in (Outcome.FINISHED, Outcome.STOPPED):
        how = "did not end" if history.outcome is None else f"ended {history.outcome.value}"
        why = f": {history.reason}" if history.reason else ""
        yield f"the run {how}, at {history.now:g} s, {_behind(last)}{why}"
    elif within is not None and history.now - _time(last) > within:
        yield f"the run ended at {history.now:g} s, more than {within:g} s {_behind(last)}"


def _snapshot_problems(history: History, last: Event | None, within: float | None) -> Iterator[str]:
    if last is None or any(snapshot.manifest.final for snapshot in history.snapshots):
        return
    behind = history.events[len(history.events) - history.events[::-1].index(last) :]
    published = [event for event in behind if event.kind is Kind.PUBLISHED]
    if not published:
        aborted = [f"{event.snapshot_id} ({event.text})" for event in behind if event.kind is Kind.ABORTED]
        yield f"no snapshot was published {_behind(last)}; aborted: {', '.join(aborted) or 'none'}"
    elif within is not None and published[0].at - last.at > within:
        late = f"snapshot {published[0].snapshot_id} was published at {published[0].at:g} s"
        yield f"{late}, more than {within:g} s {_behind(last)}"


def _time(last: Event | None) -> float:
    return 0.0 if last is None else last.at


def _behind(last: Event | None) -> str:
    return "after a start without faults" if last is None else f"after the last fault, {last.text} at {last.at:g} s"
