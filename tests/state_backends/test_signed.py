"""Signed stores: what is refused, by name and before it is decoded, when somebody without the key writes the store."""

from __future__ import annotations

import itertools
import os
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutline import FileSystemBackend, MemoryBackend, StateBackend
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.errors import CutlineError, RestoreRefused, SnapshotCorrupt
from cutline.snapshot.stored import signed
from cutline.snapshot.stored.claim_digest import CLAIMS_PER_CHECKPOINT
from cutline.snapshot.stored.contribution import parts_of, record_of
from cutline.snapshot.stored.history import Base, Claim
from cutline.snapshot.stored.manifest import Aborted, Manifest
from cutline.snapshot.stored.memory_files import MemoryFiles
from cutline.snapshot.stored.part import state_part
from cutline.snapshot.stored.run_store import RunStore, stored_history
from cutline.snapshot.stored.signed import BLOCK_BYTES, SignedBackend, with_signing_key
from cutline.state_backends.verify import verify_run
from tests.run_size import scaled
from tests.snapshot import sample
from tests.state_backends.conformance import FOR_ALL, FOR_SHARED

KEY, OTHER_KEY = b"a secret key of the run", b"a secret key of another"

#: A run whose files are planted, and the kinds of files that a run has, by a piece of their paths.
OTHER_RUN = "other"
KINDS = ("claims/", "bases/", "checkpoints/", f"{sample.SNAPSHOT_ID}.manifest", f"{sample.SNAPSHOT_ID + 1}.m", "parts/")


class Planted:
    """When it is unpickled, it makes a folder: that stands for any command."""

    def __init__(self, marker: str) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return os.mkdir, (self.marker,)


def backend_over(files: dict[str, bytes], key: bytes | None = KEY) -> StateBackend:
    """The backend that holds `files`, and takes no part inline."""
    return with_signing_key(MemoryFiles(files, inline_bytes_max=0), key)


def stored_run(key: bytes | None = KEY, *, state: object = 1, run: str = sample.RUN) -> dict[str, bytes]:
    """The files of a run, ``{path: bytes}``, of each kind at least one. P has the state `state`."""
    files: dict[str, bytes] = {}
    store = RunStore(backend_over(files, key), run)
    for number in range(1, CLAIMS_PER_CHECKPOINT + 1):
        store.take_claim(Claim(number, "owner", f"instance {number}"))
    store.write_base(Base(7, None))
    taken = sample.taken()
    taken[0] = replace(taken[0], state=sample.state(state))
    parts = [store.put_parts(parts_of(each, run, sample.INCARNATION)) for each in taken]
    records = tuple(record_of(each, sample.INCARNATION, of) for each, of in zip(taken, parts, strict=True))
    assert store.write_manifest(replace(sample.manifest(records), run=run))
    store.write_manifest(Aborted(run, sample.SNAPSHOT_ID + 1))
    store.put_parts([state_part(run, 6, 6_000_001, sample.P, [b"orphan"])])
    store.manifests()  # so that the store knows the aborted record
    store.write_checkpoint(CLAIMS_PER_CHECKPOINT, store.bases())
    return files


def refusals(files: dict[str, bytes], key: bytes | None = KEY, run: str = sample.RUN) -> str:
    """Read everything of the run by every way there is, decode it, and return the texts of all errors."""
    errors = list(verify_run(backend_over(files, key), run).problems)
    for read in (_decode_all, _restore, _decode_parts):
        try:
            read(RunStore(backend_over(files, key), run))
        except (CutlineError, FileNotFoundError) as error:
            errors.append(str(error))
    return "\n".join(errors)


def _decode_all(store: RunStore) -> None:
    """Read as notebooks and the page do."""
    for snapshot in store.read_snapshots(Codec()):
        for node in snapshot.nodes:
            assert snapshot.node(node).states
        for channel in snapshot.channels:
            assert snapshot.channel(channel.source, channel.target).messages is not None


def _restore(store: RunStore) -> None:
    """Read as coordinators and workers do."""
    store.claims()
    for snapshot_id in stored_history(store):
        manifest = store.read_manifest(snapshot_id)
        assert isinstance(manifest, Manifest)
        for record in manifest.records:
            for handle in record.handles:
                store.read_part(handle)


