"""Stores what subtasks took, beside processing, and reads what they restore. Threads; no protocol."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from channels.limits import CONTROL_BYTES_MAX
from snapshot.channel.frame import Frame
from snapshot.coordinator.control import Deploy, RestoredSubtask, SnapshotAcknowledged, SnapshotDeclined
from snapshot.errors import SnapshotAborted
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


def _refuse_too_much(inline_bytes: int) -> None:
    if inline_bytes > INLINE_TOTAL_BYTES_MAX:
        raise SnapshotAborted(
            f"{inline_bytes:,} bytes of state and messages are too many to travel to the coordinator "
            f"(inline_total_bytes_max is {INLINE_TOTAL_BYTES_MAX:,}). With a MemoryBackend all parts do: use a "
            "FileSystemBackend or an ObjectStoreBackend; with these only up to inlineBytesMax of a subtask do: lower it"
        )


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
        self._store = store
        self._wake = wake
        self._pool = ThreadPoolExecutor(STORAGE_THREADS, thread_name_prefix="cutline-storage")
        # Of its own: a restore must not wait for uploads of what was just dropped.
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="cutline-restore")
        #: that was deployed last; what others uploaded is of no use any more
        self._incarnation = 0
        self._done: deque[SnapshotAcknowledged | SnapshotDeclined | RestoredParts] = deque()

    def upload(self, taken: SnapshotTaken, incarnation: int) -> None:
        """Store all parts of `taken`; only when all are durable is it acknowledged."""
        self._pool.submit(self._upload, taken, incarnation, time.monotonic())

    def read(self, deploy: Deploy) -> None:
        """Read and prove everything that `deploy` names."""
        self._incarnation = deploy.incarnation
        self._reader.submit(self._read, deploy)

    def take(self) -> SnapshotAcknowledged | SnapshotDeclined | RestoredParts | None:
        """What was done first of all that is not taken; None: nothing is. What is left brings no other `wake`."""
        return self._done.popleft() if self._done else None

    def close(self) -> None:
        """Start nothing more. Does not wait: the process leaves anyway."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._reader.shutdown(wait=False, cancel_futures=True)

    def _upload(self, taken: SnapshotTaken, incarnation: int, taken_at: float) -> None:
        if incarnation != self._incarnation:
            return
        message: SnapshotAcknowledged | SnapshotDeclined
        try:
            handles = self._store.put_parts(parts_of(taken, self._store.run, incarnation))
            _refuse_too_much(sum(len(handle.inline or b"") for handle in handles))
            record = record_of(taken, incarnation, handles)
            spent = replace(taken.spent, upload=time.monotonic() - taken_at)
            message = SnapshotAcknowledged(incarnation, taken.snapshot_id, record, spent)
        except Exception as error:  # noqa: BLE001  # whatever it is, out of memory too: somebody waits for an answer
            message = SnapshotDeclined(
                incarnation, taken.snapshot_id, taken.subtask, f"{taken.subtask} could not be stored: {error}"
            )
        self._finish(message)

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

    def _finish(self, result: SnapshotAcknowledged | SnapshotDeclined | RestoredParts) -> None:
        self._done.append(result)
        self._wake()
