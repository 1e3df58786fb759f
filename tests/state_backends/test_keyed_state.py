"""Where the rows of keyed state are: the folder on the local disk, and how many of them are in memory."""

from __future__ import annotations

import os
import tempfile
from functools import partial
from pathlib import Path

import pytest

from cutline.snapshot.ids import Subtask
from cutline.snapshot.keyed.cold_tier import ColdTier
from cutline.state_backends.keyed_state import MEMORY_BYTES_MIN, RocksDBState
from tests.snapshot.keyed.keyed_subtask import KeyedSubtask

pytest.importorskip("rocksdict")


def test_the_memory_of_the_settings_bounds_the_rows_of_a_subtask(tmp_path: Path) -> None:
    """Changed rows go to the database before a subtask holds its part of that memory."""
    tier_of = RocksDBState(MEMORY_BYTES_MIN, str(tmp_path)).tiers(1, 2, lambda: None)
    tier = tier_of(Subtask("node"))
    assert isinstance(tier, ColdTier)
    subtask = KeyedSubtask(lambda: tier)
    state = subtask.value()
    subtask.states.opened()
    state.updateAll(["small"], ["x"])
    tier.turn()
    assert not tier.memtables
    large = "x" * (MEMORY_BYTES_MIN // 64)
    state.updateAll(list(range(8)), [large] * 8)
    tier.turn()
    assert tier.memtables, "half of what a subtask may hold is changed, and none of it goes to the database"
    assert state.getAll([0, "small"]) == [large, "x"]
    tier.close()


def test_users_of_one_host_have_folders_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no folder is set: what one user made there is closed to others."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for user in (1000, 1001):
        monkeypatch.setattr(os, "getuid", partial(int, user))
        tier = RocksDBState().tiers(1, 1, lambda: None)(Subtask("node"))
        assert isinstance(tier, ColdTier)
        assert tier.store
        tier.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cutline-keyed-state-1000", "cutline-keyed-state-1001"]


def test_all_databases_are_below_one_folder(tmp_path: Path) -> None:
    """A folder of its own below the one that is set, so that others may use that. Nothing else is left in it."""
    settings = RocksDBState(folder=str(tmp_path))
    tier = settings.tiers(3, 1, lambda: None)(Subtask("node", 1))
    assert isinstance(tier, ColdTier)
    assert tier.store is not None
    [folder] = tmp_path.iterdir()
    assert folder.name == "cutline-keyed-state"
    assert [path.name.partition(".")[0] for path in folder.iterdir() if path.is_dir()] == ["3-node-1"]
    tier.close()
    assert not [path for path in folder.iterdir() if path.is_dir()]
