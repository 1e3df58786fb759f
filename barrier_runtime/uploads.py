"""Stores what subtasks took, beside processing, and reads what they restore. Threads; no protocol."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain, islice

from barrier_runtime.gathering import Gathering, Given
from channels.limits import CONTROL_BYTES_MAX
from snapshot.channel.frame import Frame
from snapshot.channel.kept_memory import KeptMemory
from snapshot.coordinator.control import Deploy, RestoredSubtask, SnapshotAcknowledged, SnapshotDeclined
from snapshot.ids import ChannelId, Subtask
from snapshot.stored.contribution import parts_of, record_of
from snapshot.stored.part import Handle, decode_frames
from snapshot.subtask.assembly import RestoredChannels
from snapshot.subtask.reports import SnapshotTaken
from state_backends.store import RunStore

#: Stores at work at one time in a worker: enough to hide an object store's round trips.
STORAGE_THREADS = 4


#: What of one subtask may travel inside its acknowledgement: what a memory backend takes of it. Half of what
#: one control message holds, so that names and numbers fit beside it. They come back in `Deploy`, which never puts
#: more than was acknowledged at one time into one message (`snapshot.coordinator.instalments`).
INLINE_TOTAL_BYTES_MAX = CONTROL_BYTES_MAX // 2


#: What the coordinator is told of what a subtask gave.
StoredMessage = SnapshotAcknowledged | SnapshotDeclined


class RestoredParts:
    """The bytes that one incarnation starts from, proved, or why they could not be had."""

    def __init__(self, deploy: Deploy) -> None:
        self.deploy = deploy
        self.states: dict[Subtask, memoryview | None] = {}
        self.channels: dict[Subtask, RestoredChannels] = {}
        self.error: Exception | None = None


class Storage:
    """The worker's threads for storage. Results are collected by `take`, after `wake` was called.

    Parameters
    ----------
    store : RunStore
    wake : callable
        Called on a storage thread when there is something to take.
    """

    def __init__(self, store: RunStore, wake: Callable[[], None]) -> None:
        #: of the copies that are to be stored
        self.memory = KeptMemory()
        self._store = store
        self._wake = wake
        self._pool = ThreadPoolExecutor(STORAGE_THREADS, thread_name_prefix="cutline-storage")
        # Of its own: a restore must not wait for uploads of what was just dropped.
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="cutline-restore")
        #: that was deployed last; what others uploaded is of no use any more
        self._incarnation = 0
        self._gathering = Gathering(0)
        self._done: deque[tuple[StoredMessage, ...] | RestoredParts] = deque()

    def upload(self, taken: SnapshotTaken, incarnation: int) -> None:
        """Store all parts of `taken`, with those of other subtasks; only when all are durable are they acknowledged."""
        assert incarnation == self._incarnation
        if together := self._gathering.add(taken, time.monotonic()):
            self._pool.submit(self._upload, together, incarnation)

    def hurry(self) -> None:
        """Store what has waited long for other subtasks; keep no memory in vain. To be called now and then."""
        now = time.monotonic()
        for together in self._gathering.overdue(now):
            self._pool.submit(self._upload, together, self._incarnation)
        self.memory.look(now)

    def settle(self, floor: int) -> None:
        """Nothing below `floor` is to be stored any more."""
        self._gathering.settle(floor)

    def read(self, deploy: Deploy) -> None:
        """Read and prove everything that `deploy` names."""
        self._incarnation = deploy.incarnation
        self._gathering = Gathering(len(deploy.subtasks))
        self.memory.give_back()  # what is restored needs as much
        self._reader.submit(self._read, deploy)

    def take(self) -> tuple[StoredMessage, ...] | RestoredParts | None:
        """What was done first of all that is not taken: the coordinator is to be told, or the worker restores it.

        None: nothing is. What is left brings no other `wake`.
        """
        return self._done.popleft() if self._done else None

    def close(self) -> None:
        """Start nothing more. Does not wait: the process leaves anyway."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._reader.shutdown(wait=False, cancel_futures=True)

    def _upload(self, together: list[Given], incarnation: int) -> None:
        if incarnation != self._incarnation:
            return
        messages: list[StoredMessage] = []
        try:
            parts = [parts_of(given.taken, self._store.run, incarnation) for given in together]
            handles = iter(self._store.put_parts(list(chain.from_iterable(parts))))
            for given, own in zip(together, parts, strict=True):
                messages.append(_acknowledgement(given, incarnation, list(islice(handles, len(own)))))
        except Exception as error:  # noqa: BLE001  # whatever it is, out of memory too: somebody waits for an answer
            messages = [_refusal(given.taken, incarnation, error) for given in together]
        self._finish(tuple(messages))

    def _read(self, deploy: Deploy) -> None:
        parts = RestoredParts(deploy)
        try:
            for restored in deploy.subtasks:
                parts.states[restored.subtask] = self._state(restored)
                parts.channels[restored.subtask] = self._channels(restored)
        except Exception as error:  # noqa: BLE001  # likewise
            parts.error = error
        self._finish(parts)

    def _state(self, restored: RestoredSubtask) -> memoryview | None:
        return None if restored.state is None else self._store.read_part(restored.state)

    def _channels(self, restored: RestoredSubtask) -> RestoredChannels:
        frames: dict[ChannelId, tuple[Frame, ...]] = {}
        for handle in restored.channel_parts:
            assert handle.channel is not None
            frames[handle.channel] = frames.get(handle.channel, ()) + self._frames(handle)
        return RestoredChannels(dict(restored.processed), frames, dict(restored.sent))

    def _frames(self, handle: Handle) -> tuple[Frame, ...]:
        return tuple(decode_frames(handle, self._store.read_part(handle)))

    def _finish(self, result: tuple[StoredMessage, ...] | RestoredParts) -> None:
        self._done.append(result)
        self._wake()


def _acknowledgement(given: Given, incarnation: int, handles: list[Handle]) -> StoredMessage:
    taken = given.taken
    inline_bytes = sum(len(handle.inline or b"") for handle in handles)
    if inline_bytes > INLINE_TOTAL_BYTES_MAX:
        return _refusal(
            taken,
            incarnation,
            f"{inline_bytes:,} bytes of state and messages are too many to travel to the coordinator "
            f"(inline_total_bytes_max is {INLINE_TOTAL_BYTES_MAX:,}). With a MemoryBackend all parts do: use a "
            "FileSystemBackend or an ObjectStoreBackend; with these only up to inlineBytesMax of a worker do: lower it",
        )
    spent = replace(taken.spent, upload=time.monotonic() - given.at)
    return SnapshotAcknowledged(incarnation, taken.snapshot_id, record_of(taken, incarnation, handles), spent)


def _refusal(taken: SnapshotTaken, incarnation: int, why: object) -> StoredMessage:
    reason = f"{taken.subtask} could not be stored: {why}"
    return SnapshotDeclined(incarnation, taken.snapshot_id, taken.subtask, reason)
