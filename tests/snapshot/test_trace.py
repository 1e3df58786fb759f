"""Traces: what several hosts wrote down comes into an order that every cause precedes its effect."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutline.snapshot.trace import Trace
from cutline.snapshot.trace_events import Event, Kind, counts_of, in_order, pack_counts
from tests.snapshot import sample
from tests.snapshot.testing.scribe import sample_history

P, Q, PQ, QP = sample.P, sample.Q, sample.PQ, sample.QP
MESSAGES = (Kind.SEND, Kind.RECEIVE, Kind.END_SENT, Kind.END_RECEIVED)


def event(at: float, kind: Kind, **fields: Any) -> Event:
    """An event of the first incarnation."""
    subtask = fields.pop("subtask", None)
    return Event(at, kind, 1, subtask, **fields)


def assert_causes_precede(events: list[Event]) -> None:
    """Sendings precede receipts, deployments restores, cuts the publication."""
    seen: dict[tuple[object, ...], int] = {}
    for place, each in enumerate(events):
        seen.setdefault((each.kind, each.incarnation, each.channel, each.number, each.snapshot_id, each.subtask), place)
    for (kind, incarnation, channel, number, snapshot_id, _), place in seen.items():
        ends = {Kind.RECEIVE: Kind.SEND, Kind.END_RECEIVED: Kind.END_SENT, Kind.MARKER: Kind.MARKER_SENT}
        if kind in ends:
            source = channel.source  # type: ignore[attr-defined]
            sent = seen.get((ends[kind], incarnation, channel, number, snapshot_id, source), -1)
            assert sent < place
        if kind is Kind.PUBLISHED:
            cuts = [at for key, at in seen.items() if key[0] is Kind.CUT and key[4] == snapshot_id]
            assert max(cuts) < place
        if kind is Kind.RESTORED:
            assert seen[Kind.DEPLOYED, incarnation, None, 0, snapshot_id, None] < place


def test_what_one_clock_saw_stays_as_it_is() -> None:
    """The events of a simulated run are in order already."""
    events = sample_history(rolled_back=True).events
    assert in_order(events) == events


@given(st.integers(0, 10**6), st.lists(st.floats(-3, 3), min_size=3, max_size=3))
@settings(max_examples=60, deadline=None)
def test_clocks_that_are_wrong_do_not_turn_causes_round(seed: int, skews: list[float]) -> None:
    """Each host's clock is off; their logs come in any order, each in its own."""
    events = sample_history(rolled_back=True).events
    hosts = {None: skews[0], P: skews[1], Q: skews[2]}
    logs: dict[object, list[Event]] = {}
    for each in events:
        key = None if each.subtask is None else (each.incarnation, each.subtask)
        logs.setdefault(key, []).append(each._replace(at=each.at + hosts[each.subtask]))
    queues, chance, mixed = list(logs.values()), random.Random(seed), []
    while any(queues):
        mixed.append(chance.choice([queue for queue in queues if queue]).pop(0))
    found = in_order(mixed)
    assert_causes_precede(found)
    assert sorted(map(repr, found)) == sorted(map(repr, mixed))


def test_events_of_the_run_stay_in_order() -> None:
    """They are one log through all incarnations, even when the clock is set back between two of them."""
    first, second = event(5.0, Kind.DEPLOYED), event(1.0, Kind.DEPLOYED)._replace(incarnation=2)
    assert in_order([first, second]) == [first, second]


def test_what_was_dropped_is_not_waited_for() -> None:
    """A receipt without its sending, and restores without their deployment, go by their clocks."""
    receipt = event(2.0, Kind.RECEIVE, subtask=Q, channel=PQ, number=1)
    restored = event(1.0, Kind.RESTORED, subtask=P)
    assert in_order([receipt, restored]) == [restored, receipt]


def test_a_contradiction_is_decided_by_the_clocks() -> None:
    """Each of two was, by its own log, received before the other was sent: nothing is lost, the earliest goes first."""
    logs = [
        event(5.0, Kind.RECEIVE, subtask=P, channel=QP, number=1),
        event(6.0, Kind.SEND, subtask=P, channel=PQ, number=1),
        event(1.0, Kind.RECEIVE, subtask=Q, channel=PQ, number=1),
        event(2.0, Kind.SEND, subtask=Q, channel=QP, number=1),
    ]
    assert [each.at for each in in_order(logs)] == [1.0, 2.0, 5.0, 6.0]


def test_counts_come_back() -> None:
    """By channel, in the topology's order; where nobody counted, there are none."""
    cut = event(0.0, Kind.CUT, subtask=P, payload=pack_counts([8], [1]))
    assert counts_of(cut, sample.TOPOLOGY) == ({PQ: 8}, {QP: 1})
    assert counts_of(cut._replace(payload=b""), sample.TOPOLOGY) == ({}, {})
    with pytest.raises(ValueError, match="zip"):
        counts_of(cut._replace(payload=pack_counts([8, 9], [1])), sample.TOPOLOGY)


def test_a_trace_of_a_real_run_is_drawn() -> None:
    """Epoch seconds are told from its beginning; dropped messages do not change what is in flight across the cut."""
    history = sample_history(rolled_back=True)
    real = [each._replace(at=each.at + 1.7e9, clock=()) for each in history.events]
    trace = Trace.gathered(history.topology, real, history.codec)
    assert str(trace.diagram()) == str(history.diagram())
    kept = [each for each in real if not (each.kind in MESSAGES and each.incarnation == 7 and each.number < 3)]
    text = str(Trace.gathered(history.topology, kept, history.codec).diagram())
    assert "in flight P→Q 3, 4, 5, 6, 7, 8" in text
    unsent = [each for each in real if each.kind is not Kind.SEND]
    text = str(Trace.gathered(history.topology, unsent, history.codec).diagram())
    assert "├──*3──────>●" in text
    assert "'three' (restored)" in text
    assert "'one' (restored)" not in text


def test_events_of_the_run_stay_in_order_over_incarnations() -> None:
    """A new coordinator's clock may be behind. What it records still follows what the one before recorded."""
    first = event(5.0, Kind.DEPLOYED)
    second = event(4.0, Kind.DEPLOYED)._replace(incarnation=2)
    assert in_order([first, second]) == [first, second]
