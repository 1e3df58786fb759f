"""Invariants judged on what is stored: once each, whatever becomes of a snapshot and whatever an invariant does."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import pytest

from benchmarks.live import wait_for
from cutline import MemoryBackend
from cutline.barrier_runtime.driver import invariant_monitor
from cutline.barrier_runtime.driver.invariant_monitor import InvariantMonitor, InvariantQueue
from cutline.snapshot.coordinator import bounded_history
from cutline.snapshot.errors import RunFailed
from cutline.snapshot.stored.layout import manifest_path
from cutline.snapshot.stored.run_store import RunStore
from tests.leaks import LeakCheck
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

    def __init__(self, *, holds: Any = True, **others: Any) -> None:
        self.backend = Moody()
        self.asked: list[int] = []
        store = RunStore(self.backend, sample.RUN)
        for snapshot_id in ALL:
            assert store.write_manifest(sample.manifest(snapshot_id=snapshot_id))

        def invariant(snapshot: Any) -> Any:
            self.asked.append(snapshot.id)
            return holds(snapshot) if callable(holds) else holds

        self.monitor = InvariantMonitor(store, sample.CODEC, {"one": invariant, **others})

    def judge(self, ids: Sequence[int] = ALL) -> dict[str, Any]:
        """Judge, and give the verdict."""
        self.monitor.judge(ids)
        return self.monitor.as_status()["one"]


def ids(violations: Sequence[int], unreadable: Sequence[int]) -> dict[str, Any]:
    """Return what a verdict says of these snapshots."""
    counts = {"violationCount": len(violations), "unreadableCount": len(unreadable)}
    return {"violations": list(violations), "unreadable": list(unreadable), **counts}


MakeJudge: TypeAlias = Callable[..., Judge]


@pytest.fixture
def judges(leak_check: LeakCheck) -> Iterator[MakeJudge]:
    """Makes judges, whose threads end with the test."""
    made = []

    def make(**given: Any) -> Judge:
        made.append(Judge(**given))
        return made[-1]

    yield make
    for judge in made:
        judge.monitor.close()


def test_each_is_judged_once(judges: MakeJudge) -> None:
    """However often the monitor looks."""
    judge = judges()
    assert judge.judge(()) == {"holds": None, "snapshot": 0, "reason": "", **ids([], [])}
    judge.judge(ALL[:1])
    judge.judge()
    assert judge.judge() == {"holds": True, "snapshot": THIRD, "reason": "", **ids([], [])}
    assert judge.asked == list(ALL)


def test_violations_are_kept(judges: MakeJudge) -> None:
    """Each with its snapshot."""
    assert judges(holds=False).judge() == {
        "holds": False, "snapshot": THIRD, "reason": "it returned False", **ids(list(ALL), []),
    }  # fmt: skip


def test_violations_are_bounded_and_counted(leak_check: LeakCheck, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest are listed, and all are counted, of snapshots that are judged and of those that cannot be."""
    monkeypatch.setattr(bounded_history, "HISTORY_MAX", 5)
    backend = Moody()
    store = RunStore(backend, sample.RUN)
    monitor = InvariantMonitor(store, sample.CODEC, {"one": lambda snapshot: False})
    try:
        for snapshot_id in range(1, 18):
            assert store.write_manifest(sample.manifest(snapshot_id=snapshot_id))
            backend.damaged = manifest_path(snapshot_id) if snapshot_id > 9 else ""
            monitor.judge([snapshot_id])
        verdict = monitor.as_status()["one"]
    finally:
        monitor.close()
    assert (verdict["violations"], verdict["violationCount"]) == ([5, 6, 7, 8, 9], 9)
    assert (verdict["unreadable"], verdict["unreadableCount"]) == ([13, 14, 15, 16, 17], 8)


@pytest.mark.parametrize("damaged", ALL)
def test_a_damaged_snapshot_is_named_once_and_the_others_are_judged(
    damaged: int, judges: MakeJudge, caplog: pytest.LogCaptureFixture
) -> None:
    """It stays damaged: one warning, one line in the status, and nothing waits for it."""
    judge = judges()
    judge.backend.damaged = manifest_path(damaged)
    for _ in range(3):
        verdict = judge.judge()
    rest = [each for each in ALL if each != damaged]
    assert judge.asked == rest
    assert verdict == {"holds": True, "snapshot": rest[-1], "reason": "", **ids([], [damaged])}
    assert caplog.text.count(f"snapshot {damaged} cannot be judged: ") == len(caplog.records) == 1


@pytest.mark.parametrize("error", [OSError(errno.EIO, "no disk"), RunFailed("its coordinator did not answer")])
def test_what_cannot_be_read_now_is_judged_later(
    error: Exception, judges: MakeJudge, caplog: pytest.LogCaptureFixture
) -> None:
    """In order, and the log has it once however long it takes."""
    judge = judges()
    judge.backend.unreachable, judge.backend.error = manifest_path(SECOND), error
    for _ in range(3):
        assert judge.judge()["snapshot"] == FIRST
    judge.backend.unreachable = ""
    assert judge.judge() == {"holds": True, "snapshot": THIRD, "reason": "", **ids([], [])}
    assert judge.asked == list(ALL)
    assert caplog.text.count(f"snapshot {SECOND} is not judged yet: ") == len(caplog.records) == 1