def _decode_parts(store: RunStore) -> None:
    """Decode the states of a known snapshot, whatever the history is."""
    for subtask in (sample.P, sample.Q):
        assert store.read_snapshot(sample.SNAPSHOT_ID, Codec()).node(subtask).state is not None


def paths() -> list[str]:
    """The paths of all files of the run."""
    return sorted(stored_run())


def unsigned(path: str) -> str:
    """The path below the run's folder, as errors name it."""
    return path.split("/", 1)[1]


# ---- the contract of backends


@pytest.mark.parametrize("check", FOR_ALL)
def test_conformance_in_memory(check: Callable[[StateBackend], None]) -> None:
    """It keeps the contract of all backends."""
    check(SignedBackend(MemoryBackend(), KEY))


@pytest.mark.parametrize("check", FOR_ALL + FOR_SHARED)
def test_conformance_in_a_folder(check: Callable[[StateBackend], None], tmp_path: Path) -> None:
    """It keeps the contract across processes, where the key travels with the backend."""
    check(SignedBackend(FileSystemBackend(tmp_path), KEY))


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make blocks of 4 bytes of content."""
    monkeypatch.setattr(signed, "BLOCK_BYTES", 4)
    monkeypatch.setattr(signed, "_STRIDE_BYTES", 4 + 33)


@pytest.mark.usefixtures("small_blocks")
def test_every_stretch_of_every_length() -> None:
    """Any stretch of a file of any number of blocks is returned as it was written, in whatever chunks."""
    for length in range(14):
        content = bytes(range(length))
        backend = SignedBackend(MemoryBackend(), KEY)
        assert backend.put_if_absent("a", [content[:3], b"", content[3:4], content[4:]])
        for offset, size in itertools.product(range(length + 6), [None, *range(length + 6)]):
            expected = content[offset : None if size is None else offset + size]
            assert backend.get("a", offset, size) == expected, (length, offset, size)


@pytest.mark.usefixtures("small_blocks")
def test_no_stretch_of_a_damaged_file_is_returned_changed() -> None:
    """With any byte flipped, or cut anywhere, or extended, a stretch is what was written or it is refused."""
    files: dict[str, bytes] = {}
    backend = SignedBackend(MemoryFiles(files), KEY)
    content = bytes(range(10))
    assert backend.put_if_absent("a", [content])
    whole = files["a"]
    flipped = [whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :] for at in range(len(whole))]
    block = whole[14 : 14 + 37]
    ends = range(14 + 37, len(whole), 37)  # cut behind a block that then says to be the last
    extended = [whole[: end - 33] + b"\x01" + whole[end - 32 : end] for end in ends]
    extended += [whole + b"x", whole + whole[14:], whole + block, whole[:14] + block + whole[14:], whole[:14]]
    for damaged in (*flipped, *(whole[:at] for at in range(len(whole))), *extended):
        files["a"] = damaged
        with pytest.raises((SnapshotCorrupt, RestoreRefused), match="memory:/a"):
            backend.get("a")
        for offset, size in itertools.product(range(13), [None, *range(13)]):
            try:
                found = backend.get("a", offset, size)
            except (SnapshotCorrupt, RestoreRefused):
                continue
            assert found == content[offset : None if size is None else offset + size]


@pytest.mark.usefixtures("small_blocks")
def test_no_file_is_joined_from_two() -> None:
    """Blocks of two files that were validly signed for one path, as of a run that was removed and began again."""
    files: dict[str, bytes] = {}
    backend = SignedBackend(MemoryFiles(files), KEY)
    versions = []
    for first, length in itertools.product((0, 50), (4, 8, 10, 12)):
        backend.put_if_absent("a", [bytes(range(first, first + length))])
        versions.append(files.pop("a"))
    for one, other in itertools.permutations(versions, 2):
        for at, begin in itertools.product(range(14, len(one) + 1, 37), range(14, len(other) + 1, 37)):
            joined = one[:at] + other[begin:]
            if joined not in versions:
                files["a"] = joined
                with pytest.raises(SnapshotCorrupt, match="memory:/a"):
                    backend.get("a")


def test_large_files_are_signed_without_a_copy() -> None:
    """What goes to the store are stretches of the caller's buffers, with 33 bytes between the blocks."""

    class Chunks(MemoryFiles):
        def _put_if_absent(self, path: str, chunks: Any) -> bool:
            self.chunks = chunks
            return True

    large = bytes(2 * BLOCK_BYTES + 5)
    backend = SignedBackend(inner := Chunks({}), KEY)
    backend.put_if_absent("a", [large[:7], large])
    pieces = [chunk for chunk in inner.chunks if chunk.nbytes not in (14, 33)]
    assert [chunk.nbytes for chunk in pieces] == [7, BLOCK_BYTES - 7, BLOCK_BYTES, 12]
    assert all(chunk.obj is large for chunk in pieces[1:])
    assert sum(chunk.nbytes for chunk in inner.chunks) == 14 + 3 * 33 + 7 + len(large)


