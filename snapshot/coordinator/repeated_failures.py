"""Recognise messages and timers that fail again after each restart, and isolate the messages (PROTOCOL 6.6).

The failures of one message count until a published snapshot lies behind the message, whatever was published before.
Of several messages that fail together, such as the rows of a batch, halves are isolated, until one message is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from snapshot.culprit import Culprit, FailedMessages, FailedTimer, IsolatedMessages
from snapshot.ids import ChannelId, Subtask
from snapshot.plan.topology import Topology
from snapshot.stored.certificate import SubtaskRecord

#: timers whose failures are counted; the oldest is forgotten first
_TIMERS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Isolated:
    """The run continues with messages isolated. The text says which, and where they go."""

    text: str


@dataclass(frozen=True, slots=True)
class Poisoned:
    """The run must end, because every restart fails at the same place."""

    text: str


@dataclass(frozen=True, slots=True)
class _Suspect:
    """Messages that failed together, and how often in a row."""

    failed: FailedMessages
    count: int


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
        self._timers: dict[FailedTimer, int] = {}
        self._suspects: dict[ChannelId, list[_Suspect]] = {}
        #: {channel: isolated messages, ascending}
        self._isolated: dict[ChannelId, list[IsolatedMessages]] = {}

    def count(self, culprit: Culprit | None, reason: str) -> Isolated | Poisoned | None:
        """Count a failure. Return None unless the culprit has failed `poison_after` times in a row."""
        match culprit:
            case _ if self._poison_after is None:
                return None
            case None:
                return None
            case FailedTimer():
                return self._count_timer(culprit, self._poison_after, reason)
            case FailedMessages():
                return self._count_messages(culprit, self._poison_after, reason)

    def note_published(self, records: Iterable[SubtaskRecord]) -> None:
        """Forget the messages that lie before a published snapshot, because no restart repeats them."""
        processed = {entry.channel: entry.processed for record in records for entry in record.received}
        for channel in [*self._suspects]:
            kept = [each for each in self._suspects[channel] if each.failed.last > processed.get(channel, 0)]
            self._suspects[channel] = kept
        for channel in [*self._isolated]:
            behind = [each for each in self._isolated[channel] if each.last > processed.get(channel, 0)]
            self._isolated[channel] = behind

    def isolated(self, subtask: Subtask) -> tuple[IsolatedMessages, ...]:
        """Return the isolated messages of the subtask's inputs, ascending in each channel."""
        return tuple(each for channel in self._topology.inputs_of(subtask) for each in self._isolated.get(channel, ()))

    def _count_timer(self, timer: FailedTimer, poison_after: int, reason: str) -> Poisoned | None:
        count = self._timers.pop(timer, 0) + 1
        self._timers[timer] = count
        if len(self._timers) > _TIMERS_MAX:
            del self._timers[next(iter(self._timers))]
        return Poisoned(f"{reason}\n({timer} failed {count} times in a row)") if count >= poison_after else None

    def _count_messages(self, failed: FailedMessages, poison_after: int, reason: str) -> Isolated | Poisoned | None:
        count = self._times(failed)
        if count < poison_after and not self._is_isolated(failed):
            return None
        where = self._topology.edge_of(failed.channel).on_error
        if where is None:
            return Poisoned(
                f"{reason}\n({failed} failed {count} times in a row; RestartPolicy(poisonAfter={poison_after}). "
                f"connect({failed.channel.source.node!r}, {failed.channel.target.node!r}, onError=...) would set "
                "such messages aside)"
            )
        if self._is_set_aside(failed):
            return Poisoned(f"{reason}\n({failed} cannot be set aside to {where!r})")
        self._isolate(failed, reason)
        self._forget(failed)
        if failed.first == failed.last:
            return Isolated(f"{failed} failed for good, and is sent to {where!r}")
        return Isolated(f"{failed} failed together; each half is tried alone")

    def _times(self, failed: FailedMessages) -> int:
        """Count the failure together with those of messages that were among these, and return the count."""
        suspects = self._suspects.setdefault(failed.channel, [])
        same = [each for each in suspects if _overlap(each.failed, failed)]
        count = 1 + max((each.count for each in same), default=0)
        self._suspects[failed.channel] = [each for each in suspects if each not in same] + [_Suspect(failed, count)]
        return count

    def _forget(self, failed: FailedMessages) -> None:
        suspects = self._suspects[failed.channel]
        self._suspects[failed.channel] = [each for each in suspects if not _overlap(each.failed, failed)]

    def _is_isolated(self, failed: FailedMessages) -> bool:
        return any(_overlap(each, failed) for each in self._isolated.get(failed.channel, ()))

    def _is_set_aside(self, failed: FailedMessages) -> bool:
        isolated = self._isolated.get(failed.channel, ())
        return any(each.error is not None and _overlap(each, failed) for each in isolated)

    def _isolate(self, failed: FailedMessages, reason: str) -> None:
        """Isolate each half, or set a single message aside. The rest of a former half stays isolated."""
        pieces = [piece for each in self._isolated.get(failed.channel, ()) for piece in _without(each, failed)]
        if failed.first == failed.last:
            pieces.append(IsolatedMessages(failed.channel, failed.first, failed.last, reason))
        else:
            middle = (failed.first + failed.last) // 2
            pieces.append(IsolatedMessages(failed.channel, failed.first, middle))
            pieces.append(IsolatedMessages(failed.channel, middle + 1, failed.last))
        self._isolated[failed.channel] = sorted(pieces, key=lambda piece: piece.first)


def _overlap(one: FailedMessages | IsolatedMessages, other: FailedMessages) -> bool:
    return one.first <= other.last and other.first <= one.last


def _without(isolated: IsolatedMessages, failed: FailedMessages) -> Iterator[IsolatedMessages]:
    """Yield the messages of `isolated` that are not among `failed`."""
    if not _overlap(isolated, failed):
        yield isolated
        return
    if isolated.first < failed.first:
        yield replace(isolated, last=failed.first - 1)
    if isolated.last > failed.last:
        yield replace(isolated, first=failed.last + 1)
