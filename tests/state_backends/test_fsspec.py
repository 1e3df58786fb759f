"""The backend over file systems of fsspec: s3fs against a real server, and doubles that let several writers win."""

from __future__ import annotations

import itertools
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pyarrow.fs
import pytest
import s3fs
from fsspec import AbstractFileSystem
from fsspec.implementations.arrow import ArrowFSWrapper
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from cutline import FsspecBackend, ObjectStoreBackend
from cutline.snapshot.stored.backend import StateBackend, StoreRefused
from cutline.snapshot.stored.history import Base, Claim
from cutline.snapshot.stored.run_store import RunStore
from cutline.state_backends.verify import verify_run
from tests.snapshot import sample
from tests.snapshot.stored.test_run_store import written
from tests.state_backends.conformance import FOR_ALL, FOR_SHARED, LARGE
from tests.state_backends.conftest import BUCKET, OPTIONS
from tests.state_backends.test_object_store import _CALLS, served

_prefixes = itertools.count()


class SmallPieces(s3fs.S3FileSystem):  # type: ignore[misc] # Any
    """S3 with a put in pieces from 10 MiB on, in pieces of the least size that S3 takes."""

    async def _pipe_file(self, path: str, data: bytes, *, chunksize: int = 5 * 1024 * 1024, **how: Any) -> object:
        return await super()._pipe_file(path, data, chunksize=chunksize, **how)


def s3(endpoint: str, kind: type = s3fs.S3FileSystem, **options: Any) -> Any:
    """Return a file system on a server of the S3 protocol."""
    return kind(key="an-id", secret="a-secret-key", client_kwargs={"endpoint_url": endpoint}, **options)


@pytest.fixture
def backend(s3_endpoint: str) -> FsspecBackend:
    """A backend below a prefix of its own."""
    return FsspecBackend(s3(s3_endpoint), f"s3://{BUCKET}/fsspec {next(_prefixes)}/x")


@pytest.mark.parametrize("check", FOR_ALL + FOR_SHARED)
def test_conformance(check: Callable[[StateBackend], None], backend: FsspecBackend) -> None:
    """It keeps the contract of all backends."""
    check(backend)


def test_a_run_in_a_bucket(backend: FsspecBackend, s3_endpoint: str) -> None:
    """The whole way, verified; and an object-store backend reads the same place, as the command line does."""
    backend.inline_bytes_max = 0
    store = RunStore(backend, sample.RUN)
    assert [store.take_claim(Claim(number, "o", f"{number}")) for number in range(1, 8)] == [True] * 7
    assert store.write_base(Base(7, None))
    written(store)
    same = ObjectStoreBackend(f"s3://{backend.path}", endpoint=s3_endpoint, **OPTIONS)
    for each in (backend, same):
        findings = verify_run(each, sample.RUN)
        assert (findings.problems, findings.history) == ((), (sample.SNAPSHOT_ID,))


def test_a_large_file_is_put_in_pieces_and_excludes_others(s3_endpoint: str) -> None:
    """The last request of a put in pieces has the condition: the second writer loses there."""
    backend = FsspecBackend(s3(s3_endpoint, SmallPieces), f"{BUCKET}/pieces {next(_prefixes)}")
    assert backend.put_if_absent("a", [LARGE[:7], LARGE[7:]])
    assert backend._connect().info(f"{backend.path}/a")["ETag"].strip('"').endswith("-3")
    assert not backend.put_if_absent("a", [b"x" * len(LARGE)])
    assert backend.get("a") == LARGE


def test_pickled_after_use(backend: FsspecBackend) -> None:
    """A worker's copy reaches the same place with the same credentials."""
    backend.put_if_absent("a", [b"x"])
    assert pickle.loads(pickle.dumps(backend)).get("a") == b"x"


FORKER = """
import os, pickle, sys
backend = pickle.loads(bytes.fromhex(sys.argv[1]))
assert backend.exists("a")
if os.fork() == 0:
    print(backend.get("a"), flush=True)
    os._exit(0)
os.wait()
"""


