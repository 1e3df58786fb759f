"""Runs with a signing key, without Spark and Ray: they go on, are forked and read, and refuse what others wrote."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cutline import BarrierRuntime, Context, FileSystemBackend, Graph, MemoryBackend, Source
from cutline.barrier_runtime.cli.stored import KEY_VARIABLE
from cutline.snapshot.coordinator.restart_policy import RestartPolicy
from cutline.snapshot.errors import CutlineError, RestoreRefused, RunFailed
from cutline.snapshot.stored.signed import SignedBackend
from cutline.state_backends.verify import verify_run
from cutline.testing import ListSink
from tests.barrier_runtime.driver.test_local_runs import counting, total_of
from tests.barrier_runtime.invoking import invoke
from tests.barrier_runtime.local_cluster import LocalCluster, local_cluster
from tests.leaks import LeakCheck

KEY, OTHER_KEY = b"a secret key of the run", b"a secret key of another"
_DEADLINE_S = 30.0
_ENDLESS = 10**9


@pytest.fixture
def cluster(leak_check: LeakCheck) -> Iterator[LocalCluster]:
    """A cluster in this process, of which nothing is left at the end."""
    with local_cluster() as made:
        yield made


def runtime(cluster: LocalCluster, folder: Path, key: bytes | None = KEY, **changes: Any) -> BarrierRuntime:
    """A runtime whose parts are files, and which gives up at the first failure."""
    options: dict[str, Any] = {"backend": FileSystemBackend(folder, inlineBytesMax=0), "page": False}
    options |= {"snapshotInterval": None, "restartPolicy": RestartPolicy(maxRestarts=0)}
    return BarrierRuntime(cluster.spark, signingKey=key, **{**options, **changes})


def files(folder: Path) -> list[Path]:
    """All files of a store."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


def stop_with_snapshot(made: BarrierRuntime, graph: Graph) -> None:
    """Run the graph until it has a snapshot."""
    assert made.submit(graph).stop(withSnapshot=True, timeout=_DEADLINE_S) is not None


def touch(marker: str) -> int:
    """Stand for any command."""
    Path(marker).touch()
    return 0


class Planted:
    """When it is unpickled, it calls `touch`."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return touch, (str(self.marker),)


class Planting(Source):
    """Goes on for ever, with a planted pickle in its state if there is a marker."""

    def __init__(self, marker: Path | None) -> None:
        self.marker = marker

    def poll(self, context: Context) -> float:
        return 0.01

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return {"planted": self.marker and Planted(self.marker)}

    def restoreState(self, state: Any) -> None:
        pass


def planting(marker: Path | None = None) -> Graph:
    """A graph of one source."""
    return Graph("planting").add("a", Planting(marker)).add("b", ListSink()).connect("a", "b")


def test_a_signed_run_fails_goes_on_and_is_forked(cluster: LocalCluster, tmp_path: Path) -> None:
    """All it stores is signed, and its workers and the driver read it: as without a key."""
    folder = tmp_path / "store"
    made = runtime(cluster, folder, restartPolicy=RestartPolicy(maxRestarts=3))
    run = made.submit(counting(2000, tmp_path / "failed", 1500))
    taken = run.takeSnapshot(timeout=_DEADLINE_S)
    assert run.awaitTermination(_DEADLINE_S) and total_of(run) == sum(range(2000))
    assert len(run.status["restarts"]) == 1
    upto = taken.node("numbers").state + 100
    fork = made.submit(counting(upto), name="fork", restoreFrom=taken)
    assert fork.awaitTermination(_DEADLINE_S) and total_of(fork) == sum(range(upto))
    kinds = {path.relative_to(folder).parts[1] for path in files(folder)}
    assert kinds == {"claims", "bases", "snapshots", "parts", "pins"}
    assert all(path.read_bytes().startswith(b"CLSG") for path in files(folder))
    for name in ("counting", "fork"):
        for each in made.snapshots(name):
            each.verify()  # raises if a byte or a signature is wrong
        assert verify_run(SignedBackend(FileSystemBackend(folder), KEY), name).problems == ()


def test_a_signed_run_in_memory(cluster: LocalCluster, tmp_path: Path) -> None:
    """The coordinator's copy of a memory backend goes on with what the driver holds, and comes home signed."""
    backend = MemoryBackend()
    made = runtime(cluster, tmp_path, backend=backend)
    stop_with_snapshot(made, counting(_ENDLESS))
    assert all(backend.get(path).startswith(b"CLSG") for path in backend.files()) and backend.files()
    upto = made.snapshots("counting")[-1].node("numbers").state
    again = made.submit(counting(upto + 10))
    assert again.awaitTermination(_DEADLINE_S) and total_of(again) == sum(range(upto + 10))


