"""Decide when to restart after a failure, and when to give up."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from cutline.snapshot.coordinator.bounded_history import BoundedHistory
from cutline.snapshot.coordinator.repeated_failures import Isolated, Poisoned, RepeatedFailures
from cutline.snapshot.failed_event import FailedEvent, Suspect, Suspects
from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.plan.topology import Topology
from cutline.snapshot.stored.certificate import SubtaskRecord


@dataclass(frozen=True)
class RestartPolicy:
    """Exponential delay between a failure and the restore after it.

    Restarts without a published snapshot between them count as one row. Messages with a dead-letter edge count once
    each, as a row of their channel, because each channel may have such messages.

    Parameters
    ----------
    maxRestarts : int or None
        Restarts in a row before the run fails, or None for no limit.
    firstDelay : float
        Seconds before the first restart of a row.
    delay : float
        Seconds before the second restart of a row.
    multiplier : float
        Factor from each delay to the next delay.
    maxDelay : float
        Longest delay in seconds.
    poisonAfter : int or None
        Failures in a row of the same message, batch or timer after which the run fails, or after which the message is
        sent along the edge that `Graph.connect(onError=...)` declares. None: failures of one message have no limit of
        their own. Give a larger number, or None, to nodes that fail while an outside service is down.
    """

    maxRestarts: int | None = 10
    firstDelay: float = 0.0
    delay: float = 0.1
    multiplier: float = 2.0
    maxDelay: float = 30.0
    poisonAfter: int | None = 3

    def __post_init__(self) -> None:
        if self.maxRestarts is not None and self.maxRestarts < 0:
            raise ValueError(f"maxRestarts is {self.maxRestarts}; give 0 or more, or None for no limit")
        if self.poisonAfter is not None and self.poisonAfter < 1:
            raise ValueError(f"poisonAfter is {self.poisonAfter}; give 1 or more, or None for no limit")
        if min(self.firstDelay, self.delay, self.maxDelay) < 0 or self.multiplier < 1:
            raise ValueError(f"{self}: delays must not be negative, nor the multiplier below 1")


@dataclass(frozen=True, slots=True)
class Restart:
    """A failure after which the run continued."""

    at: float  #: seconds since the epoch
    reason: str


#: Said of a channel whose messages would have been set aside.
_UNKNOWN = (
    "Messages of {} failed, and none of them was seen again. One whose content and place differ after each restart, "
    "such as by the time at which it was made, is not recognised: take snapshots more often, or add what differs later"
)


@dataclass(frozen=True, slots=True)
class _Row:
    """Restarts in a row."""

    count: int  #: without those of a message that had failed before
    delay: float  #: seconds before the next restart
    next_delay: float


class Restarts:
    """Apply a restart policy to the failures of one run."""

    def __init__(self, policy: RestartPolicy, topology: Topology) -> None:
        self.history: BoundedHistory[Restart] = BoundedHistory()
        #: monotonic seconds before which workers are not deployed again
        self.not_before = 0.0
        #: whether the present failure is counted; its consequences are not counted again
        self.is_counted = False
        self._policy = policy
        self._repeated = RepeatedFailures(topology, policy.poisonAfter)
        #: {channel with a dead-letter edge, or None for all other failures: row}
        self._rows: dict[ChannelId | None, _Row] = {}
        #: rows and history before the last failure if its event is not known, else None
        self._before: tuple[dict[ChannelId | None, _Row], BoundedHistory[Restart]] | None = None

    @property
    def lacks_failed_event(self) -> bool:
        """True if the last failure was counted, and the report that names its event may still come."""
        return self._before is not None

    def note_published(self, snapshot_id: int, records: Collection[SubtaskRecord]) -> None:
        """Start new rows of restarts, because a snapshot was published, and forget what lies before it."""
        self._rows, self._before = {}, None
        self._repeated.note_published(snapshot_id, records)

    def note_stored(self, number: int, record: SubtaskRecord) -> None:
        """Forget what lies before a stored state of one subtask. Its row goes on: the next restart may fail."""
        self._repeated.note_published(number, (record,))

    def note_handled(self, suspect: Suspect, number: int) -> None:
        """Note that a message or a timer was handled that had failed. See `RepeatedFailures.note_handled`."""
        self._repeated.note_handled(suspect, number)

    def suspects(self, subtask: Subtask) -> Suspects:
        """Return what failed at the subtask."""
        return self._repeated.suspects(subtask)

    def count(self, reason: str, now: float, epoch: float, failed_event: FailedEvent | None = None) -> str | None:
        """Count a failure. Return the reason to give up after too many failures in a row, else None.

        A failure after which its messages are isolated begins a new row, because the next restart differs. Repeated
        failures of a message that will be set aside do not count, because `poisonAfter` is their limit.
        """
        policy = self._policy
        self._before = (self._rows, self.history) if failed_event is None else None
        verdict = self._repeated.count(failed_event, reason)
        if isinstance(verdict, Poisoned):
            return verdict.text
        channel = None if verdict is None else verdict.channel
        if isinstance(verdict, Isolated):
            self._rows = {other: row for other, row in self._rows.items() if other != channel}
            self._restart(now, policy.firstDelay, epoch, f"{reason}\n({verdict.text})")
            return None
        is_new = verdict is None or verdict.times == 1
        row = self._rows.get(channel, _Row(0, policy.firstDelay, policy.delay))
        if is_new and policy.maxRestarts is not None and row.count >= policy.maxRestarts:
            text = f"after {row.count} restarts in a row; maxRestarts is {policy.maxRestarts}"
            return f"{reason}\n({text if channel is None else f'{text}. {_UNKNOWN.format(channel)}'})"
        later = min(policy.maxDelay, row.next_delay * policy.multiplier)
        self._rows = {**self._rows, channel: _Row(row.count + is_new, row.next_delay, later)}
        self._restart(now, row.delay, epoch, reason)
        return None

    def blame(self, failed_event: FailedEvent, reason: str, now: float, epoch: float) -> str | None:
        """Count the last failure anew, because its event's report came after that of a consequence."""
        assert self._before is not None
        self._rows, self.history = self._before
        return self.count(reason, now, epoch, failed_event)

    def _restart(self, now: float, delay: float, epoch: float, reason: str) -> None:
        self.is_counted = True
        self.not_before = now + min(self._policy.maxDelay, delay)
        self.history = self.history.add(Restart(epoch, reason))
