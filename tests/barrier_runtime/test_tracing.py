"""The trace of a real run: what subtasks note, how it travels, what is kept of it, what the coordinator adds."""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterable
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from cutline import END, Context, Graph, Node, Sink, Source, Subtask
from cutline.barrier_runtime.control_codec import decode_message, encode_message
from cutline.barrier_runtime.tracing.chunks import (
    FREQUENT_EVENTS_MAX,
    KINDS,
    RARE_EVENTS_MAX,
    TraceChunk,
    WorkerTrace,
    chunk_of,
    events_in,
    frequent_events_max,
)
from cutline.barrier_runtime.tracing.joined import opened
from cutline.barrier_runtime.tracing.payloads import LABELLED_ROWS_MAX, PAYLOAD_BYTES_MAX, Payloads
from cutline.barrier_runtime.tracing.trace_observer import SubtaskLog, TraceObserver, trace_of
from cutline.barrier_runtime.tracing.trace_store import KeptTrace, TraceStore
from cutline.barrier_runtime.worker.data_plane import DataPlane
from cutline.snapshot.assembly import assemble
from cutline.snapshot.channel.channel_sender import ChannelSender
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.coordinator import control, events
from cutline.snapshot.ids import ChannelId
from cutline.snapshot.plan.compiled_graph import build
from cutline.snapshot.plan.topology import Topology
from cutline.snapshot.subtask.acts import Status
from cutline.snapshot.subtask.environment import SubtaskEnvironment
from cutline.snapshot.subtask.events import SnapshotPublished, SnapshotRequested, Started
from cutline.snapshot.subtask.limits import SubtaskLimits
from cutline.snapshot.subtask.machine import SubtaskMachine
from cutline.snapshot.subtask.restored import FRESH, RestoredChannels
from cutline.snapshot.trace_events import Event, Kind, counts_of, pack_counts
from tests.snapshot.led import SETTINGS, Led, order
from tests.snapshot.sample import P

_P, _Q, _SINK = Subtask("p"), Subtask("q"), Subtask("sink")
_FIRST = 1_000_000


class _Numbers(Source):
    """Sends 0, 1, 2 …, one in a poll; every other poll sends nothing."""

    def __init__(self, count: int) -> None:
        self.left, self.is_due = count, False

    def poll(self, context: Context) -> Any:
        self.is_due = not self.is_due
        if self.is_due:
            if not self.left:
                return END
            self.left -= 1
            context.send(("number", self.left))
        return None


class _Batches(Source):
    """Sends one batch of so many rows."""

    def __init__(self, rows: int) -> None:
        self.rows = rows

    def poll(self, context: Context) -> Any:
        context.send(pa.record_batch({"n": range(self.rows)}))
        return END


class _Double(Node):
    """Sends on what comes, and once more when a timer rings."""

    def onMessage(self, message: Any, context: Context) -> None:
        context.send(message)
        context.registerTimer(0.0)

    def onTimer(self, at: float, context: Context) -> None:
        context.send("late")


class _Ledger(Sink):
    """Has something to commit at each snapshot."""

    def __init__(self) -> None:
        self.count = 0

    def onMessage(self, message: Any, context: Context) -> None:
        self.count += 1

    def prepareCommit(self, snapshotId: int) -> Any:
        return self.count

    def commit(self, snapshotId: int, prepared: Any) -> None:
        pass


def _plane(graph: Graph, *, is_traced: bool = True) -> tuple[DataPlane, Topology]:
    """All subtasks of a graph in one worker, started."""
    compiled = build(graph, "unaligned")
    environment = SubtaskEnvironment(
        "traced", 1, Codec(), SubtaskLimits(), lambda _: None,
        lambda _: logging.LoggerAdapter(logging.getLogger("traced"), {}), lambda _: Random(1), lambda: 0.0,
        lambda subtask: TraceObserver(subtask, compiled.topology, 1, 0) if is_traced else None,
    )  # fmt: skip
    machines = {
        s: SubtaskMachine(assemble(s, compiled, environment, RestoredChannels())) for s in compiled.topology.subtasks
    }
    plane = DataPlane(0, 1, compiled.topology, compiled.topology.place(1), machines)
    for machine in machines.values():
        machine.restore(FRESH, 0.0)
    for machine in machines.values():
        machine.step(Started(), 0.0)
    plane.flush(0.0)
    return plane, compiled.topology


