"""Assemble one subtask from the compiled graph: node, channel ends, edges, context, recorder.

The host passes the random generator, the logger, the spill files and the counters of a snapshot. A node that keeps
state without `snapshotState` causes a warning, because a restore would lose that state.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import cloudpickle

from cutline.snapshot.channel.channel_receiver import ChannelReceiver
from cutline.snapshot.channel.channel_sender import ChannelSender
from cutline.snapshot.channel.frame import Frame
from cutline.snapshot.channel.output_buffer import BackpressureFlag, Spill
from cutline.snapshot.channel.partitioning import key_function, partitioner
from cutline.snapshot.channel.rerouting import Waves
from cutline.snapshot.channel.send_log import LogMemory, SendLog
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.channel.shapes import Shapes
from cutline.snapshot.channel.stamps import OpenStamps
from cutline.snapshot.culprit import FailedTimer, Suspects
from cutline.snapshot.error_text import describe, headline
from cutline.snapshot.errors import GraphError, NodeError
from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.keyed.heap import HeapTier, Tier
from cutline.snapshot.keyed.keyed_states import KeyedStates
from cutline.snapshot.keyed.state_rules import StateOwner
from cutline.snapshot.node import Node, Source, defines
from cutline.snapshot.operators.persistent_aggregate import PersistentAggregate
from cutline.snapshot.plan.compiled_graph import CompiledGraph
from cutline.snapshot.plan.modes import CutContent, CutRule, content
from cutline.snapshot.plan.topology import Partitioning, Topology
from cutline.snapshot.state import KeyedState
from cutline.snapshot.steps.determinants import Began
from cutline.snapshot.subtask.context import SubtaskContext
from cutline.snapshot.subtask.difference_gate import DifferenceGate
from cutline.snapshot.subtask.division import Division
from cutline.snapshot.subtask.end_of_stream import EndOfStream
from cutline.snapshot.subtask.epochs import Epochs
from cutline.snapshot.subtask.independent_recording import IndependentRecording
from cutline.snapshot.subtask.input_processor import InputProcessor
from cutline.snapshot.subtask.isolation import Isolation
from cutline.snapshot.subtask.limits import SubtaskLimits
from cutline.snapshot.subtask.observer import ObservedSender, Observer
from cutline.snapshot.subtask.output_edge import OutputEdge
from cutline.snapshot.subtask.own_state import OwnState
from cutline.snapshot.subtask.positions import NOWHERE, Positions
from cutline.snapshot.subtask.recorder import Recorder
from cutline.snapshot.subtask.snapshotter import CutSettings
from cutline.snapshot.subtask.stepping import Stepping
from cutline.snapshot.subtask.timers import Timers

if TYPE_CHECKING:
    from logging import LoggerAdapter
    from random import Random


#: bytes; a larger attribute, such as a model, is not compared, because each snapshot would pickle the attribute again
_COMPARED_BYTES_MAX = 64 * 1024


class LostStateCheck:
    """Compare the attributes of a node without `snapshotState` with its attributes at the start."""

    def __init__(self, node: Node, subtask: Subtask, logger: LoggerAdapter[Any]) -> None:
        self._node = node
        self._subtask = subtask
        self._logger = logger
        self._at_start: dict[str, bytes | None] | None = None
        #: names of the attributes at the start
        self._known: set[str] = set()
        if not defines(node, "snapshotState"):
            self._note()

    def warn(self) -> None:
        """Warn once, by name, of attributes that changed while the node ran. Each snapshot calls this method."""
        if self._at_start is None:
            return
        if changed := self._changed(self._at_start):
            self._at_start = None
            self._logger.warning(
                "%s changes its attributes %s but has no snapshotState: a restore brings back what it was added with",
                self._subtask, ", ".join(changed),
            )  # fmt: skip

    def opened(self) -> None:
        """Compare with the attributes behind `open` from now on, because a replay calls `open` too."""
        if self._at_start is not None:
            self._note()

    def refuse(self) -> None:
        """Refuse attributes that came or changed since `opened`, where states are hashed (PROTOCOL 12.13).

        Raises
        ------
        GraphError
            with the names of the attributes, because such attributes have no hash.
        """
        if self._at_start is None:
            return
        came = [n for n, each in vars(self._node).items() if n not in self._known and not _is_state(each)]
        if changed := self._changed(self._at_start) + came:
            raise GraphError(
                f"{self._subtask} changes its attributes {', '.join(changed)}, which have no hash, because it has no "
                "snapshotState: give it one, or keep keyed state"
            )

    def _note(self) -> None:
        pickled = {name: _pickled(value) for name, value in vars(self._node).items()}
        self._at_start = {n: p for n, p in pickled.items() if p is None or len(p) <= _COMPARED_BYTES_MAX}
        self._known = set(pickled)

    def _changed(self, at_start: Mapping[str, bytes | None]) -> list[str]:
        return [
            name
            for name, before in at_start.items()
            if not _is_state(value := getattr(self._node, name, None)) and _pickled(value) != before
        ]


def _is_state(value: object) -> bool:
    """Return whether a value is keyed state, which the framework saves, a method of one, or a collection of them."""
    values = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return any(isinstance(getattr(each, "__self__", each), KeyedState) for each in (value, *values))


def _pickled(value: object) -> bytes | None:
    """Pickle a value for comparison. Return None for an unpicklable value, such as a connection that `open` made."""
    try:
        return bytes(cloudpickle.dumps(value))
    except BaseException:  # noqa: BLE001  # because pickling runs the value's own code
        return None


@dataclass(frozen=True, slots=True)
class RestoredChannels:
    """Counters, channel states and partitions that a subtask starts with (PROTOCOL 6.2, 6.5)."""

    #: {input channel: p}, the number of the last processed message
    processed: Mapping[ChannelId, int] = field(default_factory=dict)
    #: {input channel: channel state}, the receiver's part before the sender's part
    frames: Mapping[ChannelId, tuple[Frame, ...]] = field(default_factory=dict)
    #: {output channel: S}, the number of the last sent message
    sent: Mapping[ChannelId, int] = field(default_factory=dict)
    #: names of the partitions that the subtask reads, or None for a node without partitions
    partitions: tuple[str, ...] | None = None
    #: what failed before
    suspects: Suspects = Suspects()  # noqa: RUF009  # it is frozen
    #: output channels whose end is sent at the restore (PROTOCOL 6.7, ended subtasks)
    missing_ends: tuple[ChannelId, ...] = ()
    #: {input channel: waves of its restored messages} (PROTOCOL 6.11, waves)
    waves: Mapping[ChannelId, Waves] = field(default_factory=dict)
    #: {input channel of a reshaped edge: whether its end was processed} (PROTOCOL 6.10, ends of reshaped edges)
    reshaped: Mapping[ChannelId, bool] = field(default_factory=dict)
    #: targets of output edges whose partitioners start afresh
    fresh_outputs: tuple[str, ...] = ()
    #: {name in the snapshot: name now} of renamed nodes
    renames: Mapping[str, str] = field(default_factory=dict)
    #: `Node.stateVersion` of the node in the snapshot
    state_version: int = 1
    #: numbers with which a log of compacted input begins; None: with those above
    began: Began | None = None

    def numbered(self, subtask: Subtask, topology: Topology) -> RestoredChannels:
        """Return the same with the numbers of `began`."""
        if self.began is None:
            return self
        sent = dict(zip(topology.outputs_of(subtask), self.began.sent, strict=True))
        processed = dict(zip(topology.inputs_of(subtask), self.began.processed, strict=True))
        return replace(self, sent=sent, processed=processed)


@dataclass(frozen=True, slots=True)
class SubtaskEnvironment:
    """Values and functions that a host passes to each of its subtasks."""

    run: str
    incarnation: int
    codec: Codec
    limits: SubtaskLimits
    #: returns the spill file of an output buffer; called for channels inside a cycle
    spill_of: Callable[[ChannelId], Spill | None]
    logger_of: Callable[[Subtask], LoggerAdapter[Any]]
    chance_of: Callable[[Subtask], Random]
    #: seconds of a monotonic clock, for the durations of snapshots
    stopwatch: Callable[[], float]
    #: returns the observer of a subtask, or None for no observer
    observer_of: Callable[[Subtask], Observer | None] = lambda _: None
    #: returns the tier that keeps the rows of a subtask's keyed state
    tier_of: Callable[[Subtask], Tier] = lambda _: HeapTier()


@dataclass(slots=True)
class SubtaskParts:
    """Parts from which a `SubtaskMachine` is made."""

    subtask: Subtask
    topology: Topology
    node: Node
    codec: Codec
    shapes: Shapes
    backpressure: BackpressureFlag
    timers: Timers
    #: timers that failed before, and were not handled since
    suspected_timers: set[FailedTimer]
    context: SubtaskContext
    keyed: KeyedStates
    recorder: Recorder
    inputs: tuple[InputProcessor, ...]
    outputs: dict[ChannelId, ChannelSender]
    edges: tuple[OutputEdge, ...]
    limits: SubtaskLimits
    cutting: CutSettings
    #: divides messages, or None where a cut is a moment
    division: Division | None
    #: holds messages of an aggregate while its store is behind; None for other nodes
    gate: DifferenceGate | None
    lost_state: LostStateCheck
    own: OwnState
    #: what the cut of a snapshot stores of the subtask
    content: Callable[[int], CutContent]
    #: log of the steps, or None where each snapshot stores the state of all nodes
    steps: Stepping | None
    #: what records of the subtask alone hold of its channels, or None where markers cut the graph
    recording: IndependentRecording | None
    #: functions that `context.requestSnapshot` calls; set by the machine
    requests: list[Callable[[], None]]
    observer: Observer | None
    restored: RestoredChannels

    @property
    def is_source(self) -> bool:
        """Return whether the node is polled."""
        return isinstance(self.node, Source)

    def bind_requests(self, ask: Callable[[], None]) -> None:
        """Make `context.requestSnapshot` call `ask`."""
        self.requests.append(ask)


def assemble(
    subtask: Subtask, compiled: CompiledGraph, environment: SubtaskEnvironment, restored: RestoredChannels
) -> SubtaskParts:
    """Unpickle a fresh copy of the node, and make the parts around the node.

    Raises
    ------
    GraphError
        if the node's module is not installed in this process.
    NodeError
        if the node cannot be unpickled for another reason.
    """
    topology, codec = compiled.topology, environment.codec
    restored = restored.numbered(subtask, topology)
    node = fresh_node(subtask, compiled)
    backpressure, timers, shapes = BackpressureFlag(), Timers(), Shapes()
    memory = LogMemory(backpressure, environment.limits.recorded_bytes_max)
    keeps_logs = topology.row.is_alone
    logs = {channel: SendLog(memory) for channel in topology.outputs_of(subtask) if keeps_logs}
    observer = environment.observer_of(subtask)
    outputs = _outputs(subtask, topology, environment, backpressure, shapes, restored, observer, logs)
    edges = _edges(subtask, compiled, outputs, observer)
    requests: list[Callable[[], None]] = []
    context = SubtaskContext(
        run=environment.run,
        incarnation=environment.incarnation,
        subtask=subtask,
        parallelism=topology.node(subtask.node).parallelism,
        inputs=EndOfStream(subtask, topology).open_inputs,
        edges=tuple(
            edge for edge in edges if not topology.carries_dead_letters(topology.edge(subtask.node, edge.target))
        ),
        timers=timers,
        logger=environment.logger_of(subtask),
        chance=lambda: environment.chance_of(subtask),
        ask_snapshot=lambda: requests[0](),
    )
    context.partitions = restored.partitions or ()
    context.states = _keyed_states(node, compiled, context, timers, backpressure, environment)
    inputs = tuple(
        _input(channel, compiled, node, context, backpressure, codec, restored, observer, edges)
        for channel in topology.inputs_of(subtask)
    )
    division = _division(subtask, topology, node, inputs, outputs, backpressure)
    return SubtaskParts(
        subtask=subtask, topology=topology, node=node, codec=codec, shapes=shapes, backpressure=backpressure,
        timers=timers, suspected_timers=set(restored.suspects.timers), context=context, keyed=context.states,
        recorder=_recorder(subtask, topology), inputs=inputs, outputs=outputs, edges=edges, limits=environment.limits,
        cutting=CutSettings(
            environment.limits.recorded_bytes_max, _alignment_timeout(subtask, topology), environment.stopwatch,
            division,
        ),
        division=division, gate=_gate(node, topology, backpressure),
        lost_state=LostStateCheck(node, subtask, context.logger),
        own=_own_state(node, topology, context, codec, restored),
        content=partial(content, topology.row, is_sink=topology.node(subtask.node).is_sink),
        steps=_stepping(subtask, topology, context, environment, inputs, outputs),
        recording=_recording(subtask, topology, inputs, outputs, logs, memory, environment),
        requests=requests, observer=observer, restored=restored,
    )  # fmt: skip


def _outputs(
    subtask: Subtask,
    topology: Topology,
    environment: SubtaskEnvironment,
    backpressure: BackpressureFlag,
    shapes: Shapes,
    restored: RestoredChannels,
    observer: Observer | None,
    logs: Mapping[ChannelId, SendLog],
) -> dict[ChannelId, ChannelSender]:
    channels = topology.outputs_of(subtask)
    outputs = {
        channel: ChannelSender(
            channel, environment.codec, backpressure,
            sent=restored.sent.get(channel, 0), siblings=len(channels), shapes=shapes,
            spill=environment.spill_of(channel) if topology.edge_of(channel).in_cycle else None,
            log=logs.get(channel),
            stamps=_stamps(topology, restored.sent.get(channel, 0)),
        )
        for channel in channels
    }  # fmt: skip
    if observer is not None:
        for end in outputs.values():
            end.buffer.on_marker_taken = observer.marker_sent
    return outputs


def _own_state(
    node: Node, topology: Topology, context: SubtaskContext, codec: Codec, restored: RestoredChannels
) -> OwnState:
    at = (context.subtask, codec, context.keyGroups, restored.partitions, restored.state_version)
    factor = topology.row.full_factor
    return OwnState(node, *at) if factor is None else OwnState(node, *at, factor)


def _stepping(
    subtask: Subtask,
    topology: Topology,
    context: SubtaskContext,
    environment: SubtaskEnvironment,
    inputs: tuple[InputProcessor, ...],
    outputs: Mapping[ChannelId, ChannelSender],
) -> Stepping | None:
    """Return the log of the subtask's steps, or None where each snapshot stores all state."""
    if not topology.row.has_steps:
        return None
    keeps_state = topology.node(subtask.node).is_sink
    return Stepping(
        subtask, context, environment.codec, inputs, outputs,
        row=topology.row, keeps_state=keeps_state, spill_of=environment.spill_of,
    )  # fmt: skip


