"""The trace of a real run, with a worker killed in it: what was noted fits together, and it draws itself."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.live import Live, await_snapshots, wait_for
from benchmarks.process_table import kill
from cutline import Context, Graph, Node, Run, Subtask
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.trace import Trace
from cutline.snapshot.trace_events import Event, Kind
from tests.snapshot.sample import TOPOLOGY, P

pytestmark = [pytest.mark.spark, pytest.mark.ray]

#: Seconds that a node keeps the token: so few messages that the trace holds all of them.
_HOLD_SECONDS = 0.002


class _Passing(Node):
    """Passes a token on that counts its hops."""

    def __init__(self, token: int | None = None) -> None:
        self.token = token

    def onStart(self, context: Context) -> None:
        if self.token is not None:
            context.registerTimer(context.now)

    def onMessage(self, token: int, context: Context) -> None:
        self.token = token
        context.registerTimer(context.now + _HOLD_SECONDS)

    def onTimer(self, at: float, context: Context) -> None:
        assert self.token is not None
        context.send(self.token + 1)
        self.token = None

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return self.token

    def restoreState(self, state: Any) -> None:
        self.token = state


@pytest.fixture
def fonts() -> None:
    """Have matplotlib open its fonts, which it keeps open, before it is looked what is left open."""
    cut = Event(0.0, Kind.CUT, 1, P, snapshot_id=1)
    Trace(TOPOLOGY, [cut], Codec()).diagram().svg()


def _ring() -> Graph:
    graph = Graph("ring").add("a", _Passing(0)).add("b", _Passing()).add("c", _Passing())
    return graph.connect("a", "b").connect("b", "c").connect("c", "a")


def _whole_snapshots(run: Run) -> list[int]:
    """Published snapshots of which the trace has every cut."""
    return _whole(run.trace())


def _whole(trace: Trace) -> list[int]:
    cuts = {(event.snapshot_id, event.subtask) for event in trace.events if event.kind is Kind.CUT}
    published = [event.snapshot_id for event in trace.events if event.kind is Kind.PUBLISHED]
    return [each for each in published if all((each, subtask) in cuts for subtask in trace.topology.subtasks)]


def _of(trace: Trace, *kinds: Kind) -> list[Event]:
    return [event for event in trace.events if event.kind in kinds]


def _assert_receipts_were_sent(trace: Trace, victims: list[Subtask]) -> None:
    """All but what the killed worker had not sent off, whose numbers are above what it had."""
    sent = {(event.channel, event.number): event for event in _of(trace, Kind.SEND)}
    for event in _of(trace, Kind.RECEIVE):
        assert event.channel is not None
        found = sent.get((event.channel, event.number))
        if found is None:
            known = [number for (channel, number), e in sent.items() if channel == event.channel and e.incarnation == 1]
            assert event.channel.source in victims
            assert event.number > max(known)
        else:
            assert found.payload == event.payload


def test_trace_of_a_run_with_a_killed_worker(fonts: None, live: Live) -> None:
    """Cuts of all subtasks for each snapshot, a sending for each receipt, failure and rollback; also afterwards."""
    run = live.run(_ring(), workers=2, trace=True)
    await_snapshots(run, 2)
    before = wait_for("a traced snapshot", lambda: _whole_snapshots(run))
    kill(run.status["workers"][0])
    wait_for("the rollback", lambda: run.status["restarts"])
    after = await_snapshots(run, 2)
    run.stop()
    trace = run.trace()
    victims = [subtask for subtask, worker in trace.topology.place(2).items() if worker == 0]
    _assert_receipts_were_sent(trace, victims)
    assert set(before) | set(after) <= set(_whole(trace))
    deployed, (failed,) = _of(trace, Kind.DEPLOYED), _of(trace, Kind.FAILED)
    assert [event.incarnation for event in deployed] == [1, 2]
    assert deployed[0].snapshot_id == 0
    assert deployed[1].snapshot_id in [event.snapshot_id for event in _of(trace, Kind.PUBLISHED)]
    assert trace.events.index(failed) < trace.events.index(deployed[1])
    assert {(event.incarnation, event.subtask) for event in _of(trace, Kind.RESTORED)} == {
        (incarnation, subtask) for incarnation in (1, 2) for subtask in trace.topology.subtasks
    }
    assert "<svg" in trace._repr_html_()
    assert "stopped" in run._repr_html_()