def _run_out(plane: DataPlane) -> None:
    while plane.has_work or not all(machine.status is Status.ENDED for machine in plane.machines.values()):
        plane.turn(1.0)


def _chain(source: Source) -> Graph:
    graph = Graph("chain").add("p", source).add("q", _Double()).add("sink", _Ledger())
    return graph.connect("p", "q").connect("q", "sink")


def _taken(plane: DataPlane, topology: Topology) -> list[Event]:
    """What the subtasks noted since the last call, having travelled."""
    trace = trace_of(0, plane.machines)
    assert trace is not None
    travelled = decode_message(encode_message(trace))
    assert isinstance(travelled, WorkerTrace)
    assert travelled == trace
    return list(events_in(travelled.chunks, topology))


def _described(noted: Iterable[Event], subtask: Subtask) -> list[tuple[Any, ...]]:
    return [
        (event.kind, *([event.number, Codec().decode(event.payload)] if event.channel and event.payload else []))
        for event in noted
        if event.subtask == subtask
    ]


def test_what_a_subtask_does_is_in_order() -> None:
    """A message is received, then what it made the node send is sent; polls and timers precede what they sent."""
    plane, topology = _plane(_chain(_Numbers(2)))
    _run_out(plane)
    noted = _taken(plane, topology)
    sent = [(Kind.POLL,), (Kind.SEND, 1, ("number", 1)), (Kind.POLL,), (Kind.SEND, 2, ("number", 0))]
    assert _described(noted, _P) == [(Kind.RESTORED,), *sent, (Kind.POLL,), (Kind.END_SENT,)]
    described = _described(noted, _Q)
    assert described.index((Kind.RECEIVE, 1, ("number", 1))) + 1 == described.index((Kind.SEND, 1, ("number", 1)))
    assert described[described.index((Kind.TIMER,)) + 1][0::2] == (Kind.SEND, "late")
    assert described[-1] == (Kind.END_SENT,)
    assert (Kind.END_RECEIVED,) in described
    assert trace_of(0, plane.machines) is None  # once


def test_numbers_are_those_of_the_ends() -> None:
    """Every receipt has its sending, of the same number and payload, and the last number is what both ends say."""
    plane, topology = _plane(_chain(_Numbers(500)))
    _run_out(plane)
    noted = _taken(plane, topology)
    for channel in topology.channels:
        starts, ends = (
            [(e.number, e.payload) for e in noted if e.channel == channel and e.kind in kinds]
            for kinds in ((Kind.SEND, Kind.END_SENT), (Kind.RECEIVE, Kind.END_RECEIVED))
        )
        assert starts == ends
        last = plane.machines[channel.source].outputs[channel].sent
        assert [number for number, _ in ends] == list(range(1, last + 1))
        assert last == plane.machines[channel.target].inputs[channel].processed


@pytest.mark.parametrize("rows", [LABELLED_ROWS_MAX, FREQUENT_EVENTS_MAX + 5])
def test_rows_of_a_batch(rows: int) -> None:
    """Each row is a message; those of a large batch are numbered but not told, and no more are noted than are kept."""
    graph = Graph("batches").add("p", _Batches(rows)).add("sink", _Ledger()).connect("p", "sink")
    plane, topology = _plane(graph)
    _run_out(plane)
    noted = _taken(plane, topology)
    for kind in (Kind.SEND, Kind.RECEIVE):
        numbers = [event.number for event in noted if event.kind is kind]
        assert len(numbers) >= min(rows, FREQUENT_EVENTS_MAX - 1)  # a poll is kept too
        assert numbers == list(range(1, rows + 1))[-len(numbers) :]
    row = next(event for event in noted if event.kind is Kind.SEND)
    assert (row.payload != b"") is (rows <= LABELLED_ROWS_MAX)


