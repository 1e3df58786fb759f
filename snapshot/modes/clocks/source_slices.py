"""The slices of a source that a negotiated clock may still name, and where a snapshot begins to read again."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Final

from cutline.snapshot.channel.output_buffer import BackpressureFlag

#: Slices that a source keeps, some 100 bytes each. Above them it waits for the snapshot that is pending, or asks for
#: one, so that a store that is away does not fill memory with their numbers.
SLICES_MAX: Final = 1_000_000


class SourceSlices:
    """The slices of one source.

    Parameters
    ----------
    backpressure : BackpressureFlag
        Closed while there are too many slices, and a snapshot is pending.
    slices_max : int
    """

    def __init__(self, backpressure: BackpressureFlag, slices_max: int = SLICES_MAX) -> None:
        self._backpressure = backpressure
        self._slices_max = slices_max
        self._count = 0
        self._is_pending = False
        self._is_closed = False
        #: {partition: (number, offset at its begin) of its slices}
        self._slices: dict[str, deque[tuple[int, Any]]] = {}
        #: {partition: number of its next slice}
        self._numbers: dict[str, int] = {}
        #: the same at the last cut, and its snapshot; and at the cut of the last snapshot that was published
        self._at_cut: tuple[int, dict[str, int]] = (0, {})
        self._at_published: dict[str, int] = {}

    def add(self, partition: str, start: Any) -> int:
        """Return the number of the slice that is read next, from offset `start` on."""
        number = self._numbers.get(partition, 0)
        self._numbers[partition] = number + 1
        self._slices.setdefault(partition, deque()).append((number, start))
        self._count += 1
        self._hold_back()
        return number

    def cut(self, snapshot_id: int) -> None:
        """Note that what is added from now on is after the marker of a snapshot."""
        self._at_cut = snapshot_id, dict(self._numbers)
        self._set_pending(True)

    def settle(self, min_snapshot_id: int) -> None:
        """Note that all snapshots below an id are over."""
        if self._at_cut[0] < min_snapshot_id:
            self._set_pending(False)

    def published(self, snapshot_id: int) -> None:
        """Note what all aggregates have got: the slices before the marker of a published snapshot.

        Relays may drop messages, so that no aggregate knows of a slice, and no clock names it.
        """
        number, numbers = self._at_cut
        if number == snapshot_id:
            self._at_published = numbers

    def offsets_at(self, clock: Mapping[str, int], offsets: Mapping[str, Any]) -> dict[str, Any]:
        """Return the offsets of the slices that are the first above a clock; those of `offsets` where none is.

        Forgets the slices below the clock, because clocks never go back.

        Parameters
        ----------
        clock : mapping of str to int
            ``{partition: number of a slice}``.
        offsets : mapping
            The offsets after all slices.
        """
        found = dict(offsets)
        for partition, slices in self._slices.items():
            number = max(clock.get(partition, 0), self._at_published.get(partition, 0))
            while slices and slices[0][0] < number:
                slices.popleft()
                self._count -= 1
            if slices:
                found[partition] = slices[0][1]
        self._hold_back()
        return found

    @property
    def needs_snapshot(self) -> bool:
        """Return whether only another snapshot can free slices."""
        return self._count >= self._slices_max and not self._is_pending

    def _set_pending(self, is_pending: bool) -> None:
        self._is_pending = is_pending
        self._hold_back()

    def _hold_back(self) -> None:
        is_closed = self._count >= self._slices_max and self._is_pending
        if is_closed is not self._is_closed:
            self._is_closed = is_closed
            self._backpressure.closed += 1 if is_closed else -1
