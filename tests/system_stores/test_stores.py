"""Live runs on stores that are remote, fail for a while, or are full: snapshots may fail, data never does."""

from __future__ import annotations

import errno
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.live import Live
from cutline import FileSystemBackend, ObjectStoreBackend, Run
from tests.spark.counting import (
    ENDLESS,
    check_result,
    counting_graph,
    first_message_after,
    kill_worker,
    stop_and_check,
    wait_for_snapshots,
    wait_until,
)
from tests.state_backends.conftest import BUCKET, OPTIONS
from tests.system_stores.faulty_proxy import FaultyProxy, Mode

_COUNT = 10_000
#: Seconds that a call to a store may take here, so that a hanging one is given up while the test looks.
_DEADLINE_S = 2.0
#: A snapshot that fails is only noted, however many do.
_PATIENT: dict[str, Any] = {"tolerableFailedSnapshots": 1_000_000, "snapshotTimeout": 30.0, "snapshotInterval": 0.5}
#: An outage is longer than any call, with its retries, may take.
_OUTAGE_S = 2 * _DEADLINE_S
#: Requests that meet the fault before it is over: more than belong to one part.
_FAILED_REQUESTS = 5
_FULL_DISK_BYTES = 4 * 1024 * 1024


def _s3(endpoint: str, folder: Path, **options: Any) -> ObjectStoreBackend:
    return ObjectStoreBackend(f"s3://{BUCKET}/{folder.name}", endpoint=endpoint, inlineBytesMax=0, **OPTIONS, **options)


def _processed(run: Run) -> float:
    done: dict[str, float] = run.status["progress"]["processed"]
    return sum(done.values())


def _check_outage(run: Run, has_begun: Callable[[], bool]) -> tuple[int, int]:
    """Check that the newest snapshot stays, data goes on, and nothing is rolled back.

    Return the newest snapshot when the outage was felt, and some messages later.
    """
    before = run.status
    wait_until("the outage is felt", has_begun)
    felt = max(run.status["snapshots"])
    seen = _processed(run)
    wait_until("messages processed during the outage", lambda: _processed(run) > seen)
    during = run.status
    assert during["restarts"] == []
    assert max(during["snapshots"]) >= max(before["snapshots"])
    return felt, max(during["snapshots"])


def _check_recovered(run: Run) -> None:
    wait_for_snapshots(run, 2)
    print("given up:", [aborted["reason"] for aborted in run.status["aborted"]])
    assert run.status["restarts"] == []
    stop_and_check(run)
    for snapshot in run.snapshots():
        snapshot.verify()


@pytest.mark.spark
@pytest.mark.ray
def test_object_store_and_killed_worker(live: Live, s3_endpoint: str, tmp_path: Path) -> None:
    """Workers and the coordinator's actor keep everything in an S3 store; a worker is killed; the result is right."""
    run = live.run(counting_graph("remote", _COUNT, str(tmp_path)), backend=_s3(s3_endpoint, tmp_path))
    wait_for_snapshots(run, 2)
    killed_at = kill_worker(run)
    print(f"SIGKILL of a worker, states in S3: {first_message_after(killed_at, str(tmp_path)):.2f} s")
    check_result(run, _COUNT)


@pytest.mark.spark
@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.parametrize("mode", [Mode.REFUSE, Mode.HANG])
def test_object_store_fails_for_a_while(live: Live, s3_endpoint: str, tmp_path: Path, mode: Mode) -> None:
    """A store that answers 503, or nothing, costs snapshots, by deadline, and nothing else; then they succeed again."""
    with FaultyProxy(s3_endpoint) as proxy:
        backend = _s3(proxy.endpoint, tmp_path, deadline=_DEADLINE_S)
        run = live.run(counting_graph("remote", ENDLESS, str(tmp_path)), backend=backend, **_PATIENT)

        wait_for_snapshots(run, 2)
        proxy.mode = mode
        over_at = time.monotonic() + _OUTAGE_S
        felt, during = _check_outage(run, lambda: proxy.failed >= _FAILED_REQUESTS and time.monotonic() >= over_at)
        assert felt == during, "a snapshot was published by a store that answers nothing"
        proxy.mode = Mode.PASS
        _check_recovered(run)
        # What hung may still have been written when the store came back: then the snapshot is published late.
        reports = run.status["snapshotReports"]
        late = [each for each in reports if each["durationMs"] > 1000 * _DEADLINE_S and each["state"] == "published"]
        assert run.status["aborted"] or (mode is Mode.HANG and late)


@pytest.mark.spark
@pytest.mark.ray
@pytest.mark.slow
def test_keyed_state_outlives_a_store_that_hangs_and_then_fails(live: Live, s3_endpoint: str, tmp_path: Path) -> None:
    """The data path does not wait for the store, what waits is merged, and the next snapshot is whole."""
    with FaultyProxy(s3_endpoint) as proxy:
        backend = _s3(proxy.endpoint, tmp_path, deadline=_DEADLINE_S)
        graph = counting_graph("keyed", ENDLESS, str(tmp_path), keyed=True)
        run = live.run(graph, backend=backend, **{**_PATIENT, "snapshotTimeout": _DEADLINE_S})
        wait_for_snapshots(run, 2)
        for mode in (Mode.HANG, Mode.REFUSE):
            failed = proxy.failed
            proxy.mode = mode
            over_at = time.monotonic() + _OUTAGE_S
            _check_outage(run, lambda: proxy.failed > failed and time.monotonic() >= over_at)  # noqa: B023
        proxy.mode = Mode.PASS
        _check_recovered(run)
        assert run.status["aborted"]
        newest = run.snapshots()[-1]
        lists = [record.rows or () for record in newest.manifest.records if record.subtask.node == "counts"]
        assert all(lists), "a subtask with keyed state lists no rows"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a few megabytes."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={_FULL_DISK_BYTES}", "cutline-test", str(disk)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.strip()}")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.spark
@pytest.mark.ray
@pytest.mark.slow
def test_disk_full_for_a_while(live: Live, small_disk: Path, tmp_path: Path) -> None:
    """With no space left snapshots are given up and partial files removed; with space again they succeed."""
    backend = FileSystemBackend(small_disk / "snapshots", inlineBytesMax=0)
    run = live.run(counting_graph("full", ENDLESS, str(tmp_path)), backend=backend, **_PATIENT)
    filler = small_disk / "filler"
    wait_for_snapshots(run, 2)

    def is_full() -> bool:
        _fill(filler)
        return bool(run.status["aborted"])

    _check_outage(run, is_full)
    filler.unlink()
    _check_recovered(run)
    assert backend.leftovers("") == []


def _fill(filler: Path) -> None:
    """Take all space that is left, that of files which were removed since the last call too."""
    with filler.open("ab", buffering=0) as file, pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        while True:
            file.write(bytes(4096))
