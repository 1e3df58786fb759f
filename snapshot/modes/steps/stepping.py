"""Log the steps of one subtask, and hold what a replay of them must repeat (PROTOCOL 12).

Owns the log, the hashes of the inputs, and the comparison at the cuts of a replay. The machine calls the node. The
receiver of a channel compares its messages, and the sender their number, each at its own cut, because nothing of the
next step is sent before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

from cutline.snapshot.channel.message_hash import ChannelHash, NamedHash
from cutline.snapshot.errors import RestoreRefused
from cutline.snapshot.ids import ChannelId
from cutline.snapshot.modes.steps.determinants import At, Began, Cut, Opened, Started, decode_step
from cutline.snapshot.modes.steps.replay import Replay
from cutline.snapshot.modes.steps.state_hashes import StateHasher, StateHashes
from cutline.snapshot.modes.steps.step_log import StepLog
from cutline.snapshot.node import END, defines
from cutline.snapshot.replayable_source import ReplayableSource
from cutline.snapshot.stored.own_changes import OwnChange
from cutline.snapshot.subtask.core import SubtaskCore
from cutline.snapshot.subtask.strand import StepCaptured, Strand, SubtaskCut
from cutline.snapshot.subtask.subtask_log import SubtaskLog

if TYPE_CHECKING:
    from cutline.snapshot.channel.channel_receiver import ChannelReceiver
    from cutline.snapshot.channel.object_frame import AnyFrame
    from cutline.snapshot.plan.modes import CutContent
    from cutline.snapshot.subtask.restored import Restored

E = TypeVar("E", Opened, Started)

#: Step of the random numbers before the first cut.
_BEGINNING: Final = 0

#: Bytes of one output on disk from which a replay begins no further step. Between two subtasks of a run lie a window
#: and a buffer, a few MB.
SPILLED_BYTES_MAX: Final = 64 * 1024 * 1024


class Stepping(SubtaskLog):
    """The steps of one subtask.

    Parameters
    ----------
    core : SubtaskCore
    """

    strand: ClassVar = Strand.STEPS

    def __init__(self, core: SubtaskCore) -> None:
        #: whether each snapshot stores the subtask's state, as of a sink. A replay then only drops its messages
        self.keeps_state = core.is_sink
        self.log = StepLog()
        self.run = core.context.run
        #: what is to be repeated, or None while nothing is
        self.replay: Replay | None = None
        self.inputs = core.inputs
        self._places = {each.end.channel: place for place, each in enumerate(core.inputs)}
        self._core = core
        self._subtask = core.subtask
        self._context = core.context
        self._codec = core.codec
        self._outputs = core.outputs
        #: None where cuts have no hashes of the subtask's state
        self._hasher = StateHasher(core) if core.topology.row.hashes_states and not self.keeps_state else None
        #: whether the next step begins the log
        self._is_first = True
        for each in core.inputs:
            each.hash = ChannelHash()

    def hashes(self, snapshot_id: int) -> StateHashes | None:
        """Return what a cut of the snapshot logs of the state now, or None where the mode asks for no hashes."""
        return None if self._hasher is None else self._hasher.hashes(snapshot_id)

    # ---------------------------------------------------------------- logging

    def restoring(self, restored: Restored) -> None:
        """Hold a restored log, or begin that of a fresh subtask, before its `open`."""
        if restored.steps:
            self._hold(restored.steps, restored.base)
            if restored.state is not None:
                self._context.now = 0.0  # the state has the time, and rows of that time have not expired
        elif restored.state is None and not self.keeps_state:
            self._seed(_BEGINNING)
            assert self.run is not None
            self.log.opened(self.run, self._context.now)

    def go_on(self, run: str, snapshot_id: int) -> None:
        """Go on after restored state. `run` began the log of the steps up to the state of `snapshot_id`."""
        self.run = run
        if not self.keeps_state:
            self._seed(snapshot_id)

    def opened(self) -> None:
        """Compare the node's attributes from now on, where states have hashes, because a replay calls `open` too."""
        if self._hasher is not None and self._core.lost_state is not None:
            self._core.lost_state.opened()

    def started(self) -> None:
        """Log the start of a fresh node, or repeat what came before the start. Called before `onStart`."""
        if self.keeps_state:
            return
        if self.replay is None:
            self.log.started(self._context.now)
        else:
            self._reach(Started)

    def slice_handled(self, channel: ChannelId, count: int, *, together: bool) -> None:
        """Log messages that were handled."""
        took = self.log.took_together if together else self.log.took
        took(self._places[channel], count, self._context.now)

    def input_ended(self, end: ChannelReceiver, frame: AnyFrame) -> None:
        """Log the end of a stream."""
        self.log.took(self._places[end.channel], 1, self._context.now)

    def timer_fires(self, at: float, key: Any, *, has_key: bool) -> None:
        """Log a timer that fires."""
        self.log.fired(at, self._codec.encode(key) if has_key else None, self._context.now)

    def polled(self, wait: object) -> None:
        """Log a slice that a source has read, and its end."""
        source = self._core.node
        assert isinstance(source, ReplayableSource)
        if source.last_read is not None:
            partition, stop = source.last_read
            self.log.read(partition, self._codec.encode(stop), self._context.now)
        if wait is END:
            self.log.exhausted(self._context.now)

    def published(self, snapshot_id: int) -> None:
        """Log a publication that the node takes."""
        if defines(self._core.node, "onPublished"):
            self.log.published(snapshot_id, self._context.now)

    def compacted(self, partition: str, stop: Any, messages: list[Any]) -> None:
        """Log messages that a source has sent in the place of a partition up to `stop`."""
        encode = self._codec.encode
        self.log.compacted(partition, encode(stop), encode(messages), self._context.now)

    # ---------------------------------------------------------------- cuts

    def holds(self, content: CutContent) -> bool:
        """Return True, because each cut ends a step."""
        return True

    def capture(self, cut: SubtaskCut) -> StepCaptured:
        """End the step at a cut, and return it."""
        states = self.hashes(cut.snapshot_id)
        end = self._cut(cut.snapshot_id, states)
        if states is not None:
            self.log.at(self._context.now)
        step = OwnChange(self._is_first, (self.log.cut(end),))
        self._is_first = False
        if not self.keeps_state:
            self._seed(cut.snapshot_id)
        return StepCaptured(step, cut.content.is_base, end.sent, end.processed)

    def _cut(self, snapshot_id: int, states: StateHashes | None) -> Cut:
        return Cut(
            snapshot_id,
            tuple(end.sent for end in self._outputs.values()),
            tuple(each.end.processed for each in self.inputs),
            tuple(each.hash.take() for each in self.inputs if each.hash is not None),
            states,
        )

    def _seed(self, snapshot_id: int) -> None:
        """Begin the random numbers of a step, which the id of the cut before it decides."""
        self._context.seed_random(f"{self.run}/{self._subtask}/{snapshot_id}")

    # ---------------------------------------------------------------- replay

    def _hold(self, steps: Sequence[memoryview], behind: int | None) -> None:
        """Hold the steps of a restored log, and repeat what came before the node was opened.

        `behind` is the snapshot that has the restored state, or None where the replay begins with the run. Older steps
        are left out, because parts of a log may hold some.

        Raises
        ------
        SnapshotCorrupt
            if a step cannot be read.
        """
        self._is_first = False
        name = f"the log of {self._subtask}"
        self._context.steps_left = len(steps)
        decoded = (self._begun(step, name) for step in steps)
        self.replay = Replay(step for step in decoded if behind is None or step[-1].snapshot_id > behind)
        for each in self.inputs:
            each.hash = NamedHash(each.key_of)
        for channel, end in self._outputs.items():
            end.buffer.spill_from_now(self._core.environment.spill_of(channel))
        if isinstance(self.replay.head, Began):
            self.replay.done()  # the channels have begun so
        if not self.keeps_state and behind is None:
            self.run = self._reach(Opened).run
            self._seed(_BEGINNING)

    def _begun(self, step: memoryview, name: str) -> list[Any]:
        self._context.steps_left -= 1
        return decode_step(step, name)

    def _reach(self, entry: type[E]) -> E:
        assert self.replay is not None
        if isinstance(head := self.replay.head, At):
            self._context.now = head.now
            self.replay.done()
        found = self.replay.head
        assert isinstance(found, entry), (self._subtask, found)
        self.replay.done()
        return found

    @property
    def is_spilling(self) -> bool:
        """Return whether messages that were repeated wait on disk."""
        return any(end.buffer.spilling for end in self._outputs.values())

    @property
    def is_crowded(self) -> bool:
        """Return whether far more of them wait on disk than a run leaves between two subtasks (PROTOCOL 12.10)."""
        return any(end.buffer.spilled_bytes > SPILLED_BYTES_MAX for end in self._outputs.values())

    def decoded(self, value: bytes) -> Any:
        """Return an offset, messages or a key of the log."""
        return self._codec.decode(value)

    def repeat_cut(self, before: Cut, states: StateHashes | None) -> None:
        """Compare the step that ends, and the hashes of the state now, with what they were before. Begin the next step.

        Raises
        ------
        RestoreRefused
            if messages differ, in number or in content, or states. The text names step, node, subtask, edge and keys.
        """
        now = self._cut(before.snapshot_id, states)
        if not self.keeps_state:
            for channel, count, count_before in zip(self._outputs, now.sent, before.sent, strict=True):
                if count != count_before:
                    raise self._refused(
                        before, channel, f"sent {count:,} messages", f"where it had sent {count_before:,}"
                    )
        for each, blocks, blocks_before in zip(self.inputs, now.hashes, before.hashes, strict=True):
            if blocks != blocks_before:
                pairs = zip(blocks, blocks_before, strict=False)
                differing = next((n for n, (one, other) in enumerate(pairs) if one != other), len(blocks_before))
                near = each.hash.near(differing) if isinstance(each.hash, NamedHash) else ""
                what = "keys" if each.key_of is not None else "messages"
                raise self._refused(
                    before, each.end.channel, "sent something else", f"than before ({what} near {near})"
                )
            assert isinstance(each.hash, NamedHash)
            each.hash.forget()
        if before.states is not None and states is not None and states != before.states:
            names = [name for name, _ in {*states} ^ {*before.states}]
            raise self.differs(f"has another state than before (in {', '.join(sorted({*names}))})")
        if not self.keeps_state:
            self._seed(before.snapshot_id)

    def _refused(self, cut: Cut, channel: ChannelId, what: str, before: str) -> RestoreRefused:
        node, index = channel.source.node, channel.source.index
        edge = f"{node}->{channel.target.node}"
        return RestoreRefused(
            f"step {cut.snapshot_id}: node {node!r}, subtask {index} {what} on {edge} {before}: it is not deterministic"
        )

    def differs(self, what: str) -> RestoreRefused:
        """Return the error of a replay in which the node itself is not where it was."""
        assert self.replay is not None
        node, index = self._subtask.node, self._subtask.index
        step = self.replay.snapshot_id
        return RestoreRefused(f"step {step}: node {node!r}, subtask {index} {what}: it is not deterministic")

    def finish(self) -> None:
        """Log again from here on, because the last cut is repeated."""
        self.replay = None
        for each in self.inputs:
            each.hash = ChannelHash()
        for end in self._outputs.values():
            end.buffer.spill_from_now(None)