def _stamps(topology: Topology, sent: int) -> OpenStamps | None:
    if not topology.row.divides:
        return None
    return OpenStamps(sent, NOWHERE if topology.row.cut is CutRule.SLICES else 0)


def _division(
    subtask: Subtask,
    topology: Topology,
    node: Node,
    inputs: tuple[InputProcessor, ...],
    outputs: Mapping[ChannelId, ChannelSender],
    backpressure: BackpressureFlag,
) -> Division | None:
    """Return how the messages of the subtask are divided, or None where a cut is a moment."""
    if not topology.row.divides:
        return None
    if topology.row.cut is CutRule.SLICES:
        return Positions(subtask, node, outputs, backpressure)
    return Epochs(node, [each.end for each in inputs], outputs)


def _gate(node: Node, topology: Topology, backpressure: BackpressureFlag) -> DifferenceGate | None:
    if not isinstance(node, PersistentAggregate):
        return None
    return DifferenceGate(node, backpressure, topology.row.difference_bytes_max)


def _recording(
    subtask: Subtask,
    topology: Topology,
    inputs: Sequence[InputProcessor],
    outputs: Mapping[ChannelId, ChannelSender],
    logs: Mapping[ChannelId, SendLog],
    memory: LogMemory,
    environment: SubtaskEnvironment,
) -> IndependentRecording | None:
    """Return what records the channels of the subtask, or None where markers cut the graph."""
    if not topology.row.is_alone:
        return None
    ends, seconds = [each.end for each in inputs], topology.row.record_seconds
    return IndependentRecording(subtask, ends, outputs, logs, environment.stopwatch, memory, seconds)


