"""Invariants judged on what is stored: once each, and whatever becomes of a snapshot the later ones are judged."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from typing import Any

import pytest

from barrier_runtime.driver.invariant_monitor import InvariantMonitor
from snapshot.errors import RunFailed
from snapshot.stored.layout import manifest_path
from snapshot.stored.run_store import RunStore
from state_backends import MemoryBackend
from tests.snapshot import sample

#: Ids of three snapshots.
FIRST, SECOND, THIRD = 7_000_001, 7_000_002, 7_000_003
ALL = (FIRST, SECOND, THIRD)


class Moody(MemoryBackend):
    """Damages, or fails to read, one manifest."""

    def __init__(self) -> None:
        super().__init__()
        self.damaged = self.unreachable = ""
        self.error: Exception = OSError(errno.EIO, os.strerror(errno.EIO))

    def _get(self, path: str, offset: int, size: int | None) -> bytes:
        if self.unreachable and path.endswith(self.unreachable):
            raise self.error
        data = super()._get(path, offset, size)
        return data[:-1] + bytes([data[-1] ^ 1]) if self.damaged and path.endswith(self.damaged) else data


class Judge:
    """Three snapshots, and an invariant that remembers which it was asked about."""

    def __init__(self, *, holds: Any = True) -> None:
        self.backend = Moody()
        self.asked: list[int] = []
        store = RunStore(self.backend, sample.RUN)
        for snapshot_id in ALL:
            assert store.write_manifest(sample.manifest(snapshot_id=snapshot_id))

        def invariant(snapshot: Any) -> Any:
            self.asked.append(snapshot.id)
            return holds

        self._verdicts = InvariantMonitor(store, sample.CODEC, {"one": invariant})

    def judge(self, ids: Sequence[int] = ALL) -> dict[str, Any]:
        """Judge, and give the verdict."""
        self._verdicts.judge(ids)
        return self._verdicts.as_status()["one"]


def test_each_is_judged_once() -> None:
    """However often the monitor looks."""
    judge = Judge()
    assert judge.judge(()) == {"holds": None, "snapshot": 0, "violations": [], "unreadable": []}
    judge.judge(ALL[:1])
    judge.judge()
    assert judge.judge() == {"holds": True, "snapshot": THIRD, "violations": [], "unreadable": []}
    assert judge.asked == list(ALL)


def test_violations_are_kept() -> None:
    """Each with its snapshot."""
    assert Judge(holds=False).judge() == {
        "holds": False, "snapshot": THIRD, "violations": list(ALL), "unreadable": [],
    }  # fmt: skip


@pytest.mark.parametrize("damaged", ALL)
def test_a_damaged_snapshot_is_named_once_and_the_others_are_judged(
    damaged: int, caplog: pytest.LogCaptureFixture
) -> None:
    """It stays damaged: one warning, one line in the status, and nothing waits for it."""
    judge = Judge()
    judge.backend.damaged = manifest_path(damaged)
    for _ in range(3):
        verdict = judge.judge()
    rest = [each for each in ALL if each != damaged]
    assert judge.asked == rest
    assert verdict == {"holds": True, "snapshot": rest[-1], "violations": [], "unreadable": [damaged]}
    assert caplog.text.count(f"snapshot {damaged} cannot be judged: ") == len(caplog.records) == 1


@pytest.mark.parametrize("error", [OSError(errno.EIO, "no disk"), RunFailed("its coordinator did not answer")])
def test_what_cannot_be_read_now_is_judged_later(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    """In order, and the log has it once however long it takes."""
    judge = Judge()
    judge.backend.unreachable, judge.backend.error = manifest_path(SECOND), error
    for _ in range(3):
        assert judge.judge()["snapshot"] == FIRST
    judge.backend.unreachable = ""
    assert judge.judge() == {"holds": True, "snapshot": THIRD, "violations": [], "unreadable": []}
    assert judge.asked == list(ALL)
    assert caplog.text.count(f"snapshot {SECOND} is not judged yet: ") == len(caplog.records) == 1


def test_what_retention_removed_is_skipped(caplog: pytest.LogCaptureFixture) -> None:
    """It was listed and is gone: nobody needs to know."""
    judge = Judge()
    assert judge.judge((FIRST, FIRST + 9_000_000, THIRD))["snapshot"] == THIRD
    assert caplog.records == []