def test_markers_cuts_and_commits() -> None:
    """A snapshot: the cut, with what was sent and processed, the markers from end to end, and the commit, with ids."""
    plane, topology = _plane(_chain(_Numbers(3)))
    plane.machines[_P].step(SnapshotRequested(7, (), 0), 0.0)
    while plane.has_work and not plane.machines[_SINK].inputs[ChannelId(_Q, _SINK)].processed:
        plane.turn(1.0)
    for machine in plane.machines.values():
        machine.take_reports()
        machine.step(SnapshotPublished(7), 1.0)
    noted = _taken(plane, topology)
    found = [(event.kind, event.subtask) for event in noted if event.snapshot_id == 7]
    assert sorted(found, key=str) == sorted(
        [
            *[(Kind.CUT, _P), (Kind.MARKER_SENT, _P)],
            *[(Kind.MARKER, _Q), (Kind.CUT, _Q), (Kind.MARKER_SENT, _Q)],
            *[(Kind.MARKER, _SINK), (Kind.CUT, _SINK), (Kind.COMMIT, _SINK)],
        ],
        key=str,
    )
    assert all(event.channel for event in noted if event.kind in (Kind.MARKER, Kind.MARKER_SENT))
    for place, event in enumerate(noted):
        if event.kind is Kind.CUT:
            before = [each for each in noted[:place] if each.subtask == event.subtask]
            sent, processed = counts_of(event, topology)
            assert sent == {c: sum(e.channel == c and e.kind is Kind.SEND for e in before) for c in sent}
            assert processed == {c: sum(e.channel == c and e.kind is Kind.RECEIVE for e in before) for c in processed}


def test_off_costs_nothing() -> None:
    """Without a trace nothing stands in the way: ends, inputs and nodes are as they were made."""
    plane, _ = _plane(_chain(_Numbers(1)), is_traced=False)
    for machine in plane.machines.values():
        assert machine.core.observer is None
        assert all(type(end) is ChannelSender for edge in machine.core.edges for end in edge.ends.values())
        assert all(channel._node is machine.node for channel in machine.core.inputs)
    assert trace_of(0, plane.machines) is None
    assert isinstance(_plane(_chain(_Numbers(1)))[0].machines[_P].core.observer, TraceObserver)


class _Opaque:
    pass


@pytest.mark.parametrize(
    "message", ["x" * (PAYLOAD_BYTES_MAX + 1), [1] * 1_000_000, ["x" * 100], {1: b"x" * 100}, _Opaque()]
)
def test_what_is_large_or_not_plain_is_not_kept(message: Any) -> None:
    """Such a message is noted without what it says; nothing of the user's is pickled."""
    payloads = Payloads()
    assert payloads.encoded(payloads.keep(message)) == b""


@pytest.mark.parametrize("message", [b"abc", ("word", 1), [1, 2], {"a": [1]}, "x" * 32, None, ((1, b"y"), 2.5)])
def test_what_is_small_is_kept_as_it_was(message: Any) -> None:
    """It comes back equal and of the same type, whatever its receiver has changed in it since."""
    payloads = Payloads()
    kept, expected = payloads.keep(message), copy.deepcopy(message)
    if isinstance(message, list):
        message.append("changed")
    found = Codec().decode(payloads.encoded(kept))
    assert (found, type(found)) == (expected, type(expected))


