"""Decide for the subtasks of one worker when records are captured and written, and what follows (PROTOCOL 14).

No I/O, no threads, no clock. The worker's machine calls the writer, and performs its effects. A record goes this way::

    IDLE ─capture─> STORING ─parts stored─> AWAITING ─every sender has recorded─> WRITING ─written─> IDLE
                      │ failed                                                      │  ^
                      └──> IDLE                                 another claim there └─> FENCED ─permitted─> WRITING
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from cutline.snapshot.ids import SNAPSHOT_IDS_PER_CLAIM, ChannelId, Subtask, first_snapshot_id
from cutline.snapshot.stored.certificate import SubtaskRecord
from cutline.snapshot.stored.cut_plan import with_messages
from cutline.snapshot.stored.history import Claim
from cutline.snapshot.stored.local_checkpoint import LocalCheckpoint, SourceProgress, first_record_number
from cutline.snapshot.stored.part import Handle, PartKind


class _Stage(Enum):
    IDLE = auto()
    STORING = auto()  #: captured; its parts are being stored
    AWAITING = auto()  #: waits until the senders of its inputs have recorded what it has processed
    WRITING = auto()
    FENCED = auto()  #: written; another claim was there


@dataclass(slots=True)
class _Subtask:
    """Records of one subtask."""

    next_number: int
    stage: _Stage = _Stage.IDLE
    #: number of the record that is on its way, or 0
    number: int = 0
    #: record that is on its way, from the time its parts are stored
    pending: LocalCheckpoint | None = None
    #: record that was written last, and that no coordinator has fenced; None before the first
    newest: LocalCheckpoint | None = None
    #: monotonic seconds of the last capture, and seconds that the newest record took from there
    captured_at: float = 0.0
    seconds: float = 0.0
    #: highest id of a snapshot that the coordinator has requested, now and at the last capture
    requested: int = 0
    captured_for: int = 0
    #: positions of the source at the last capture
    progress: SourceProgress = ()
    #: whether the last record could not be stored
    has_failed: bool = False
    #: whether the next record is captured as soon as this one is over
    is_due: bool = False
    #: parts with messages that receivers may still need
    log: tuple[Handle, ...] = ()


@dataclass(frozen=True, slots=True)
class Points:
    """Recorded numbers of a sender: the last message of an output, and the checkpoint, of each record."""

    sent: int
    checkpoint: SourceProgress


@dataclass(slots=True)
class Decisions:
    """What the worker does next, each in order."""

    #: records to write
    write: list[LocalCheckpoint] = field(default_factory=list)
    #: (subtask, senders) of captured records that wait until these senders have recorded more
    awaits: list[tuple[Subtask, tuple[Subtask, ...]]] = field(default_factory=list)
    #: claims that were found after records
    fenced: list[Claim] = field(default_factory=list)
    #: records that are stored, to be announced to the coordinator, and seconds since their captures
    announce: list[tuple[LocalCheckpoint, float]] = field(default_factory=list)
    #: subtasks whose newest record is stored for good, so that it holds their messages
    stored: list[Subtask] = field(default_factory=list)
    #: (subtask, number) of records whose output is to be committed
    commit: list[tuple[Subtask, int]] = field(default_factory=list)
    #: subtasks whose record failed; the next one waits, because the store may fail again
    failed: list[Subtask] = field(default_factory=list)
    #: subtasks whose next record is due now
    due: list[Subtask] = field(default_factory=list)


class LocalCheckpointWriter:
    """The records of the subtasks of one worker in one incarnation.

    Parameters
    ----------
    run : str
    incarnation : int
        The number of the claim under which the subtasks were restored.
    channels : mapping
        ``{subtask: (inputs, outputs)}``.
    recorded : mapping of ChannelId to int
        What the senders of the inputs have recorded: the number of the last restored message.
    is_complete : bool
        Whether the incarnation has a snapshot of this run, so that output may be committed (PROTOCOL 14.4).
    """

    def __init__(
        self,
        run: str,
        incarnation: int,
        channels: Mapping[Subtask, tuple[Sequence[ChannelId], Sequence[ChannelId]]],
        recorded: Mapping[ChannelId, int],
        *,
        is_complete: bool,
    ) -> None:
        self._run = run
        self._claim = incarnation
        self._is_complete = is_complete
        self._channels = channels
        first = first_record_number(incarnation)
        self._end = first_snapshot_id(incarnation) + SNAPSHOT_IDS_PER_CLAIM
        self._subtasks = {subtask: _Subtask(first) for subtask in channels}
        #: {output: recorded number of its receiver}
        self._receivers: dict[ChannelId, int] = {}
        #: {input: recorded numbers of its sender, ascending}
        self._senders: dict[ChannelId, list[Points]] = {
            channel: [Points(recorded.get(channel, 0), ())] for inputs, _ in channels.values() for channel in inputs
        }

    @property
    def next_claim(self) -> int:
        """Number of the claim that fences what is written now."""
        return self._claim + 1

    def newest(self) -> list[tuple[LocalCheckpoint, float]]:
        """Return the records that were announced, with the seconds that they took, for a new coordinator."""
        return [(each.newest, each.seconds) for each in self._subtasks.values() if each.newest is not None]

    # ---------------------------------------------------------------- capture

    def request(self, snapshot_id: int) -> list[Subtask]:
        """Note that the coordinator requested a snapshot. Return the subtasks whose record is due now."""
        for each in self._subtasks.values():
            each.requested = max(each.requested, snapshot_id)
        return [subtask for subtask in self._subtasks if not self.is_over(subtask)]

    def begin(self, subtask: Subtask, now: float) -> int | None:
        """Return the number of the record that the subtask captures now, at `now` monotonic seconds.

        None: the record before is on its way, and the next one follows it.

        Raises
        ------
        OverflowError
            if the incarnation has no numbers left.
        """
        at = self._subtasks[subtask]
        if at.stage is not _Stage.IDLE:
            at.is_due = True
            return None
        if at.next_number >= self._end:
            raise OverflowError(
                f"{subtask} has used all numbers of records of this incarnation; a new one has new ones"
            )
        at.stage, at.is_due, at.captured_for = _Stage.STORING, False, at.requested
        at.number, at.next_number, at.captured_at = at.next_number, at.next_number + 1, now
        return at.number

    def may_hurry(self, subtask: Subtask) -> bool:
        """Return whether a record may be captured early."""
        at = self._subtasks[subtask]
        return at.stage is _Stage.IDLE and not at.has_failed

    def captured(self, subtask: Subtask, progress: SourceProgress) -> None:
        """Note the positions of a source at the capture."""
        self._subtasks[subtask].progress = progress

    def is_over(self, subtask: Subtask) -> bool:
        """Return whether the subtask has ended and a written record shows it, so that no other record follows."""
        newest = self._subtasks[subtask].newest
        return newest is not None and newest.record.status.ended

    # ---------------------------------------------------------------- results

    def failed(self, subtask: Subtask, number: int, decisions: Decisions) -> bool:
        """Drop a record that could not be captured, stored or written. What it held is in the next one.

        Returns False if another record is on its way, so that nothing is dropped.
        """
        at = self._subtasks[subtask]
        if at.number != number:
            return False
        at.stage, at.number, at.pending, at.has_failed = _Stage.IDLE, 0, None, True
        decisions.failed.append(subtask)
        return True

    def parts_stored(self, record: SubtaskRecord, number: int, decisions: Decisions) -> None:
        """Take a record all of whose parts are stored. Write it when its senders have recorded what it needs."""
        at = self._subtasks[record.subtask]
        assert at.stage is _Stage.STORING and at.number == number
        messages = [handle for handle in record.handles if handle.kind is PartKind.SENT]
        log = self._needed((*at.log, *messages))
        own = with_messages(record, {}, record.incarnation)
        at.pending = LocalCheckpoint(self._run, number, own, log, (), at.captured_for)
        at.stage = _Stage.AWAITING
        self._write_if_possible(at, decisions)
        if at.stage is _Stage.AWAITING:
            late = [channel.source for channel, last in at.pending.processed.items() if not self._has(channel, last)]
            decisions.awaits.append((record.subtask, tuple(dict.fromkeys(late))))

    def written(
        self, subtask: Subtask, number: int, checked: int, found: Claim | None, now: float, decisions: Decisions
    ) -> None:
        """Take a written record.

        Parameters
        ----------
        subtask, number
            The record.
        checked : int
            Claim that was checked after the write.
        found : Claim or None
            That claim, if it was there (PROTOCOL 14.3, the next claim).
        now : float
            Monotonic seconds.
        decisions : Decisions
        """
        at = self._subtasks[subtask]
        record = at.pending
        assert record is not None and record.number == number and at.stage is _Stage.WRITING
        if checked < self.next_claim:
            decisions.write.append(record)  # that claim continues this incarnation, so look for the next
        elif found is not None:
            at.stage = _Stage.FENCED
            decisions.fenced.append(found)
        else:
            at.seconds = now - at.captured_at
            self._act(at, record, decisions)

    def permitted(self, claim: int, is_complete: bool, decisions: Decisions) -> None:
        """Go on under a claim that continues this incarnation. `is_complete`: it has a snapshot."""
        self._claim = max(self._claim, claim)
        for at in self._subtasks.values():
            if at.stage is _Stage.FENCED and at.pending is not None:
                at.stage = _Stage.WRITING
                decisions.write.append(at.pending)
        if is_complete and not self._is_complete:
            self._is_complete = True
            for subtask, at in self._subtasks.items():
                if at.newest is not None:
                    decisions.commit.append((subtask, at.newest.number))

    def neighbour_recorded(
        self,
        sent: Iterable[tuple[ChannelId, int]],
        processed: Iterable[tuple[ChannelId, int]],
        checkpoint: SourceProgress,
        decisions: Decisions,
    ) -> None:
        """Take the numbers of another subtask's record. Write what waited for it (PROTOCOL 14.2, receivers wait)."""
        for channel, number in sent:
            if channel in self._senders and number >= self._senders[channel][-1].sent:
                self._senders[channel].append(Points(number, checkpoint))
        for channel, number in processed:
            if channel.source in self._subtasks:
                self._receivers[channel] = max(self._receivers.get(channel, 0), number)
        for at in self._subtasks.values():
            if at.stage is _Stage.AWAITING:
                self._write_if_possible(at, decisions)

    # ---------------------------------------------------------------- the rules

    def _has(self, channel: ChannelId, processed: int) -> bool:
        """PROTOCOL 14.2: return whether the sender has recorded up to what its receiver has processed."""
        return self._senders[channel][-1].sent >= processed

    def _write_if_possible(self, at: _Subtask, decisions: Decisions) -> None:
        record = at.pending
        assert record is not None
        if not all(self._has(channel, processed) for channel, processed in record.processed.items()):
            return
        record = at.pending = replace(record, checkpoint=self._checkpoint(record, at.progress))
        at.stage = _Stage.WRITING
        decisions.write.append(record)

    def _act(self, at: _Subtask, record: LocalCheckpoint, decisions: Decisions) -> None:
        """Announce a record, and let its output be committed, because no restore knows less than the record."""
        at.stage, at.number, at.pending, at.newest = _Stage.IDLE, 0, None, record
        at.has_failed = False
        at.log = self._needed(record.log)
        decisions.announce.append((record, at.seconds))
        decisions.stored.append(record.subtask)
        if self._is_complete:
            decisions.commit.append((record.subtask, record.number))
        if at.is_due and not record.record.status.ended:
            decisions.due.append(record.subtask)

    def _needed(self, parts: Iterable[Handle]) -> tuple[Handle, ...]:
        """PROTOCOL 14.4: return the parts with messages after the recorded number of their receiver, in order."""
        needed = [each for each in parts if each.channel and each.last > self._receivers.get(each.channel, 0)]
        return tuple(sorted(needed, key=lambda each: (str(each.channel), each.first)))

    def _checkpoint(self, record: LocalCheckpoint, progress: SourceProgress) -> SourceProgress:
        """Return the componentwise maximum of what the subtask has processed of each source, at least."""
        newest = self._subtasks[record.subtask].newest
        found = {**dict(() if newest is None else newest.checkpoint), **dict(progress)}
        for channel, processed in record.processed.items():
            points = self._senders[channel]
            passed = [each for each in points if each.sent <= processed]
            for partition, offset in passed[-1].checkpoint if passed else ():
                found[partition] = max(found.get(partition, offset), offset)
            self._senders[channel] = passed[-1:] + [each for each in points if each.sent > processed]
        return tuple(sorted(found.items()))
