"""Restores that are wrong only late in a run, attributes that are not saved, and nodes that must not be accused."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

from cutline import Context, Graph, Node
from cutline.snapshot.coordinator.run_state import Outcome
from cutline.snapshot.testing.diagnosis.diagnose import diagnose, unsaved_attributes
from cutline.snapshot.testing.diagnosis.probe import Probe
from cutline.snapshot.testing.late_schedules import late_schedules
from cutline.snapshot.testing.trial import Trial
from cutline.testing import (
    CheckFailed,
    Crash,
    Deliver,
    Initiate,
    ListSink,
    ListSource,
    Poll,
    Quiesce,
    Simulator,
    checkRecovery,
)

ITEMS = 60


class _Sums(Node):
    """Sends the sum of all numbers so far. `_restored` says what a restore makes of the numbers."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def _restored(self, seen: list[int]) -> list[int]:
        return seen

    def onMessage(self, message: Any, context: Context) -> None:
        self.seen.append(message)
        context.send(sum(self.seen))

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return self.seen

    def restoreState(self, state: Any) -> None:
        self.seen = self._restored(state)


class _KeepsThirty(_Sums):
    """Loses what is older than thirty messages."""

    def _restored(self, seen: list[int]) -> list[int]:
        return seen[-30:]


class _LosesAtTheEnd(_Sums):
    """Loses all from the fiftieth message on."""

    def _restored(self, seen: list[int]) -> list[int]:
        return seen if len(seen) < 50 else []


class _Forgets(_Sums):
    """Counts, and does not save the count, which matters to nobody."""

    def __init__(self) -> None:
        super().__init__()
        self.forgotten = 0

    def onMessage(self, message: Any, context: Context) -> None:
        self.forgotten += 1
        super().onMessage(message, context)


class _Opens(_Sums):
    """Makes in `open` what a restore need not bring back."""

    def open(self, context: Context) -> None:
        self.incarnation = context.incarnation
        self.total = sum(self.seen)

    def onMessage(self, message: Any, context: Context) -> None:
        self.total += message
        super().onMessage(message, context)


def _graph(node: Node, items: int = ITEMS) -> Graph:
    graph = Graph("g").add("source", ListSource(*range(items))).add("node", node).add("out", ListSink())
    return graph.connect("source", "node").connect("node", "out")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("make", [_KeepsThirty, pytest.param(_LosesAtTheEnd, marks=pytest.mark.slow)])
def test_default_settings_find_a_restore_that_is_wrong_only_late(
    make: Callable[[], Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Short schedules never restore such a state: a thousand of them miss it."""
    if make is _LosesAtTheEnd:  # whose schedules are the longest; the others are made shorter, which takes most time
        monkeypatch.setattr(Trial, "_shortest", lambda self, failing, judge: failing)
    with pytest.raises(CheckFailed, match="node: state lost in restoreState: attribute 'seen'"):
        checkRecovery(_graph(make()))


def test_late_schedules_restore_states_of_any_length() -> None:
    """The snapshots that are restored are spread over the run, and the last are near its end."""
    graph = _graph(_Sums())
    reference = Simulator(graph, ()).run()
    lengths = []
    for schedule in late_schedules(graph, reference, 2, 12):
        history = Simulator(graph, schedule, skipsImpossible=True).run()
        assert history.outcome is Outcome.FINISHED
        assert sorted(history.output("out")) == sorted(reference.output("out"))
        restored = [origin for origin in history.origins.values() if origin is not None]
        cuts = [cut for (incarnation, _, subtask), cut in history.cuts.items() if subtask.node == "node"]
        lengths += [max(sum(cut.processed.values()) for cut in cuts if cut.incarnation == each[0]) for each in restored]
    assert len(lengths) >= 12
    assert min(lengths) < ITEMS // 6 and max(lengths) > ITEMS * 5 // 6


class _Remembers(_Forgets):
    """Keeps a cache too, which `open` makes."""

    def open(self, context: Context) -> None:
        self.cache: dict[int, int] = {}

    def onMessage(self, message: Any, context: Context) -> None:
        self.cache[message] = len(self.cache)
        super().onMessage(message, context)


def _warnings_of(node: Node, *filters: str) -> list[warnings.WarningMessage]:
    """The warnings of a check that passes, behind filters as its warnings name them."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for code in filters:
            exec(code)
        checkRecovery(_graph(node, 8), examples=8)
    return warned


def test_a_pass_names_attributes_that_are_not_saved() -> None:
    """Each by a warning of its own, at the line of the call, because the attribute may be a cache."""
    warned = _warnings_of(_Remembers())
    cache, forgotten = sorted(str(each.message) for each in warned)
    assert cache.startswith("node: state kept outside snapshotState: attribute 'cache' was {")
    assert forgotten.startswith("node: state kept outside snapshotState: attribute 'forgotten' was ")
    assert "No output differs. Return it from snapshotState" in forgotten
    assert {(each.category, each.filename) for each in warned} == {(UserWarning, __file__)}


def test_a_cache_is_named_by_a_filter() -> None:
    """The text has the filter. The filter leaves out this attribute and no other."""
    texts = [str(each.message) for each in _warnings_of(_Remembers())]
    [code] = [text[text.index("warnings.filter") :] for text in texts if "attribute 'cache'" in text]
    [left] = _warnings_of(_Remembers(), code)
    assert "attribute 'forgotten'" in str(left.message)


def test_a_pass_of_sound_nodes_warns_of_nothing() -> None:
    """Neither of what `open` makes, nor of the kit's own source and sink."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for node in (_Sums(), _Opens()):
            checkRecovery(_graph(node, 8), examples=8)


def test_the_kits_own_sink_is_never_accused() -> None:
    """Its restore commits prepared rows again, before the first message: what it then shows is no lost state."""
    graph = _graph(_Sums(), 3)
    ways = [("source", "node"), ("node", "out")]
    script = [
        *(Poll("source"), *(Deliver(*way) for way in ways)),
        *(Initiate(1, "source"), *(Deliver(*way, marker=True) for way in ways), Quiesce(), Crash("out")),
    ]
    plain, probe = Probe(), Probe()
    reference = Simulator(graph, (), mutation=plain.mutation).run()
    history = Simulator(graph, script, mutation=probe.mutation).run()
    assert history.origins == {1: None, 2: (1, 1_000_001)}
    [restored] = [record for record in history.snapshots[0].manifest.records if record.subtask.node == "out"]
    assert restored.status.uncommitted == (1_000_001,)
    assert diagnose(history, probe, reference, plain) == []
    assert unsaved_attributes(history, probe) == []
