"""Make a log of steps that begins with compacted messages, in the place of the input (PROTOCOL 12.14 to 12.16).

Owns the rehearsal: all subtasks run in this process on their real machines, from the beginning, and get the compacted
messages of the sources. Nothing is stored here. The log is made only if all states have the hashes that the log before
has at its last cut. Sinks are not run, because their state is stored; what they would get is counted and hashed.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Final

import msgspec

from cutline.snapshot.assembly import assemble
from cutline.snapshot.channel.channel_sender import ChannelSender
from cutline.snapshot.channel.frame import Frame, Marker
from cutline.snapshot.channel.frame_codec import encoded_frame
from cutline.snapshot.coordinator.control import RestoredSubtask
from cutline.snapshot.coordinator.recovery import plan_restore
from cutline.snapshot.errors import RestoreRefused
from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.modes.steps.determinants import Began, Compacted, Cut, Read, decode_step, encode_step
from cutline.snapshot.modes.steps.stepping import Stepping
from cutline.snapshot.plan.compiled_graph import CompiledGraph
from cutline.snapshot.replayable_source import ReplayableSource
from cutline.snapshot.stored.certificate import SubtaskRecord
from cutline.snapshot.stored.node_state import NodeState
from cutline.snapshot.stored.own_changes import decode_changes
from cutline.snapshot.stored.snapshot import Snapshot
from cutline.snapshot.subtask.environment import SubtaskEnvironment
from cutline.snapshot.subtask.events import RequestAnswered, Started
from cutline.snapshot.subtask.limits import SubtaskLimits
from cutline.snapshot.subtask.machine import SubtaskMachine
from cutline.snapshot.subtask.reports import SnapshotAsked
from cutline.snapshot.subtask.restored import FRESH, RestoredChannels
from cutline.snapshot.subtask.silent_logger import SilentLogger
from cutline.snapshot.subtask.strand import SubtaskCut
from cutline.snapshot.subtask.user_code import calling

#: Messages of a source that are sent before other subtasks take them.
_TOGETHER: Final = 256

#: Messages that a subtask handles in one turn.
_TURN: Final = 1024


def compacted_logs(snapshot: Snapshot, compiled: CompiledGraph) -> dict[Subtask, bytes]:
    """Return the only step of each subtask's new log, encoded.

    Parameters
    ----------
    snapshot : Snapshot
        Its codec must be able to decode what the sources return.
    compiled : CompiledGraph
        The graph of the snapshot.

    Raises
    ------
    RestoreRefused
        if the snapshot has no hashes of states, or is of another graph; if a source compacts nothing; or if compacted
        messages do not lead to the states of the snapshot. The text then names node and subtask.
    NodeError
        if a hook fails.
    """
    manifest = snapshot.manifest
    partitions: dict[str, tuple[str, ...]] = {}
    for record in manifest.records:
        node = record.subtask.node
        if record.status.partitions is not None:
            partitions[node] = (*partitions.get(node, ()), *record.status.partitions)
    plan = {each.subtask: each for each in plan_restore(compiled.topology, manifest, (), partitions)}
    rehearsal = _Rehearsal(
        [_Rehearsed(snapshot, record, plan[record.subtask], compiled) for record in manifest.records]
    )
    try:
        rehearsal.run()
        return {each.subtask: each.log() for each in rehearsal.subtasks.values()}
    finally:
        rehearsal.close()


class _Rehearsal:
    """All subtasks, and the way of their messages.

    Parameters
    ----------
    subtasks : list of _Rehearsed
    """

    def __init__(self, subtasks: list[_Rehearsed]) -> None:
        self.subtasks = {each.subtask: each for each in subtasks}

    def run(self) -> None:
        """Feed the compacted messages, and let all subtasks handle what comes of them."""
        for each in self.subtasks.values():
            each.start()
        self._flow()
        for each in self.subtasks.values():
            for _ in each.feed():
                self._flow()
        for each in self.subtasks.values():
            for channel, end in each.core.outputs.items():
                assert self.subtasks[channel.target].processed(channel) == end.sent, channel

    def close(self) -> None:
        """Close all nodes."""
        for each in self.subtasks.values():
            each.close()

    def _flow(self) -> None:
        """Let everything happen that needs no more input."""
        while any([self._act(each) for each in self.subtasks.values()]):
            pass

    def _act(self, each: _Rehearsed) -> bool:
        has_acted = each.act()
        for channel, end in each.core.outputs.items():
            for frame in _taken(end):
                self.subtasks[channel.target].take(frame, end)
                has_acted = True
        return has_acted


class _Rehearsed:
    """One subtask in a rehearsal.

    Parameters
    ----------
    snapshot : Snapshot
    record : SubtaskRecord
    restored : RestoredSubtask
    compiled : CompiledGraph
    """

    def __init__(
        self, snapshot: Snapshot, record: SubtaskRecord, restored: RestoredSubtask, compiled: CompiledGraph
    ) -> None:
        self.subtask = record.subtask
        self._snapshot = snapshot
        self._record = record
        self._where = f"{snapshot}: node {record.subtask.node!r}, subtask {record.subtask.index}"
        self._kept = NodeState.decode(snapshot.read_part(record.state), snapshot.codec)
        #: {partition: encoded offset up to which the log has read it}
        self._stops: dict[str, bytes] = {}
        self._cut = self._read_log()
        environment = SubtaskEnvironment(
            run=snapshot.run, incarnation=snapshot.manifest.incarnation, codec=snapshot.codec, limits=SubtaskLimits(),
            spill_of=lambda _: None, logger_of=lambda _: SilentLogger(),
            chance_of=lambda subtask: Random(str(subtask)), stopwatch=lambda: 0.0,
        )  # fmt: skip
        channels = RestoredChannels(partitions=restored.partitions)
        components = assemble(self.subtask, compiled, environment, channels)
        self.core, steps = components.core, components.log
        assert isinstance(steps, Stepping)
        self._steps = steps
        steps.go_on(self._kept.log_run or snapshot.run, 0)
        self._inputs = {each.end.channel: each for each in self.core.inputs}
        #: None for a sink, which is not run
        self._machine = None if steps.keeps_state else SubtaskMachine(components)

    def _read_log(self) -> Cut:
        """Return the last cut of the log, which is that of the snapshot, and note what a source has read."""
        cut: Cut | None = None
        for handle in self._record.steps or ():
            for _, step in decode_changes(self._snapshot.read_part(handle), handle.name):
                *entries, cut = decode_step(step, handle.name)
                for entry in entries:
                    if isinstance(entry, Read | Compacted):
                        self._stops[entry.partition] = entry.stop
        if cut is None or self._record.base is not None:
            raise RestoreRefused(
                f"{self._snapshot}: there is no log from the beginning of the run; only mode 'inputLogging' has one"
            )
        return cut

    @property
    def _now(self) -> float:
        """`Context.now` at the cut, which is the time of the whole rehearsal."""
        return self._kept.now

    # ---------------------------------------------------------------- run

    def start(self) -> None:
        """Open and start the node, as a fresh one."""
        if self._machine is None:
            return
        if self._cut.states is None:
            raise RestoreRefused(
                f"{self._where} has no hashes of its state, by which a compaction is checked: run the graph in mode "
                "InputLogging(hashes='states'), and take a snapshot"
            )
        self._machine.restore(FRESH, self._now)
        self._machine.step(Started(), self._now)

    def feed(self) -> Iterator[None]:
        """Send the compacted messages of a source, and yield after some. End the source if it had ended."""
        source, machine = self.core.node, self._machine
        if machine is None or not isinstance(source, ReplayableSource):
            return
        if self._stops and type(source).compactInput is ReplayableSource.compactInput:
            raise RestoreRefused(f"source {self.subtask.node!r} has no compactInput, so its input cannot be compacted")
        for partition, encoded in self._stops.items():
            stop = self._snapshot.codec.decode(encoded)
            with calling("compactInput", self.subtask):
                messages = list(source.compactInput(partition, stop))
            for start in range(0, len(messages) or 1, _TOGETHER):
                some = messages[start : start + _TOGETHER]
                with calling("compactInput", self.subtask):
                    source.send_compacted(partition, stop, some, self.core.context)
                self._steps.compacted(partition, stop, some)
                yield
        if self._kept.exhausted:
            source.end_partitions()
            machine.poll_next(self._now)
            yield

    def act(self) -> bool:
        """Let the node handle what has come. Return whether there was something."""
        machine = self._machine
        if machine is None:
            return False
        if self.core.is_source:  # which is not polled
            at = machine.next_timer_at()
            has_acted = at is not None and at <= self._now
            machine.fire_next(self._now)
        else:
            has_acted = machine.run(self._now, _TURN) > 0
        machine.seal()
        if any(isinstance(report, SnapshotAsked) for report in machine.take_reports()):
            machine.step(RequestAnswered(), self._now)
            return True
        return has_acted

    def processed(self, channel: ChannelId) -> int:
        """Return the number of the last message of an input that was handled."""
        return self._inputs[channel].end.processed

    def take(self, frame: Frame, end: ChannelSender) -> None:
        """Take a frame of a channel. A sink's messages are counted and hashed."""
        if self._machine is not None:
            self._machine.deliver(end.channel, frame)
            return
        channel = self._inputs[end.channel]
        channel.end.deliver(frame)
        if frame.is_control:
            channel.end.advance(1)
        else:
            channel.drop(frame, frame.count)
        self._steps.slice_handled(end.channel, frame.count, together=False)

    def close(self) -> None:
        """Close the node."""
        if self._machine is not None:
            self._machine.close()

    # ---------------------------------------------------------------- the log

    def log(self) -> bytes:
        """Return the step that the rehearsal has made, with the numbers of the cut.

        Raises
        ------
        RestoreRefused
            if the state is another one than at the cut, or more messages were sent.
        """
        snapshot_id = self._cut.snapshot_id
        captured = self._steps.capture(SubtaskCut(snapshot_id, self.core.content(snapshot_id)))
        *entries, cut = decode_step(b"".join(captured.step.body), "the rehearsal")
        self._compare(cut)
        began = Began(
            tuple(before - now for before, now in zip(self._cut.sent, cut.sent, strict=True)),
            tuple(before - now for before, now in zip(self._cut.processed, cut.processed, strict=True)),
        )
        for channel, before in zip(self.core.outputs, began.sent, strict=True):
            if before < 0:
                raise RestoreRefused(
                    f"{self._snapshot}: the compacted input leads to {-before:,} messages more on {channel} than the "
                    "whole input; it must not lead to more messages on any channel"
                )
        rebased = msgspec.structs.replace(cut, sent=self._cut.sent, processed=self._cut.processed)
        return encode_step([began, *entries, rebased])

    def _compare(self, cut: Cut) -> None:
        if cut.states != self._cut.states:
            differing = {name for name, _ in {*(cut.states or ())} ^ {*(self._cut.states or ())}}
            raise RestoreRefused(
                f"{self._where} has another state behind the compacted input (in {', '.join(sorted(differing))}): "
                "the messages of compactInput do not stand for the input"
            )


def _taken(end: ChannelSender) -> Iterator[Frame]:
    while (item := end.buffer.take()) is not None:
        assert not isinstance(item, Marker)  # because nobody takes a snapshot
        yield encoded_frame(item)
