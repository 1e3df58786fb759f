"""Each rule of a changed program is needed: a program that goes on without it loses something, or cannot go on.

Rules have the numbers of PROTOCOL 6.13 to 6.16. That a restore with the rule is right, or is refused by name, is shown
in test_changed_programs.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import pytest

from cutline import Graph
from cutline.snapshot.coordinator import recovery
from cutline.snapshot.coordinator.run_state import Outcome
from cutline.snapshot.keyed.keyed_states import KeyedStates
from cutline.snapshot.subtask.state_restore import StateRestore
from cutline.snapshot.testing.checkers import CheckFailed
from cutline.snapshot.testing.choosers import Odds
from cutline.testing import History, ListSink, ListSource, Pause, Simulator, judge
from tests.snapshot.testing import test_changed_programs as programs
from tests.snapshot.testing.campaign import checker_of

Patch = pytest.MonkeyPatch
Files = dict[str, bytes]

#: messages of a source
_COUNT = 40

# ---------------------------------------------------------------- rules taken away


def _removed_state_dropped(patch: Patch) -> None:
    patch.setattr(recovery, "_refuse_dropped_state", lambda *arguments: None)


def _removed_messages_dropped(patch: Patch) -> None:
    patch.setattr(recovery, "_refuse_dropped_messages", lambda *arguments: None)


def _lists_of_a_name_given_up_go_on(patch: Patch) -> None:
    state_of = recovery._Plan._state_of
    patch.setattr(recovery._Plan, "_state_of", lambda self, subtask: replace(state_of(self, subtask), needs_base=False))


def _values_not_migrated(patch: Patch) -> None:
    patch.setattr(StateRestore, "_migrated_rows", lambda self, rows: None)


def _grouping_not_compared(patch: Patch) -> None:
    patch.setattr(KeyedStates, "_check_grouping", lambda self, name, grouped_by: None)


# ---------------------------------------------------------------- programs


def _go_on(graph: Graph, files: Files, *allow: str) -> History | None:
    """Go on to the end. Return None where the restore is refused for what the rule says."""
    history = Simulator(graph, [], files=files, snapshotInterval=0.5, allow={*allow}).run()
    if history.outcome is Outcome.FAILED and ("holds " in history.reason or "lie by" in history.reason):
        return None
    if history.outcome is not Outcome.FINISHED:
        raise CheckFailed("outcome", history.reason)
    for verdict in judge(history):
        verdict.demand()
    return history


def _demand_equal(found: Any, due: Any) -> None:
    if found != due:
        raise CheckFailed("output", f"{found} instead of {due}")


def _removed_node() -> None:
    """The counts of a node that one program does without go on when it comes back."""
    files = Files()
    programs.stopped(programs.counting("count"), files, at=1.6)
    before = _counts(files)
    without = Graph("words").add("source", ListSource(*[Pause(50.0)] * 10)).add("out", ListSink())
    allow = {"changedGraph", "droppedMessages"}
    stopped = programs.stopped(without.connect("source", "out"), files, at=0.9, allow=allow)
    if not stopped.snapshots:
        assert "holds state of nodes that the graph no longer has" in stopped.reason
        return
    history = _go_on(programs.counting("count"), files, *allow)
    assert history is not None
    counted = dict(reversed([row for row in history.output("out") if row[0] != "timer"]))
    _demand_equal(counted, {word: before[word] + 1 for word in counted})


def _counts(files: Files) -> Mapping[Any, Any]:
    snapshot = programs.newest(files, "words")
    assert snapshot is not None
    return snapshot.node("count").keyedState("n")


def _removed_edge() -> None:
    """Each message is handled, whatever edges the next program has."""
    files = next(found for found in map(_cut_off, range(100)) if _has_messages_in_flight(found))
    history = _go_on(_edges(), files, "changedGraph", "droppedState")
    if history is not None:
        _demand_equal(len(history.output("out")), _COUNT)


def _cut_off(seed: int) -> Files:
    files = Files()
    odds = Odds(request=10, requests=10**6)
    Simulator(_edges("node"), seed, files=files, maxSteps=150, odds=odds).run()
    return files


def _has_messages_in_flight(files: Files) -> bool:
    snapshot = programs.newest(files, "edges")
    records = () if snapshot is None else snapshot.manifest.records
    return any(handle.channel for record in records for handle in record.handles)


def _edges(*between: str) -> Graph:
    """A source, the nodes between, and a sink."""
    graph = Graph("edges").add("source", ListSource(*range(_COUNT)))
    for source, target in pairwise(("source", *between, "out")):
        graph.add(target, ListSink() if target == "out" else programs.Unkeyed()).connect(source, target)
    return graph


def _name_given_up() -> None:
    """A list with parts of a name that the graph mentions no more is restored, and the run goes on."""
    files = Files()
    programs.stopped(programs.counting("old"), files, at=1.6)
    programs.stopped(programs.counting("new", formerly="old"), files, at=0.9)
    history = _go_on(programs.counting("new"), files)
    assert history is not None
    timers = Counter(key for what, key in history.output("out") if what == "timer")
    _demand_equal(timers, {"a": 3, "b": 2})


def _migrated() -> None:
    """Values of version 1 are of version 2 behind a restore."""
    files = Files()
    programs.stopped(programs.versioned(programs.First), files, at=2.6)
    assert _go_on(programs.versioned(programs.Second), files) is not None
    snapshot = programs.newest(files, "versions")
    assert snapshot is not None
    kept = snapshot.node("node").keyedState("n")
    _demand_equal(kept, {"a": {"count": 2}, "b": {"count": 1}, "c": {"count": 1}})


def _regrouped() -> None:
    """Each group has one total, behind an edge with another key."""
    files = Files()
    programs.stopped(programs.totals("a"), files, at=6.6)
    history = _go_on(programs.totals("b"), files, "changedGraph")
    if history is not None:
        _demand_equal(programs.counted(history), sorted(programs.DUE))


class _Tooth(NamedTuple):
    rule: str
    how: Callable[[Patch], None]
    run: Callable[[], None]
    caught_by: str


_TEETH = (
    _Tooth("6.13 removed state dropped", _removed_state_dropped, _removed_node, "output"),
    _Tooth("6.13 removed messages dropped", _removed_messages_dropped, _removed_edge, "output"),
    _Tooth("6.14 lists of a name given up go on", _lists_of_a_name_given_up_go_on, _name_given_up, "certificate"),
    _Tooth("6.15 values not migrated", _values_not_migrated, _migrated, "SnapshotCorrupt"),
    _Tooth("6.16 grouping not compared", _grouping_not_compared, _regrouped, "certificate"),
)


@pytest.mark.parametrize("tooth", _TEETH, ids=lambda tooth: tooth.rule)
def test_every_rule_of_a_changed_program_has_teeth(tooth: _Tooth, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the rule the program is right or refused. Without it a checker that has a name finds it."""
    tooth.run()
    tooth.how(monkeypatch)
    with pytest.raises(Exception) as found:  # noqa: PT011  # its name is compared
        tooth.run()
    assert checker_of(found.value) == tooth.caught_by, found.value