def test_the_newest_are_kept_and_messages_drive_no_cut_out() -> None:
    """The rings of a worker and those of the coordinator keep a bounded number of the newest events of each sort."""
    log = SubtaskLog(_P, 1, 10)
    trace_store = TraceStore(build(_chain(_Numbers(1)), "unaligned").topology)
    log.note(Kind.CUT, snapshot_id=7)
    for number in range(1, 100):
        log.note_message(Kind.SEND, 0, number, b"")
    chunks = log.take()
    assert [(chunk.is_frequent, chunk.event_count) for chunk in chunks] == [(True, 10), (False, 1)]
    assert log.take() == []
    rare = TraceChunk(_P, 1, False, RARE_EVENTS_MAX, b"cuts")
    full = [TraceChunk(_P, 1, True, FREQUENT_EVENTS_MAX // 2, b"%d" % number) for number in range(5)]
    for each in (rare, *full):
        trace_store.take(WorkerTrace(0, (each,)))
    assert trace_store.kept(is_whole=True) == KeptTrace((rare, *full[-2:]), (), True)


def test_events_of_the_run_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of months has more restarts than memory, so the newest events are kept."""
    monkeypatch.setattr("cutline.barrier_runtime.tracing.trace_store.RARE_EVENTS_MAX", 3)
    trace_store = TraceStore(SETTINGS.topology)
    for snapshot_id in range(1, 6):
        trace_store._note(Kind.ABORTED, 1, snapshot_id)
    assert [event.snapshot_id for event in trace_store.kept(is_whole=True).events] == [3, 4, 5]


def test_a_wide_graph_keeps_less_of_each() -> None:
    """All subtasks together are bounded too."""
    narrow, wide = Graph("narrow").add("p", _Numbers(1)), Graph("wide").add("p", _Numbers(1), parallelism=20_000)
    assert frequent_events_max(build(narrow, "unaligned").topology) == FREQUENT_EVENTS_MAX
    assert frequent_events_max(build(wide, "unaligned").topology) == 5


class _Watched(Led):
    """A coordinator in hand whose every step is looked at, as its service does."""

    def __post_init__(self) -> None:
        self.trace_store = TraceStore(SETTINGS.topology)
        super().__post_init__()

    def step(self, event: events.Event) -> list[events.Effect]:
        effects = super().step(event)
        self.trace_store.collect(self.coordinator, effects)
        return effects


def test_what_the_coordinator_adds() -> None:
    """Deployments and where they begin, publications, failures with their first line, what was given up by them."""
    led = _Watched()
    led.run()
    led.step(events.SnapshotRequested(order(1)))
    led.acknowledge(_FIRST)
    led.step(events.SnapshotRequested(order(2)))
    led.fail(reason="it raised\nTraceback")
    led.restored()
    led.connected()
    led.step(events.SnapshotRequested(order(3)))
    led.feed(0, control.SnapshotDeclined(2, 2 * _FIRST, P, "no room"))
    kept = led.trace_store.kept(is_whole=False)
    assert [(e.kind, e.incarnation, e.snapshot_id, e.text) for e in kept.events] == [
        (Kind.DEPLOYED, 1, 0, ""),
        (Kind.PUBLISHED, 1, _FIRST, ""),
        (Kind.FAILED, 1, 0, "it raised"),
        (Kind.ABORTED, 1, _FIRST + 1, "rolled back: it raised"),
        (Kind.DEPLOYED, 2, _FIRST, ""),
        (Kind.ABORTED, 2, 2 * _FIRST, "no room"),
    ]
    assert opened([(SETTINGS.topology, kept)]).events == list(kept.events)


def test_traces_of_a_rescaled_run_are_joined() -> None:
    """Each event keeps its channel, and each cut its counts, although channels had other places in the topology."""
    graph = Graph("g").add("a", _Sending()).add("b", _Passing(), parallelism=2).connect("a", "b", key=str)
    wide, narrow = (build(graph.withParallelism({"b": count}), "unaligned").topology for count in (3, 1))
    kept = [(wide, _one_cut(wide, 1)), (narrow, _one_cut(narrow, 2))]
    trace = opened(kept)
    assert [node.parallelism for node in trace.topology.nodes] == [1, 3]
    a, (one, two, three) = Subtask("a"), (ChannelId(Subtask("a"), Subtask("b", index)) for index in range(3))
    first, second = trace.events[0], trace.events[2]
    assert counts_of(first, trace.topology).sent == {one: 0, two: 1, three: 2}
    assert counts_of(second, trace.topology).sent == {one: 0, two: 0, three: 0}
    assert [(each.channel, each.incarnation, each.subtask) for each in trace.events[1::2]] == [
        (three, 1, a),
        (one, 2, a),
    ]


def _one_cut(topology: Topology, incarnation: int) -> KeptTrace:
    """A cut of the source, with one count for each channel, and a message on the last channel."""
    outputs = topology.outputs_of(Subtask("a"))
    cut = [1, float(incarnation), KINDS.index(Kind.CUT), -1, 0, 7, pack_counts(range(len(outputs)), ())]
    send = [2, incarnation + 0.5, KINDS.index(Kind.SEND), len(topology.channels) - 1, 5, 0, b""]
    chunk = chunk_of(Subtask("a"), incarnation, [cut, send], is_frequent=False)
    return KeptTrace((chunk,), (), is_whole=True)


class _Sending(Source):
    def poll(self, context: Context) -> float | None:
        return None


class _Passing(Node):
    def onMessage(self, message: Any, context: Context) -> None:
        """Take the message."""
