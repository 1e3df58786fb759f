"""The records of an edited snapshot, where no run shows them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from cutline import Snapshot
from cutline.snapshot.editing.mended_snapshot import MendedSnapshot
from cutline.snapshot.editing.rows import RowEdits
from cutline.snapshot.keyed.encoding import _FREED_ROWS
from cutline.snapshot.keyed.kinds import StateKind
from cutline.snapshot.keyed.rows import StateSpec
from cutline.snapshot.plan.topology import KEY_GROUPS
from cutline.snapshot.stored.certificate import ChannelWaves
from cutline.snapshot.stored.memory_files import MemoryFiles
from cutline.snapshot.stored.run_store import RunStore
from tests.snapshot import sample
from tests.snapshot.keyed.histories import encoded
from tests.snapshot.sample import PQ, QP


@pytest.mark.parametrize(
    ("where", "waves"),
    [
        (lambda message: message in ((4, "four"), {"x": 6}), ((5, 1), (8, 2))),
        (lambda message: message in ("three", (4, "four")), ((8, 2),)),
        (lambda message: True, None),
    ],
)
def test_waves_stay_with_their_messages(
    where: Callable[[Any], bool], waves: tuple[tuple[int, int], ...] | None
) -> None:
    """An edited channel has them by the new numbers of what is left. Other channels keep theirs (PROTOCOL 6.11)."""
    p, q = sample.records()
    back = (ChannelWaves(QP, ((2, 1),)),)
    records = (replace(p, waves=back), replace(q, waves=(ChannelWaves(PQ, ((4, 1), (8, 2))),)))
    store = RunStore(MemoryFiles({}), sample.RUN)
    snapshot = Snapshot(sample.manifest(records), store.read_stored, sample.CODEC)
    manifest = MendedSnapshot(snapshot).dropMessages(("P", "Q"), where).store_parts(store, 8, 8_000_000)
    assert [each.waves for each in manifest.records] == [back, None if waves is None else (ChannelWaves(PQ, waves),)]


@pytest.mark.parametrize(("ttl", "expires"), [(None, False), (0.0, False), (5.0, True)])
def test_edited_items_expire_where_those_of_the_program_do(ttl: float | None, expires: bool) -> None:
    """A list whose time-to-live is gone has 0 for it, and its items stay."""
    record = sample.records()[0]
    snapshot = Snapshot(sample.manifest(), RunStore(MemoryFiles({}), sample.RUN).read_stored, sample.CODEC)
    edits = RowEdits(record, snapshot.read_part, sample.CODEC)
    edits.set(StateSpec("items", StateKind.LIST, ttl), "k", ["a", "b"])
    assert [each.expiries is not None for each in edits._tables.values()] == [expires]


@pytest.mark.parametrize(
    ("spec", "value", "count"),
    [
        (StateSpec("n", StateKind.VALUE, 5.0), 1, 1),
        # more entries than are freed at once, because the entries of a small one are left as they are
        (StateSpec("ages", StateKind.MAP, 5.0), {str(age): age for age in range(_FREED_ROWS + 1)}, _FREED_ROWS + 1),
    ],
)
def test_edited_rows_can_be_written_twice(spec: StateSpec, value: Any, count: int) -> None:
    """Encoding empties the rows that it is given, and an edited snapshot may be written under several names."""
    record = replace(sample.records()[0], groups=(0, KEY_GROUPS))
    snapshot = Snapshot(sample.manifest(), RunStore(MemoryFiles({}), sample.RUN).read_stored, sample.CODEC)
    edits = RowEdits(record, snapshot.read_part, sample.CODEC)
    edits.set(spec, "k", value)
    first, second = (encoded(edits.captured()) for _ in range(2))
    assert second == first and first.rows.num_rows == count