def test_a_name_that_is_no_utf_8_is_signed_too() -> None:
    """Python lists such a file with half a surrogate pair in its name. It is read, or refused by its name, as any."""
    files: dict[str, bytes] = {}
    path, backend = "folder/\udcff", backend_over(files)
    assert backend.put_if_absent(path, [b"content"])
    assert backend.get(path) == b"content"
    files[path] += b"x"
    with pytest.raises(SnapshotCorrupt, match=path):
        backend.get(path)


# ---- without a key, and with it


def test_without_a_key_nothing_changes() -> None:
    """The backend is the user's own, and its files have the bytes that they always had."""
    backend = MemoryBackend()
    assert with_signing_key(backend, None) is backend
    plain, with_key = stored_run(None), stored_run()
    assert sorted(plain) == sorted(with_key)
    assert all(plain[path] in with_key[path] and len(with_key[path]) == len(plain[path]) + 47 for path in plain)


def test_a_signed_run_is_read_with_its_key() -> None:
    """By every reader, and by a pickled copy of the backend, as workers have it."""
    files = stored_run()
    assert refusals(files) == ""
    copy = pickle.loads(pickle.dumps(SignedBackend(FileSystemBackend("/nowhere"), KEY)))
    path = next(iter(files))
    copy.unsigned = MemoryFiles(files)
    assert copy.get(path) == backend_over(files).get(path)


def test_the_key_is_in_no_text() -> None:
    """Neither the backend nor any refusal shows it, and what is stored does not hold it."""
    files = stored_run()
    backend = backend_over(files)
    assert KEY.decode() not in f"{backend} {backend!r} {refusals(dict.fromkeys(files, b''))}"
    assert not any(KEY in data for data in files.values())


@pytest.mark.parametrize(("key", "error"), [("text" * 8, TypeError), (b"short", ValueError), (bytes(15), ValueError)])
def test_keys_are_checked(key: Any, error: type[Exception]) -> None:
    """A key is bytes, and so many that nobody tries them all."""
    with pytest.raises(error, match="signing key"):
        SignedBackend(MemoryBackend(), key)
    SignedBackend(MemoryBackend(), bytes(16))


# ---- what is refused


@pytest.mark.parametrize("path", paths())
def test_a_changed_record_is_refused(path: str) -> None:
    """Any byte flipped, any length: refused by the name of file and run, whatever its own checksum says."""
    files = stored_run()
    whole, backend = files[path], backend_over(files)
    for at in range(len(whole)):
        for damaged in (whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :], whole[:at]):
            files[path] = damaged
            with pytest.raises((SnapshotCorrupt, RestoreRefused), match=f"{path} of run '{sample.RUN}'"):
                backend.get(path)
    files[path] = whole[:60] + b"x" + whole[60:]
    assert unsigned(path) in refusals(files)


@pytest.mark.parametrize("path", paths())
def test_a_record_in_the_place_of_another_is_refused(path: str) -> None:
    """Another id, another kind: a validly signed record holds in its own place only."""
    files = stored_run()
    for source in files:
        if source != path:
            moved = {**files, path: files[source]}
            with pytest.raises(SnapshotCorrupt, match=f"{path} of run '{sample.RUN}': offset 14: the signature does"):
                backend_over(moved).get(path)
    older = {**files, path: files[next(other for other in files if other != path)]}
    assert f"{path} of run" in refusals(older)


