"""Assemble the core of one subtask from the compiled graph: node, channel ends, edges, context, recorder.

The host passes the random generator, the logger, the spill files and the counters of a snapshot.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from functools import partial

from cutline.snapshot.channel.channel_receiver import ChannelReceiver
from cutline.snapshot.channel.channel_sender import ChannelSender
from cutline.snapshot.channel.output_buffer import BackpressureFlag
from cutline.snapshot.channel.partitioning import key_function, partitioner
from cutline.snapshot.channel.send_log import LogMemory, SendLog
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.channel.shapes import Shapes
from cutline.snapshot.channel.stamps import NOWHERE, OpenStamps
from cutline.snapshot.error_text import describe, headline
from cutline.snapshot.errors import GraphError, NodeError
from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.keyed.keyed_states import KeyedStates
from cutline.snapshot.keyed.state_rules import KeyedStateSettings
from cutline.snapshot.node import Node, defines
from cutline.snapshot.plan.compiled_graph import CompiledGraph
from cutline.snapshot.plan.modes import CutRule, content
from cutline.snapshot.plan.topology import Partitioning, Topology
from cutline.snapshot.subtask.context import SubtaskContext
from cutline.snapshot.subtask.core import SubtaskCore
from cutline.snapshot.subtask.environment import SubtaskEnvironment
from cutline.snapshot.subtask.input_ends import InputEnds
from cutline.snapshot.subtask.input_processor import InputProcessor
from cutline.snapshot.subtask.isolation import Isolation
from cutline.snapshot.subtask.lost_state import LostStateCheck
from cutline.snapshot.subtask.observer import ObservedSender, Observer
from cutline.snapshot.subtask.output_edge import OutputEdge
from cutline.snapshot.subtask.own_state import OwnState
from cutline.snapshot.subtask.recorder import Recorder
from cutline.snapshot.subtask.restored import RestoredChannels
from cutline.snapshot.subtask.timers import Timers


def core_of(
    subtask: Subtask, compiled: CompiledGraph, environment: SubtaskEnvironment, restored: RestoredChannels
) -> SubtaskCore:
    """Unpickle a fresh copy of the node, and make the components around the node.

    Raises
    ------
    GraphError
        if the node's module is not installed in this process.
    NodeError
        if the node cannot be unpickled for another reason.
    """
    topology, codec = compiled.topology, environment.codec
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
        inputs=InputEnds(subtask, topology).open_inputs,
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
    return SubtaskCore(
        subtask=subtask, topology=topology, environment=environment, node=node, codec=codec, shapes=shapes,
        backpressure=backpressure, timers=timers, suspected_timers=set(restored.suspects.timers), context=context,
        keyed=context.states, recorder=_recorder(subtask, topology), inputs=inputs, outputs=outputs, send_logs=logs,
        log_memory=memory, edges=edges,
        lost_state=None if defines(node, "snapshotState") else LostStateCheck(node, subtask, context.logger),
        own=_own_state(node, topology, context, codec, restored),
        content=partial(content, topology.row, is_sink=topology.node(subtask.node).is_sink),
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


def _stamps(topology: Topology, sent: int) -> OpenStamps | None:
    if not topology.row.divides:
        return None
    return OpenStamps(sent, NOWHERE if topology.row.cut is CutRule.SLICES else 0)


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
    owner = KeyedStateSettings(
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
    """Unpickle a copy of a subtask's node. Raises as `core_of`."""
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
    is_apart = edge is not None or restored.suspects.concern(channel)
    isolation = Isolation(channel, restored.suspects, edge, codec) if is_apart else None
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
