"""A source that reads its input by slices, so that a replay can read the same slices again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, final

from cutline.snapshot.error_text import shown
from cutline.snapshot.node import END, Context, End, Source


class ReplayableSource(Source):
    """A source that reads partitions by offsets. A subclass says what there is, and reads a slice at a call.

    `poll`, `snapshotState` and `restoreState` are final. The state is ``{partition: offset}``, so the source can be
    rescaled. An offset is any value that a snapshot can store. ::

        class Lines(ReplayableSource):
            def __init__(self, lines): self.lines = lines          # {partition: [line, ...]}
            def partitions(self): return sorted(self.lines)
            def first(self, partition): return 0
            def available(self, partition, start):
                end = len(self.lines[partition])
                return END if start == end else min(start + 100, end)
            def read(self, partition, start, stop, context):
                context.sendAll(self.lines[partition][start:stop])
    """

    guarantee = "exactly_once"

    #: Seconds until `available` is called again when no partition has anything.
    pollSeconds: ClassVar[float] = 0.05

    #: Whether partitions are read one after the other, each to its END. Else a slice of each is read in turn.
    sequential: ClassVar[bool] = False

    #: {partition: offset}; None before the first poll of a fresh source
    _offsets: dict[str, Any] | None = None
    #: partitions that have not ended, in the order of their turns; None before the first poll
    _open: list[str] | None = None
    #: called with a partition and an offset before each read, or None
    on_slice: Callable[[str, Any], None] | None = None
    #: what the last poll has read, or None
    last_read: tuple[str, Any] | None = None

    def partitions(self) -> Sequence[str]:
        """Return the names of the partitions, as `Source.partitions`."""
        raise NotImplementedError

    def first(self, partition: str) -> Any:
        """Return the offset at which a partition begins."""
        raise NotImplementedError

    def available(self, partition: str, start: Any) -> Any:
        """Return the offset up to which one `read` goes now, from `start` on. Must not block.

        Returns
        -------
        object
            The offset after the last item of the read. None: nothing yet. `END`: never more. `start` itself is an
            error, because the read would be empty for ever.
        """
        raise NotImplementedError

    def read(self, partition: str, start: Any, stop: Any, context: Context) -> None:
        """Send the items of a partition from `start` up to `stop`: the same messages in the same order at each call.

        Called again with the same arguments after a failure. Whatever `available` has ever returned can be read.
        """
        raise NotImplementedError

    def compactInput(self, partition: str, stop: Any) -> Iterable[Any]:
        """Return messages that stand for all of a partition up to `stop`. Needed only to compact a log (MODES).

        All other nodes get these messages in the place of what `read` has sent, and must come to the same states.
        """
        raise NotImplementedError

    @final
    def poll(self, context: Context) -> float | End | None:
        """Read one slice of the next partition that has anything."""
        self.last_read = None
        self._begin(context)
        assert self._open is not None
        for partition in list(self._open):
            stop = self.available(partition, self._offset(partition))
            if stop is END:
                self._open.remove(partition)
                continue
            if not self.sequential:
                self._open.append(self._open.pop(0))
            if stop is not None:
                self._read(partition, stop, context)
                return None
            if self.sequential:
                break
        return self.pollSeconds if self._open else END

    @final
    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        """Return ``{partition: offset}``."""
        return dict(self._offsets or {})

    @final
    def restoreState(self, state: Any) -> None:
        """Take the offsets over."""
        self._offsets = dict(state)

    def read_again(self, partition: str, stop: Any, context: Context) -> None:
        """Read the slice that begins where the partition is now. Called by a replay."""
        self._begin(context)
        self._read(partition, stop, context)

    def send_compacted(self, partition: str, stop: Any, messages: Iterable[Any], context: Context) -> None:
        """Send messages that stand for a partition up to `stop`, or some of them, and go on from there."""
        self._begin(context)
        assert self._offsets is not None
        for message in messages:
            context.send(message)
        self._offsets[partition] = stop

    def end_partitions(self) -> None:
        """Let the next poll return END, because the input had ended for which compacted messages stand."""
        self._open = []

    def _begin(self, context: Context) -> None:
        """Put each partition of this subtask in its turn. New partitions begin with `first`."""
        if self._open is None:
            self._open = list(context.partitions)
            # Others were dropped. Listed again, one begins anew, perhaps at another subtask.
            restored = self._offsets or {}
            self._offsets = {each: restored[each] for each in self._open if each in restored}

    def _offset(self, partition: str) -> Any:
        assert self._offsets is not None
        if partition not in self._offsets:
            self._offsets[partition] = self.first(partition)
        return self._offsets[partition]

    def _read(self, partition: str, stop: Any, context: Context) -> None:
        start = self._offset(partition)
        if stop == start:
            raise ValueError(f"available({partition!r}, {shown(start)}) returned its start: a read would be empty")
        if self.on_slice is not None:
            self.on_slice(partition, start)
        self.read(partition, start, stop, context)
        assert self._offsets is not None
        self._offsets[partition] = stop
        self.last_read = (partition, stop)