def _keyed_states(
    node: Node,
    compiled: CompiledGraph,
    context: SubtaskContext,
    timers: Timers,
    backpressure: BackpressureFlag,
    environment: SubtaskEnvironment,
) -> KeyedStates:
    subtask = context.subtask
    row = compiled.topology.row
    makes_versions = row.makes_versions and not compiled.topology.node(subtask.node).is_sink
    owner = StateOwner(
        subtask, context, environment.codec, node.stateVersion,
        sorts=row.has_steps, makes_versions=makes_versions, stores_rows=row.copies_rows or not makes_versions,
        has_epochs=row.divides,
    )  # fmt: skip
    tier = environment.tier_of(subtask)
    edges = [
        compiled.edges[edge.source, edge.target]
        for edge in compiled.topology.edges
        if edge.target == subtask.node and edge.partitioning is Partitioning.HASH
    ]
    keys = [edge.key for edge in edges if edge.key is not None]
    return KeyedStates(
        owner, tier, context.keyGroups, timers, backpressure,
        parallelism=context.parallelism, edge_keys=keys, has_timers=defines(node, "onTimer"),
        is_batched=defines(node, "onBatch") and not defines(node, "onMessage") and not defines(node, "onMessages"),
    )  # fmt: skip


def fresh_node(subtask: Subtask, compiled: CompiledGraph) -> Node:
    """Unpickle a copy of a subtask's node. Raises as `assemble`."""
    try:
        node = pickle.loads(compiled.nodes[subtask.node])
    except (ImportError, AttributeError) as error:
        raise GraphError(
            f"{subtask}: its node cannot be unpickled here ({headline(error)}). Its module must be "
            "installed on the executors, sent with addPyFile, or registered with cloudpickle.register_pickle_by_value"
        ) from error
    except BaseException as error:  # because unpickling runs the user's code, which may raise anything
        raise NodeError(f"{subtask}: its node cannot be unpickled here: {describe(error)}") from error
    if not isinstance(node, Node):
        raise NodeError(f"{subtask}: its node cannot be unpickled here: its pickle holds a {type(node).__qualname__}")
    if hasattr(node, "__dict__"):
        # An unpickled object shares the keys of its attributes with its class, and each access takes twice as long.
        node.__dict__ = {**node.__dict__}
    return node


