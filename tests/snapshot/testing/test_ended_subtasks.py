"""Subtasks that have ended are restored as ended, and idle snapshots keep their pause (PROTOCOL 3.6, 6.7, 8)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutline import END, Context, Graph, Sink, Source
from cutline.snapshot.coordinator.run_state import Outcome
from cutline.snapshot.node import End as EndType
from cutline.snapshot.trace_events import Kind
from cutline.testing import Failure, ListSink, ListSource, Pause, Simulator


class Greets(Source):
    """Sends in `open`, at each start, and ends after two numbers."""

    def __init__(self) -> None:
        self.count = 0

    def open(self, context: Context) -> None:
        context.send("hello")
        context.sendAll(["hello"])

    def poll(self, context: Context) -> EndType | None:
        self.count += 1
        if self.count > 2:
            return END
        context.send(self.count)
        return None

    def snapshotState(self, snapshotId: int, timestamp: float) -> int:
        return self.count

    def restoreState(self, state: int) -> None:
        self.count = state


@pytest.mark.parametrize("faults", [(), (Failure(),), (Failure(), Failure())])
def test_a_node_that_sends_in_open_is_restored_after_its_end(faults: tuple[Failure, ...]) -> None:
    """What `open` sends then was numbered before the end, so it is dropped, however often the run restarts."""
    graph = Graph("g").add("greets", Greets()).add("slow", ListSource("x", Pause(5.0), *faults, "y"))
    graph.add("out", ListSink()).connect("greets", "out").connect("slow", "out")
    history = Simulator(graph, 0, snapshotInterval=1.0).run()
    assert history.outcome is Outcome.FINISHED, history.reason
    assert sorted(map(str, history.output("out"))) == ["1", "2", "hello", "hello", "x", "y"]


class Place:
    """A place outside of the run, to which prepared output goes. One for all copies of the sinks of a test."""

    prepared: dict[str, list[tuple[int, int]]] = {}  # noqa: RUF012  # shared on purpose


class Files(Sink):
    """Puts what it prepares in the place, and takes away what lower incarnations left there."""

    def __init__(self) -> None:
        self.count = 0

    def onMessage(self, message: Any, context: Context) -> None:
        self.count += 1

    def open(self, context: Context) -> None:
        self.name, self.incarnation = str(context.subtask), context.incarnation

    def prepareCommit(self, snapshotId: int) -> int:
        Place.prepared.setdefault(self.name, []).append((self.incarnation, snapshotId))
        return snapshotId

    def commit(self, snapshotId: int, prepared: int) -> None:
        Place.prepared[self.name] = [each for each in Place.prepared[self.name] if each[1] != prepared]

    def discardUncommitted(self, context: Context) -> None:
        here = Place.prepared.get(self.name, [])
        Place.prepared[self.name] = [each for each in here if each[0] >= context.incarnation]

    def snapshotState(self, snapshotId: int, timestamp: float) -> int:
        return self.count

    def restoreState(self, state: int) -> None:
        self.count = state


@given(seed=st.integers(0, 10_000))
@settings(deadline=None)
def test_a_sink_that_has_ended_discards_what_was_undone(seed: int) -> None:
    """After a run nothing of a lower incarnation is left, neither of a sink that ended early nor of the other."""
    Place.prepared.clear()
    graph = Graph("g").add("short", ListSource(1)).add("ended", Files()).connect("short", "ended")
    graph.add("long", ListSource(1, Pause(5.0), Failure(), 2, Pause(2.0))).add("late", Files()).connect("long", "late")
    history = Simulator(graph, seed, snapshotInterval=0.5).run()
    assert history.outcome is Outcome.FINISHED, history.reason
    last = max(event.incarnation for event in history.events)
    for name, left in Place.prepared.items():
        assert [each for each in left if each[0] < last] == [], name


class Fails(Sink):
    """Refuses the first snapshots."""

    tries = 0

    def onMessage(self, message: Any, context: Context) -> None:
        pass

    def snapshotState(self, snapshotId: int, timestamp: float) -> None:
        type(self).tries += 1
        if type(self).tries < 6:
            raise OSError("the disk is full")

    def restoreState(self, state: Any) -> None:
        pass


def test_idle_snapshots_keep_their_pause() -> None:
    """An idle run that waits for its last snapshot tries it again after `minPause`, and not before."""
    graph = Graph("g").add("source", ListSource(1)).add("out", Fails()).connect("source", "out")
    history = Simulator(graph, [], minPause=5.0, tolerableFailedSnapshots=100).run()
    aborted = [event.at for event in history.events if event.kind is Kind.ABORTED]
    (published,) = [event.at for event in history.events if event.kind is Kind.PUBLISHED]
    assert len(aborted) == 5
    assert [later - earlier for earlier, later in zip(aborted, [*aborted[1:], published], strict=True)] == [5.0] * 5
