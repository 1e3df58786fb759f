"""The driver's view of the coordinator's memory, before and after the files are brought home."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from cutline import MemoryBackend
from cutline.barrier_runtime.driver.coordinator_client import CoordinatorMemory


def away(home: MemoryBackend) -> tuple[CoordinatorMemory, MemoryBackend]:
    """Return the view of a coordinator's memory with one file, and that memory."""
    theirs = MemoryBackend()
    theirs.put_if_absent("run/a", [b"theirs"])
    client = cast(Any, SimpleNamespace(files=theirs.files, get=theirs.get))
    return CoordinatorMemory(client, home, "run"), theirs


def test_only_the_coordinator_writes_its_memory() -> None:
    """A file that the driver wrote would never reach the coordinator."""
    home = MemoryBackend()
    memory, _ = away(home)
    assert (memory.files("run"), memory.get("run/a"), memory.exists("run/b")) == (["run/a"], b"theirs", False)
    assert memory.get("run/a", 1, 2) == b"he"
    with pytest.raises(OSError, match="run/b can only be written by the coordinator"):
        memory.put_if_absent("run/b", [b"x"])
    with pytest.raises(OSError, match="run/a can only be removed by the coordinator"):
        memory.delete("run/a")
    assert home.files() == []


def test_files_at_home_are_those_of_the_coordinator() -> None:
    """Files that the coordinator has removed go. Files of other runs stay."""
    home = MemoryBackend()
    for path in ("run/a", "run/removed", "other/a"):
        home.put_if_absent(path, [b"theirs"])
    memory, theirs = away(home)
    theirs.put_if_absent("run/b", [b"new"])
    memory.bring_home()
    theirs.delete("run/a", "run/b")
    assert home.files() == ["other/a", "run/a", "run/b"]
    assert (memory.files("run"), memory.get("run/b"), memory.exists("run/b")) == (["run/a", "run/b"], b"new", True)


def test_the_second_writer_at_home_loses() -> None:
    """The first write stays, as in every backend."""
    home = MemoryBackend()
    memory, _ = away(home)
    memory.bring_home()
    assert not memory.put_if_absent("run/a", [b"other"])
    assert [memory.put_if_absent("run/b", [data]) for data in (b"first", b"second")] == [True, False]
    assert [home.get(path) for path in ("run/a", "run/b")] == [b"theirs", b"first"]
    memory.delete("run/a")
    assert home.files() == ["run/b"]
