"""Checker 2: nobody's cut knows what another one did behind its own cut. By vector clocks, not by numbers."""

from __future__ import annotations

from snapshot.drawing.labels import format_event
from snapshot.ids import Subtask
from snapshot.snapshot import Snapshot
from snapshot.testing.checking.values import named
from snapshot.testing.checking.verdict import Verdict, verdict_of
from snapshot.testing.history import VECTOR_CLOCKS_MAX, CutKey, History


def causality(history: History, snapshot: Snapshot) -> Verdict:
    """``V_i[i] >= V_j[i]`` for the clocks of all subtasks *i*, *j* at their cuts (Mattern 1989).

    Returns
    -------
    Verdict
        A problem names the two subtasks, the snapshot, and the last thing that one knew of the other: as a rule the
        message that crosses the cut from its far side.
    """
    subtasks = history.topology.subtasks
    keys: list[CutKey] = [(snapshot.manifest.incarnation, snapshot.id, subtask) for subtask in subtasks]
    if len(subtasks) > VECTOR_CLOCKS_MAX:
        return Verdict(
            "causality", True, f"not looked at: beyond {VECTOR_CLOCKS_MAX} subtasks there are no vector clocks"
        )
    problems = [f"{key[2]} was never seen to cut" for key in keys if key not in history.cuts]
    if not problems:
        clocks = [history.cuts[key].clock for key in keys]
        for number, subtask in enumerate(subtasks):
            for other, clock in zip(subtasks, clocks, strict=True):
                if clock[number] > clocks[number][number]:
                    what = _event_at(history, snapshot, subtask, number, clock[number])
                    problems.append(f"the cut of {other} knows what {subtask} did behind its own cut: {what}")
    fine = f"{named(snapshot)}: the cuts of {len(subtasks)} subtasks know nothing from behind each other's"
    return verdict_of("causality", [f"{named(snapshot)}: {problem}" for problem in problems], fine)


def _event_at(history: History, snapshot: Snapshot, subtask: Subtask, number: int, count: int) -> str:
    """The event of `subtask` that its own clock numbers `count`."""
    for event in history.events:
        is_of_incarnation = event.subtask == subtask and event.incarnation == snapshot.manifest.incarnation
        if is_of_incarnation and event.clock and event.clock[number] == count:
            return format_event(event, history.codec)
    return f"its event {count}"