def test_a_record_of_another_run_is_refused() -> None:
    """A whole run under another name: each of its records is refused, and the right name is not in its path."""
    files = stored_run()
    copied = {f"{OTHER_RUN}/{unsigned(path)}": data for path, data in files.items()}
    for path in copied:
        with pytest.raises(SnapshotCorrupt, match=f"{path} of run '{OTHER_RUN}'"):
            backend_over(copied).get(path)
    assert all(unsigned(path) in refusals(copied, run=OTHER_RUN) for path in files)


@pytest.mark.parametrize(
    ("key", "text"),
    [(None, "is not signed, so it is not of a holder of the signing key"), (OTHER_KEY, "is signed with another key")],
)
@pytest.mark.parametrize("path", paths())
def test_a_record_without_this_signature_is_refused(path: str, key: bytes | None, text: str) -> None:
    """Unsigned, or signed by another key: told apart, and named, by every reader."""
    files = stored_run() | {path: stored_run(key)[path]}
    assert f"memory:/{path} of run '{sample.RUN}': {text}" in refusals(files)
    assert f"memory:/{path} of run '{sample.RUN}': {text}" in "\n".join(
        verify_run(backend_over(files), sample.RUN).problems
    )


def test_a_signed_run_is_refused_without_a_key() -> None:
    """Claims, bases, checkpoint and manifests are named, with what to give; nothing is taken for damage."""
    files = stored_run()
    problems = verify_run(backend_over(files, None), sample.RUN).problems
    for path in (path for path in files if "/parts/" not in path):
        assert any(path in problem and "is signed, and no signing key was given" in problem for problem in problems)


def test_an_unknown_form_is_refused() -> None:
    """A later layout of signed files is not taken for damage."""
    files = stored_run()
    path = next(iter(files))
    files[path] = files[path][:5] + b"\x02" + files[path][6:]
    assert f"{path} of run '{sample.RUN}': is signed in a form that this Cutline does not read" in refusals(files)


def test_planted_code_never_runs(tmp_path: Path) -> None:
    """Whatever files of a stranger's run are put in, in any place, unsigned or signed by another key."""
    marker = tmp_path / "ran"
    own = stored_run()
    for key in (None, OTHER_KEY):
        evil = stored_run(key, state={"planted": Planted(str(marker))})
        marker.rmdir()  # because the codec tries whether what it encodes can be decoded
        assert set(evil) == set(own)
        for places in (*itertools.combinations(own, 1), *itertools.combinations(own, 2), tuple(own)):
            errors = refusals(own | {path: evil[path] for path in places})
            assert not marker.exists(), places
            assert all(f"{path} of run" in errors for path in places), places
    _decode_parts(RunStore(backend_over(evil, OTHER_KEY), sample.RUN))
    assert marker.exists(), "the planted code runs for nobody, so this test shows nothing"


def test_every_kind_was_tried() -> None:
    """The run has files of each kind, and no others."""
    assert {kind for path in paths() for kind in KINDS if kind in path} == set(KINDS)
    assert all(any(kind in path for kind in KINDS) for path in paths())


@given(st.data())
def test_any_mixture_of_stores(data: st.DataObject) -> None:
    """Files of several runs and keys, moved, cut and joined at random: each is refused, or it is the run's own."""
    own = stored_run()
    pool = [*own.values(), *stored_run(None).values(), *stored_run(OTHER_KEY).values()]
    pool += stored_run(run=OTHER_RUN).values()
    for _ in range(scaled(10)):
        path = data.draw(st.sampled_from(sorted(own)))
        first, second = (data.draw(st.sampled_from(pool)) for _ in range(2))
        at = data.draw(st.sampled_from([0, 14, 47, len(first)]))
        mixed = first[:at] + second[data.draw(st.sampled_from([0, 14, 47, len(second)])) :]
        try:
            found = backend_over(own | {path: mixed}).get(path)
        except (SnapshotCorrupt, RestoreRefused):
            continue
        assert mixed == own[path] and found == backend_over(own).get(path)


def test_what_a_signature_cannot_show() -> None:
    """An older copy of the whole store, and a lost record, are validly signed: PROTOCOL 7.9 says what to do."""
    files = stored_run()
    newest = next(path for path in files if path.endswith(f"{sample.SNAPSHOT_ID}.manifest"))
    rolled_back = {path: data for path, data in files.items() if path != newest}
    store = RunStore(backend_over(rolled_back), sample.RUN)
    assert stored_history(store) == ()