def test_what_retention_removed_is_skipped(judges: MakeJudge, caplog: pytest.LogCaptureFixture) -> None:
    """It was listed and is gone: nobody needs to know."""
    judge = judges()
    assert judge.judge((FIRST, FIRST + 9_000_000, THIRD))["snapshot"] == THIRD
    assert caplog.records == []


class Unspeakable(Exception):
    """An error whose text cannot be made."""

    def __str__(self) -> str:
        raise SystemExit("no text")


class Undecided:
    """A value that is neither true nor false."""

    def __bool__(self) -> bool:
        raise KeyboardInterrupt("no value")


@pytest.mark.parametrize(
    ("raised", "reason"),
    [
        (ValueError("no"), "it raised ValueError: no"),
        (SystemExit("an exit"), "it raised SystemExit: an exit"),
        (KeyboardInterrupt(), "it raised KeyboardInterrupt: "),
        (GeneratorExit(), "it raised GeneratorExit: "),
        (BaseExceptionGroup("two", [SystemExit(1)]), "it raised BaseExceptionGroup: two (1 sub-exception)"),
        (Unspeakable(), "it raised Unspeakable: its text cannot be made: SystemExit"),
        (ValueError("\ud800"), "it raised ValueError: \\ud800"),
        (ValueError("x" * 10_000_000), "it raised ValueError: " + "x" * 2000),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_whatever_an_invariant_raises_is_a_verdict(raised: BaseException, reason: str, judges: MakeJudge) -> None:
    """It is named in the status, and the next invariant and the next snapshot are judged."""

    def raises(snapshot: Any) -> bool:
        raise raised

    judge = judges(raises=raises)
    judge.judge()
    assert judge.monitor.as_status()["raises"] == {
        "holds": False, "snapshot": THIRD, "reason": reason, **ids(list(ALL), []),
    }  # fmt: skip
    assert judge.asked == list(ALL)


def test_what_an_invariant_returns_may_refuse_to_be_a_bool(judges: MakeJudge) -> None:
    """Its truth is asked for where its errors are caught."""
    assert judges(holds=lambda snapshot: Undecided()).judge()["reason"] == "it raised KeyboardInterrupt: no value"


def test_an_invariant_that_hangs_is_a_verdict(judges: MakeJudge, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are judged meanwhile; it is called again only when it has returned, on the thread it was called on."""
    monkeypatch.setattr(invariant_monitor, "DEADLINE_SECONDS", 0.2)
    release, threads = threading.Event(), list[int]()

    def hangs(snapshot: Any) -> bool:
        threads.append(threading.get_ident())
        return snapshot.id != FIRST or release.wait(60)

    judge = judges(hangs=hangs)
    try:
        assert judge.judge(ALL[:2])["snapshot"] == SECOND
        assert judge.monitor.as_status()["hangs"] == {
            "holds": False, "snapshot": FIRST, "reason": "it did not return within 0.2 s",
            **ids([FIRST], [SECOND]),
        }  # fmt: skip
    finally:
        release.set()
    wait_for("its return", lambda: not judge.monitor._threads["hangs"].is_hanging)
    judge.judge()
    assert judge.monitor.as_status()["hangs"] == {
        "holds": True, "snapshot": THIRD, "reason": "", **ids([FIRST], [SECOND]),
    }  # fmt: skip
    assert len(threads) == 2 and len(set(threads)) == 1 and threads[0] != threading.get_ident()


def test_posting_does_not_wait_and_closing_does(judges: MakeJudge) -> None:
    """The run's monitor goes on beside an invariant that does not return; at the end all is judged."""
    release = threading.Event()
    judge = judges(holds=lambda snapshot: release.wait(60))
    queue = InvariantQueue(judge.monitor)
    for count in range(1, len(ALL) + 1):
        queue.post(ALL[:count])  # returns, though the first has not been judged
    wait_for("the first call", lambda: judge.asked)
    assert judge.monitor.as_status()["one"]["holds"] is None
    release.set()
    queue.close()
    assert judge.asked == list(ALL) and judge.monitor.as_status()["one"]["snapshot"] == THIRD


def test_a_reading_that_fails_in_any_way_is_named(judges: MakeJudge, caplog: pytest.LogCaptureFixture) -> None:
    """No error of the store's data ends the judging."""
    judge = judges()
    judge.backend.unreachable, judge.backend.error = manifest_path(SECOND), ZeroDivisionError("odd data")
    assert judge.judge()["unreadable"] == [SECOND]
    assert judge.asked == [FIRST, THIRD] and "cannot be judged: odd data" in caplog.text