def test_use_before_a_fork(backend: FsspecBackend) -> None:
    """The child makes a file system of its own, because its parent's threads are not there."""
    backend.put_if_absent("a", [b"x"])
    command = [sys.executable, "-c", FORKER, pickle.dumps(backend).hex()]
    assert subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout == "b'x'\n"


# ---- file systems that cannot exclude a writer


@pytest.mark.parametrize(
    ("filesystem", "cause"),
    [
        (
            pyarrow.fs.LocalFileSystem(),
            r"pyarrow\._fs\.LocalFileSystem: no file system of pyarrow .*; use FileSystemBackend",
        ),
        (
            ArrowFSWrapper(pyarrow.fs.LocalFileSystem()),
            r"pyarrow.*LocalFileSystem|ArrowFSWrapper: its exclusive create",
        ),
        (LocalFileSystem(), r"fsspec.*LocalFileSystem: its exclusive create looks .*; use FileSystemBackend"),
        (MemoryFileSystem(), r"MemoryFileSystem: each process has files of its own there; use MemoryBackend"),
        (
            DirFileSystem("/x", LocalFileSystem()),
            r"LocalFileSystem: DirFileSystem wraps it; give the file system itself",
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_lets_several_writers_win_is_refused_by_name(filesystem: object, cause: str) -> None:
    """The error names the class, why, and what serves instead."""
    with pytest.raises(ValueError, match=cause):
        FsspecBackend(filesystem, "/bucket/prefix")


def test_a_bucket_is_needed(s3_endpoint: str) -> None:
    """Without one the snapshots would be in no place. What is no file system is named."""
    with pytest.raises(ValueError, match="give the bucket"):
        FsspecBackend(s3(s3_endpoint), "s3://")
    with pytest.raises(TypeError, match=r"an fsspec file system is needed.*not str"):
        FsspecBackend("s3", "bucket")


class Careless(AbstractFileSystem):  # type: ignore[misc] # Any
    """Files in the memory of this process, with a create of its own that ignores the condition."""

    protocol = "careless"
    cachable = False
    files: ClassVar[dict[str, bytes]] = {}

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: object) -> None:
        self.files[path] = value

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: object) -> bytes:
        return self._stored(path)[start:end]

    def info(self, path: str, **_: object) -> dict[str, object]:
        if path == "bucket":
            return {"name": path, "size": 0, "type": "directory"}
        return {"name": path, "size": len(self._stored(path)), "type": "file"}

    def find(self, path: str, **_: object) -> list[str]:
        return [each for each in self.files if each.startswith(f"{path}/")]

    def rm_file(self, path: str) -> None:
        self._stored(path)
        del self.files[path]

    def _stored(self, path: str) -> bytes:
        if path not in self.files:
            raise FileNotFoundError(path)
        return self.files[path]


class ChecksFirst(Careless):
    """Checks for the file and then writes. Racing writers check at one time."""

    files: ClassVar[dict[str, bytes]] = {}
    _racers = threading.Barrier(2)

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: object) -> None:
        if path in self.files:
            raise FileExistsError(path)
        if "race" in path:
            self._racers.wait(timeout=30)
        self.files[path] = value


def test_a_store_that_ignores_the_condition_is_found_out_before_the_first_write() -> None:
    """A new file system is proved, as a new object store is."""
    with pytest.raises(StoreRefused, match="careless://bucket/x: it overwrites on a conditional put"):
        FsspecBackend(Careless(), "bucket/x").put_if_absent("claims/1", [b"mine"])
    assert not any("claims" in path for path in Careless.files)


def test_a_store_that_checks_first_is_found_out_by_the_probe() -> None:
    """One after another its writers exclude each other. Racing, several win: the run is refused before it begins."""
    backend = FsspecBackend(ChecksFirst(), "bucket/x")
    with pytest.raises(StoreRefused, match=r"careless://bucket/x: [0-9]+ of 16 racing writers of one file won"):
        backend.probe("run", "token")
    assert backend.files() == []