def _edges(
    subtask: Subtask, compiled: CompiledGraph, outputs: Mapping[ChannelId, ChannelSender], observer: Observer | None
) -> tuple[OutputEdge, ...]:
    edges: list[OutputEdge] = []
    for spec in compiled.topology.edges:
        if spec.source != subtask.node:
            continue
        code = compiled.edges[spec.source, spec.target]
        chooser = partitioner(
            spec.partitioning, code.key, subtask.index, compiled.topology.node(spec.target).parallelism
        )
        ends = {
            channel.target.index: end if observer is None else ObservedSender(end, observer)
            for channel, end in outputs.items()
            if channel.target.node == spec.target
        }
        edges.append(OutputEdge(subtask, spec.target, ends, chooser, code.transforms, code.schema))
    return tuple(edges)


def _input(
    channel: ChannelId,
    compiled: CompiledGraph,
    node: Node,
    context: SubtaskContext,
    backpressure: BackpressureFlag,
    codec: Codec,
    restored: RestoredChannels,
    observer: Observer | None,
    edges: tuple[OutputEdge, ...],
) -> InputProcessor:
    end = ChannelReceiver(
        channel, processed=restored.processed.get(channel, 0), restored=restored.frames.get(channel, ()),
        waves=restored.waves.get(channel, ()),
    )  # fmt: skip
    code = compiled.edges[channel.source.node, channel.target.node]
    key_of = None if code.key is None else key_function(code.key)
    on_error = compiled.topology.edge_of(channel).on_error
    edge = next((edge for edge in edges if edge.target == on_error), None)
    isolation = Isolation(channel, restored.suspects, edge, codec) if restored.suspects.concern(channel) else None
    return InputProcessor(
        end, node, context, backpressure, codec,
        key_of=key_of, schema=code.schema, isolation=isolation, observer=observer,
    )  # fmt: skip


def _recorder(subtask: Subtask, topology: Topology) -> Recorder:
    inputs, outputs = topology.inputs_of(subtask), topology.outputs_of(subtask)
    return Recorder(
        subtask,
        inputs,
        outputs,
        # The first edge is enough, because all edges into one node have the same alignment (PROTOCOL 4.1, aligned).
        aligned_inputs=bool(inputs) and topology.edge_of(inputs[0]).alignment.aligned,
        aligned_outputs=frozenset(c for c in outputs if topology.edge_of(c).alignment.aligned),
        holds=not topology.row.divides,
    )


def _alignment_timeout(subtask: Subtask, topology: Topology) -> float | None:
    channels = topology.inputs_of(subtask) + topology.outputs_of(subtask)
    timeouts = [topology.edge_of(channel).alignment.timeout for channel in channels]
    return min((timeout for timeout in timeouts if timeout is not None), default=None)
