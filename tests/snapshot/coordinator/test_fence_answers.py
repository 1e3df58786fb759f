"""The store's side of the fence: a store that contradicts itself is an error, not an answer."""

from __future__ import annotations

import pytest

from cutline.snapshot.coordinator.fence_answers import perform
from cutline.snapshot.coordinator.fence_events import WriteBase
from cutline.snapshot.stored.history import Base
from cutline.snapshot.stored.memory_files import MemoryFiles
from cutline.snapshot.stored.run_store import RunStore


def test_another_base_of_a_claim_is_an_error() -> None:
    """Only the holder of a claim writes its base. The same base may be written again, because an answer may be lost."""
    store = RunStore(MemoryFiles({}), "run")
    for _ in range(2):
        perform(store, WriteBase(Base(1, None)), None)
    with pytest.raises(OSError, match="memory:: another base of claim 1 is there already"):
        perform(store, WriteBase(Base(1, 5)), None)
    assert store.bases() == (Base(1, None),)