# ---- errors


@pytest.mark.parametrize("call", _CALLS)
def test_a_missing_bucket_is_known_at_once(call: str, s3_endpoint: str) -> None:
    """A wrong bucket is an error that says so, never an empty store."""
    backend = FsspecBackend(s3(s3_endpoint), "no-such-bucket/x")
    with pytest.raises(StoreRefused, match="s3://no-such-bucket/x: there is no such bucket; create it"):
        _CALLS[call](backend)


#: What a store answers, and whether another try may help.
_ANSWERS = {
    **dict.fromkeys((400, 401, 403, 405, 411, 413, 501), False),
    **dict.fromkeys((408, 429, 500, 502, 503, 504), True),
}


@pytest.mark.parametrize("call", ["put_if_absent", "get", "files"])
@pytest.mark.parametrize("status", _ANSWERS)
def test_what_no_second_try_can_mend_is_tried_once(status: int, call: str) -> None:
    """Every status: either the cause is raised at once, or the request is repeated until the store has recovered.

    Neither s3fs nor botocore repeats a request, because a repeated write whose answer was lost would seem to be
    another writer's.
    """
    answers: list[int] = []
    with served(["conditional"], deadline=8, answers=answers) as (other, objects):
        backend = FsspecBackend(s3(str(other._options["endpoint"])), f"{BUCKET}/x", deadline=8)
        objects[f"/{BUCKET}/x/a"] = b"content"
        backend.put_if_absent("b", [b"x"])
        answers += [status] * (2 if _ANSWERS[status] else 1)
        if _ANSWERS[status]:
            _CALLS[call](backend)
            assert answers == []
            return
        with pytest.raises(StoreRefused, match=f"s3://{BUCKET}/x: "):
            _CALLS[call](backend)
        assert answers == []


def test_botocore_repeats_nothing_and_keeps_what_the_user_said() -> None:
    """Tries of botocore, four more by its default, are off."""
    backend = FsspecBackend(s3("http://127.0.0.1:1", config_kwargs={"connect_timeout": 3}), f"{BUCKET}/x")
    assert backend._options["config_kwargs"] == {"connect_timeout": 3, "retries": {"max_attempts": 0}}


def test_a_write_whose_answer_was_lost_is_won() -> None:
    """The server stored it and then failed: asking again finds the very same bytes, so the write was ours."""
    with served(["conditional", "conditional", "stored, then 500", "conditional"]) as (other, _):
        backend = FsspecBackend(s3(str(other._options["endpoint"])), f"{BUCKET}/x", deadline=20)
        assert backend.put_if_absent("a", [b"mine"])
        assert not backend.put_if_absent("a", [b"mine"]), "without a lost answer equal bytes are another's"


@pytest.mark.parametrize("call", ["put_if_absent", "get", "files"])
def test_a_store_that_is_not_there_ends_with_its_own_error(call: str) -> None:
    """A refused connection is tried again, and is the error at the end, without credentials."""
    with served(["conditional"]) as (other, _):
        endpoint = str(other._options["endpoint"])
    backend = FsspecBackend(s3(endpoint), f"{BUCKET}/x", deadline=4)
    with pytest.raises(OSError, match=f"s3://{BUCKET}/x.*Could not connect to the endpoint") as failed:
        _CALLS[call](backend)
    assert "a-secret-key" not in str(failed.value)


def test_fsspec_is_imported_only_when_used(tmp_path: Path) -> None:
    """Other backends work where fsspec is not installed."""
    (tmp_path / "fsspec.py").write_text("raise ImportError('not installed')\n")
    script = "from cutline import FileSystemBackend, FsspecBackend; FileSystemBackend('/x')"
    path = os.pathsep.join([str(tmp_path), os.getcwd()])
    subprocess.run([sys.executable, "-c", script], timeout=60, env={**os.environ, "PYTHONPATH": path}, check=True)
