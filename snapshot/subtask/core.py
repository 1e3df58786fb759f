"""The components of a subtask that each mode has: node, channel ends, edges, context, recorder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cutline.snapshot.channel.channel_sender import ChannelSender
from cutline.snapshot.channel.output_buffer import BackpressureFlag
from cutline.snapshot.channel.send_log import LogMemory, SendLog
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.channel.shapes import Shapes
from cutline.snapshot.failed_event import FailedTimer
from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.keyed.keyed_states import KeyedStates
from cutline.snapshot.node import Node, Source
from cutline.snapshot.plan.modes import CutContent
from cutline.snapshot.plan.topology import Topology
from cutline.snapshot.subtask.context import SubtaskContext
from cutline.snapshot.subtask.environment import SubtaskEnvironment
from cutline.snapshot.subtask.input_processor import InputProcessor
from cutline.snapshot.subtask.lost_state import LostStateCheck
from cutline.snapshot.subtask.observer import Observer
from cutline.snapshot.subtask.output_edge import OutputEdge
from cutline.snapshot.subtask.own_state import OwnState
from cutline.snapshot.subtask.recorder import Recorder
from cutline.snapshot.subtask.restored import RestoredChannels
from cutline.snapshot.subtask.timers import Timers


@dataclass(slots=True)
class SubtaskCore:
    """Components of one subtask in any mode."""

    subtask: Subtask
    topology: Topology
    environment: SubtaskEnvironment
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
    #: logs of the outputs, where subtasks record themselves alone, and their memory
    send_logs: Mapping[ChannelId, SendLog]
    log_memory: LogMemory
    edges: tuple[OutputEdge, ...]
    #: None of a node that has `snapshotState`
    lost_state: LostStateCheck | None
    own: OwnState
    #: what the cut of a snapshot stores of the subtask
    content: Callable[[int], CutContent]
    #: functions that `context.requestSnapshot` calls; set by the machine
    requests: list[Callable[[], None]]
    observer: Observer | None
    restored: RestoredChannels

    @property
    def is_source(self) -> bool:
        """Whether the node is polled."""
        return isinstance(self.node, Source)

    @property
    def is_sink(self) -> bool:
        """Whether the node is a sink, whose state each snapshot stores."""
        return self.topology.node(self.subtask.node).is_sink

    def bind_requests(self, ask: Callable[[], None]) -> None:
        """Make `context.requestSnapshot` call `ask`."""
        self.requests.append(ask)
