"""The cold tier over RocksDB, with its real thread."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import rule, run_state_machine_as_test

from cutline.snapshot.keyed.cold_tier import ColdLimits, ColdTier
from cutline.snapshot.keyed.heap import HeapTier
from cutline.snapshot.keyed.row_store import RowStore, Writer
from cutline.snapshot.keyed.tier import Tier
from cutline.state_backends.rocksdb import Database, RocksDBMemory
from cutline.state_backends.writer_thread import WriterThread
from tests.run_size import scaled
from tests.snapshot.keyed.conformance import TierMachine

pytest.importorskip("rocksdict")

_MEMORY_BYTES = 8 * 1024 * 1024


class _EitherMachine(TierMachine):
    """Restores go to either tier in turn, so each reads what the other has captured."""

    @rule()
    def other_tier(self) -> None:
        self.capture()
        self.timers = dict(self.history[-1][2])  # a timer without a key is no row
        self.make_tier.turn()  # type: ignore[attr-defined]
        self.open()


def test_rocksdb_keeps_what_dicts_keep(tmp_path: Path) -> None:
    """The suite of all tiers over RocksDB and the heap in turn. Nothing is left behind."""
    memory, numbers = RocksDBMemory(_MEMORY_BYTES), itertools.count()

    class Maker:
        makes_heap = False

        def turn(self) -> None:
            self.makes_heap = not self.makes_heap

        def __call__(self) -> Tier:
            return (
                HeapTier()
                if self.makes_heap
                else ColdTier(
                    self.open_store,
                    ColdLimits(memtable_rows=4, cached_rows=6, checked_keys=1, near_timers=4, loaded_timers=2),
                )
            )

        def open_store(self, _: object) -> tuple[RowStore, Writer]:
            return Database(memory, tmp_path, f"1-node-{next(numbers)}"), WriterThread("node", lambda: None)

    machine = type("Machine", (_EitherMachine,), {"make_tier": Maker()})
    # Nothing is shrunk, because the thread makes each run another one.
    phases = (Phase.explicit, Phase.generate)
    chosen = settings(max_examples=scaled(30), stateful_step_count=40, deadline=None, phases=phases)
    run_state_machine_as_test(machine, settings=chosen)
    assert next(numbers) > 1
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]
    assert not [thread for thread in threading.enumerate() if thread.name == "node"]
