"""The slices that a source of a negotiated clock keeps, and where a snapshot begins to read again."""

from __future__ import annotations

from cutline.snapshot.channel.output_buffer import BackpressureFlag
from cutline.snapshot.modes.clocks.source_slices import SourceSlices


class Read:
    """A source that is read by hand. Each slice has one item."""

    def __init__(self, slices_max: int = 100) -> None:
        self.flag = BackpressureFlag()
        self.slices = SourceSlices(self.flag, slices_max)
        self.offset = 0

    def read(self, count: int) -> None:
        """Read so many slices."""
        for _ in range(count):
            assert self.slices.add("a", self.offset) == self.offset
            self.offset += 1

    def cut(self, snapshot_id: int, **clock: int) -> int:
        """Return the offset of a snapshot with a clock."""
        offset: int = self.slices.offsets_at(clock, {"a": self.offset})["a"]
        self.slices.cut(snapshot_id)
        return offset

    def waits(self) -> bool:
        """Whether the source may not be polled."""
        return bool(self.flag.closed)


def test_a_snapshot_reads_again_from_its_clock() -> None:
    """From the first slice that is not below it, and from behind all where none is."""
    source = Read()
    source.read(5)
    assert [source.cut(1, a=3), source.cut(2, a=5)] == [3, 5]


def test_a_slice_that_no_aggregate_has_seen_is_not_read_again_for_ever() -> None:
    """Relays may drop all of it. Behind a published snapshot all aggregates have what was ahead of its marker."""
    source = Read()
    source.read(5)
    assert source.cut(1) == 0
    source.slices.published(7)  # of another incarnation
    source.read(2)
    assert source.cut(2) == 0, "snapshot 1 may have been aborted, with its markers on their way"
    source.slices.published(2)
    source.read(1)
    assert source.cut(3) == 7


def test_a_source_with_many_slices_waits_for_a_snapshot() -> None:
    """For the one that is pending, as while the store is away; else it asks for one. A later clock lets it go on."""
    source = Read(slices_max=4)
    seen = []
    for deed in (
        lambda: source.read(3),
        lambda: source.read(1),
        lambda: source.cut(1),
        lambda: source.slices.settle(1),
        lambda: source.slices.settle(2),
        lambda: source.cut(2, a=2),
        lambda: source.read(2),
        lambda: source.slices.settle(3),
    ):
        deed()
        seen.append((source.waits(), source.slices.needs_snapshot))
    nothing, asks, waits = (False, False), (False, True), (True, False)
    assert seen == [nothing, asks, waits, waits, asks, nothing, waits, asks]
