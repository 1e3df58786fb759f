"""Recognise messages and timers that fail again after each restart, and isolate the messages (PROTOCOL 6.6).

The failures of a message or a timer count until a published snapshot lies after it, whatever was published before. Of
several messages that fail together, such as the rows of a batch, halves are isolated, until one message is left.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Final

from cutline.snapshot.failed_event import (
    DeadLetter,
    FailedBatch,
    FailedEvent,
    FailedMessage,
    FailedTimer,
    IsolatedMessages,
    Suspect,
    Suspects,
)
from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.plan.topology import Topology
from cutline.snapshot.stored.certificate import SubtaskRecord

#: Messages and timers whose failures are counted. The oldest is forgotten first.
_SUSPECTS_MAX: Final = 1_000

#: Contents that fail at one number until the message is known by its number: its content differs after each restart.
#: Fewer may be as many different messages, after a node with several inputs.
_CONTENTS_MAX: Final = 5


@dataclass(frozen=True, slots=True)
class Counted:
    """The run continues. Messages failed that will be set aside if they fail again and again."""

    channel: ChannelId
    times: int  #: failures of these messages in a row


@dataclass(frozen=True, slots=True)
class Isolated:
    """The run continues with messages of a channel isolated. The text says which, and where they go."""

    channel: ChannelId
    text: str


@dataclass(frozen=True, slots=True)
class Poisoned:
    """The run must end, because every restart fails at the same place."""

    text: str


Verdict = Counted | Isolated | Poisoned | None


class RepeatedFailures:
    """The failures of one run by message and by timer.

    Parameters
    ----------
    topology : Topology
    poison_after : int or None
        Failures in a row after which a message or a timer fails for good; None: never.
    """

    def __init__(self, topology: Topology, poison_after: int | None) -> None:
        self._topology = topology
        self._poison_after = poison_after
        #: {message or timer: failures in a row}
        self._counts: dict[Suspect, int] = {}
        #: {message or timer that was handled since its last failure: lowest number, as in `note_published`, after it}
        self._handled: dict[Suspect, int] = {}
        #: {messages that failed together: failures in a row}
        self._batches: dict[FailedBatch, int] = {}
        self._isolated: dict[ChannelId, list[IsolatedMessages]] = {}
        self._letters: dict[ChannelId, list[DeadLetter]] = {}

    def count(self, failed_event: FailedEvent | None, reason: str) -> Verdict:
        """Count a failure. Return None where it is as any other: no message is set aside, and none must be."""
        if self._poison_after is None:
            return None
        match failed_event:
            case None:
                return None
            case FailedTimer():
                self._add(failed_event)
                return self._poisoned(failed_event, self._counts[failed_event], self._poison_after, reason)
            case FailedMessage():
                return self._count_message(failed_event, self._poison_after, reason)
            case FailedBatch():
                return self._count_batch(failed_event, self._poison_after, reason)

    def note_handled(self, suspect: Suspect, number: int) -> None:
        """Note that a message or a timer was handled that had failed. What is published from `number` on is after it.

        The failure of an equal message at another number is not the same message's from now on.
        """
        if suspect in self._counts:
            self._handled[suspect] = number

    def note_published(self, number: int, records: Collection[SubtaskRecord]) -> None:
        """Forget what lies before a published snapshot, or a subtask's record, because no restart repeats it.

        `number` is the id of the snapshot, or the number of the record.
        """
        processed = {entry.channel: entry.processed for record in records for entry in record.received}
        recorded = {record.subtask for record in records}

        def is_behind(channel: ChannelId, number: int) -> bool:
            return number > processed.get(channel, 0)

        def may_fail(suspect: Suspect) -> bool:
            if isinstance(suspect, FailedMessage):
                return is_behind(suspect.channel, suspect.number)
            return suspect.subtask not in recorded or number < self._handled.get(suspect, number + 1)

        self._counts = {each: count for each, count in self._counts.items() if may_fail(each)}
        self._handled = {each: first for each, first in self._handled.items() if each in self._counts}
        self._batches = {each: count for each, count in self._batches.items() if is_behind(each.channel, each.last)}
        for channel, isolated in self._isolated.items():
            self._isolated[channel] = [each for each in isolated if is_behind(channel, each.last)]
        for channel, letters in self._letters.items():
            self._letters[channel] = [each for each in letters if is_behind(channel, each.number)]

    def suspects(self, subtask: Subtask) -> Suspects:
        """Return what failed at the subtask."""
        channels = self._topology.inputs_of(subtask)
        failed = [each for each in self._counts if isinstance(each, FailedMessage) and each.channel in channels]
        return Suspects(
            messages=tuple(sorted(failed, key=lambda each: each.number)),
            isolated=tuple(each for channel in channels for each in self._isolated.get(channel, ())),
            letters=tuple(each for channel in channels for each in self._letters.get(channel, ())),
            timers=tuple(each for each in self._counts if isinstance(each, FailedTimer) and each.subtask == subtask),
        )

    def _add(self, suspect: Suspect) -> None:
        self._handled.pop(suspect, None)
        self._counts[suspect] = self._counts.pop(suspect, 0) + 1
        if len(self._counts) > _SUSPECTS_MAX:
            del self._counts[next(iter(self._counts))]

    def _count_message(self, failed: FailedMessage, poison_after: int, reason: str) -> Verdict:
        self._add(failed)
        at_number = [each for each in self._of_channel(failed.channel) if each.number == failed.number]
        letters = [each for each in self._letters.get(failed.channel, ()) if each.number == failed.number]
        is_by_number = self._is_known_by_number(failed)
        same = at_number if is_by_number else self._of_content(failed)
        count = sum(self._counts[each] for each in same)
        where = self._topology.edge_of(failed.channel).on_error
        if where is None:
            return self._poisoned(failed, count, poison_after, reason)
        if count < poison_after:
            return Counted(failed.channel, count)
        content = None if is_by_number else failed.content
        if content in (letter.content for letter in letters):
            return Poisoned(f"{reason}\n({failed} cannot be set aside to {where!r})")
        for each in same:
            del self._counts[each]
        self._set_aside(DeadLetter(failed.channel, failed.number, content, reason))
        return Isolated(failed.channel, f"{failed} failed for good, and is sent to {where!r}")

    def _count_batch(self, failed: FailedBatch, poison_after: int, reason: str) -> Verdict:
        """Count the failure together with those of messages that were among these. Halves are halved at once."""
        same = [each for each in self._batches if each.channel == failed.channel and _overlap(each, failed)]
        count = 1 + max((self._batches.pop(each) for each in same), default=0)
        self._batches[failed] = count
        where = self._topology.edge_of(failed.channel).on_error
        is_half = any(_overlap(each, failed) for each in self._isolated.get(failed.channel, ()))
        if where is None:
            return self._poisoned(failed, count, poison_after, reason)
        if count < poison_after and not is_half:
            return Counted(failed.channel, count)
        del self._batches[failed]
        self._halve(failed)
        return Isolated(failed.channel, f"{failed} failed together; each half is tried alone")

    def _poisoned(self, failed_event: FailedEvent, count: int, poison_after: int, reason: str) -> Poisoned | None:
        if count < poison_after:
            return None
        hint = ""
        if not isinstance(failed_event, FailedTimer):
            source, target = failed_event.channel.source.node, failed_event.channel.target.node
            hint = f"; connect({source!r}, {target!r}, onError=...) would set such messages aside"
        text = f"{failed_event} failed {count} times in a row; RestartPolicy(poisonAfter={poison_after})"
        return Poisoned(f"{reason}\n({text}{hint})")

    def _is_known_by_number(self, failed: FailedMessage) -> bool:
        """Return whether the content of a message differs after each restart, and its number does not."""
        letters = self._letters.get(failed.channel, ())
        waiting = [each for each in self._of_channel(failed.channel) if each not in self._handled]
        found = {each.content for each in (*waiting, *letters) if each.number == failed.number}
        recognised = {letter.number for letter in letters}
        # A message that failed elsewhere and was not recognised may be this one. So may one that failed after it.
        has_moved = any(each.number not in {failed.number, *recognised} for each in waiting) or any(
            letter.number > failed.number and letter.content is not None for letter in letters
        )
        return None in found or (len(found) >= _CONTENTS_MAX and not has_moved)

    def _of_channel(self, channel: ChannelId) -> list[FailedMessage]:
        return [each for each in self._counts if isinstance(each, FailedMessage) and each.channel == channel]

    def _of_content(self, failed: FailedMessage) -> list[FailedMessage]:
        """Return the message with its earlier numbers, because restarts change them after several inputs."""
        same = [each for each in self._of_channel(failed.channel) if each.content == failed.content]
        return [each for each in same if each not in self._handled]

    def _set_aside(self, letter: DeadLetter) -> None:
        """Set a message aside. The rest of a former half stays isolated."""
        isolated = self._isolated.get(letter.channel, [])
        one = FailedBatch(letter.channel, letter.number, letter.number)
        self._isolated[letter.channel] = [piece for each in isolated for piece in _without(each, one)]
        letters = self._letters.get(letter.channel, [])
        if letter.content is None:  # the others are for former contents of the same message
            letters = [each for each in letters if each.number != letter.number]
        self._letters[letter.channel] = sorted([*letters, letter], key=lambda each: each.number)

    def _halve(self, failed: FailedBatch) -> None:
        """Isolate each half. The rest of a former half stays isolated."""
        pieces = [piece for each in self._isolated.get(failed.channel, ()) for piece in _without(each, failed)]
        middle = (failed.first + failed.last) // 2
        pieces.append(IsolatedMessages(failed.channel, failed.first, middle))
        pieces.append(IsolatedMessages(failed.channel, middle + 1, failed.last))
        self._isolated[failed.channel] = sorted(pieces, key=lambda piece: piece.first)


def _overlap(one: FailedBatch | IsolatedMessages, other: FailedBatch) -> bool:
    return one.first <= other.last and other.first <= one.last


def _without(isolated: IsolatedMessages, failed: FailedBatch) -> Iterator[IsolatedMessages]:
    """Yield the messages of `isolated` that are not among `failed`."""
    if not _overlap(isolated, failed):
        yield isolated
        return
    if isolated.first < failed.first:
        yield replace(isolated, last=failed.first - 1)
    if isolated.last > failed.last:
        yield replace(isolated, first=failed.last + 1)