@pytest.mark.parametrize(
    ("first", "second", "text"),
    [
        (KEY, OTHER_KEY, "signed with another key"),
        (KEY, None, "is signed, and no signing key was given"),
        (None, KEY, "is not signed"),
    ],
)
def test_another_key_is_refused(
    cluster: LocalCluster, tmp_path: Path, first: bytes | None, second: bytes | None, text: str
) -> None:
    """To read, to go on and to fork: before anything starts, and nothing is written."""
    folder = tmp_path / "store"
    made = runtime(cluster, folder, first)
    stop_with_snapshot(made, counting(_ENDLESS))
    snapshot, before = made.snapshots("counting")[-1], files(folder)
    other = runtime(cluster, folder, second)
    actors = len(cluster.ray.actors)
    for name, origin in (("counting", "latest"), ("counting", snapshot.id), ("fork", snapshot)):
        with pytest.raises(RestoreRefused, match=f"counting/.*{text}"):
            other.submit(counting(1), name=name, restoreFrom=origin)
    with pytest.raises(RestoreRefused, match=f"counting/.*{text}"):
        other.snapshots("counting")
    assert len(cluster.ray.actors) == actors and files(folder) == before


def test_no_planted_code_runs(cluster: LocalCluster, tmp_path: Path) -> None:
    """Files of a stranger's run of the same graph and name, each in turn and all: refused by name by every reader."""
    marker, folder, evil = tmp_path / "ran", tmp_path / "store", tmp_path / "evil"
    stop_with_snapshot(runtime(cluster, folder), planting())
    for key in (None, OTHER_KEY):
        shutil.rmtree(evil, ignore_errors=True)
        stop_with_snapshot(runtime(cluster, evil, key), planting(marker))
        names = [path.relative_to(folder) for path in files(folder)]
        assert [path.relative_to(evil) for path in files(evil)] == names
        marker.unlink()  # because a state is decoded once when it is captured
        for places in (*([name] for name in names), names):
            mixed = tmp_path / "mixed"
            shutil.copytree(folder, mixed)
            for name in places:
                shutil.copy(evil / name, mixed / name)
            made = runtime(cluster, mixed)
            text = refused(made)
            assert not marker.exists(), places
            assert any(str(name) in text for name in places), text
            problems = "".join(verify_run(SignedBackend(FileSystemBackend(mixed), KEY), "planting").problems)
            assert all(str(name) in problems for name in places)
            shutil.rmtree(mixed)
    assert runtime(cluster, evil, OTHER_KEY).snapshots("planting")[-1].node("a").state == {"planted": 0}
    assert marker.exists(), "the planted code runs for nobody, so this test shows nothing"


def refused(made: BarrierRuntime) -> str:
    """Read the run's state, and go on with it. Return how this was refused."""
    try:
        _ = [each.node("a").state for each in made.snapshots("planting")]
    except CutlineError as error:
        return str(error)
    # Only claims are left, which readers need not read.
    with pytest.raises((RunFailed, RestoreRefused)) as ended:
        made.submit(planting()).awaitTermination(_DEADLINE_S)
    return str(ended.value)


def test_workers_refuse_a_planted_part(cluster: LocalCluster, tmp_path: Path) -> None:
    """The driver's checks read no part of a state; the worker that restores it does, and the run ends by name."""
    marker, folder, evil = tmp_path / "ran", tmp_path / "store", tmp_path / "evil"
    stop_with_snapshot(runtime(cluster, folder), planting())
    stop_with_snapshot(runtime(cluster, evil, None), planting(marker))
    marker.unlink()
    (part,) = (path.relative_to(folder) for path in files(folder) if "parts" in path.parts)
    shutil.copy(evil / part, folder / part)
    with pytest.raises(RunFailed, match=f"{part.name} of run 'planting': is not signed"):
        runtime(cluster, folder).submit(planting()).awaitTermination(_DEADLINE_S)
    assert not marker.exists()


def test_the_command_line_reads_with_the_key(
    cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a file or the environment, in every command that reads a store; without it each names what to give."""
    folder, key_file, wrong_file = tmp_path / "store", tmp_path / "key", tmp_path / "wrong"
    key_file.write_bytes(KEY + b"\n")
    wrong_file.write_bytes(OTHER_KEY)
    made = runtime(cluster, folder)
    stop_with_snapshot(made, counting(_ENDLESS))
    (taken,) = made.snapshots("counting")
    commands: list[tuple[object, ...]] = [
        ("runs", folder),
        ("snapshots", "list", folder),
        ("snapshots", "show", folder),
        ("snapshots", "verify", folder),
        ("snapshots", "diff", folder, "counting", taken.id, taken.id),
    ]
    for command in commands:
        read = invoke(*command, "--signing-key-file", key_file)
        assert (read.exit_code == 0 and str(taken.id) in read.output) or "every byte is" in read.output, read.output
        for arguments, text in (((), "no signing key was given"), (("--signing-key-file", wrong_file), "another key")):
            failed = invoke(*command, *arguments)
            assert failed.exit_code == 1 and text in f"{failed.output}{failed.exception}", command
        with monkeypatch.context() as patch:
            patch.setenv(KEY_VARIABLE, KEY.decode())
            assert invoke(*command).exit_code == 0
            patch.setenv(KEY_VARIABLE, "")
            assert "a signing key of 0 bytes" in invoke(*command).output
    assert KEY.decode() not in invoke("snapshots", "verify", folder, "--signing-key-file", key_file, "--json").output
