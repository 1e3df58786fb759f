"""Verification of a stored run finds every flipped bit, every lost byte, and every file too few or too many."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cutline import FileSystemBackend, ObjectStoreBackend
from cutline.snapshot.errors import SnapshotCorrupt
from cutline.snapshot.plan.topology import KEY_GROUPS
from cutline.snapshot.stored import layout
from cutline.snapshot.stored.claim_digest import CLAIMS_PER_CHECKPOINT
from cutline.snapshot.stored.history import Base, Claim
from cutline.snapshot.stored.manifest import Aborted
from cutline.snapshot.stored.part import Handle, own_part, rows_part, state_part, steps_part
from cutline.snapshot.stored.pins import PinKind
from cutline.snapshot.stored.run_store import RunStore
from cutline.state_backends.verify import Findings, backend_of, verify_run
from tests.snapshot import sample
from tests.snapshot.listed import whole
from tests.snapshot.stored.test_run_store import Apart, written


class Tampered(Apart):
    """Memory in which one file at a time can be replaced, or hidden."""

    def __init__(self) -> None:
        super().__init__()
        self.instead: dict[str, bytes] = {}

    def _get(self, path: str, offset: int, size: int | None) -> bytes:
        if path not in self.instead:
            return super()._get(path, offset, size)
        return self.instead[path][offset : None if size is None else offset + size]


def small_run() -> tuple[RunStore, Tampered]:
    """Every sort of file once: claims, bases, a manifest with parts of its own, an aborted record, an orphan."""
    store = RunStore(backend := Tampered(), sample.RUN)
    for number in range(1, 8):
        store.take_claim(Claim(number, "o", f"life {number}"))
    store.write_base(Base(7, None))
    written(store)
    store.write_manifest(Aborted(sample.RUN, sample.SNAPSHOT_ID + 1))
    store.put_parts([state_part(sample.RUN, 6, 6_000_001, sample.P, [b"orphan"])])
    store.manifests()  # so that the store knows the aborted record
    store.write_checkpoint(CLAIMS_PER_CHECKPOINT, store.bases())
    return store, backend


def verified(backend: Tampered) -> Findings:
    """What verification says of the small run."""
    return verify_run(backend, sample.RUN)


def test_a_sound_run_has_no_problems() -> None:
    """All files are counted, the history is there, and a part that nothing lists is mentioned."""
    _, backend = small_run()
    findings = verified(backend)
    assert findings.problems == ()
    assert findings.files == len(backend.files())
    assert findings.history == (sample.SNAPSHOT_ID,)
    assert [layout.part_origin(path) for path in findings.unreferenced] == [(6, 6_000_001)]


def files_of_small_run() -> list[str]:
    """The paths of all files."""
    return small_run()[1].files()


@pytest.mark.parametrize("path", files_of_small_run())
def test_every_flipped_byte_and_every_length_is_found(path: str) -> None:
    """At every offset of every file: a flipped bit, and the file ending there, is found and named."""
    _, backend = small_run()
    whole = backend.get(path)
    name = path.removeprefix(f"{sample.RUN}/")
    for offset in range(len(whole)):
        flipped = bytearray(whole)
        flipped[offset] ^= 1 << offset % 8
        for damaged in (bytes(flipped), whole[:offset]):
            backend.instead = {path: damaged}
            assert any(name in problem for problem in verified(backend).problems), (path, offset)


def test_every_part_of_a_file_that_nothing_lists_is_proved() -> None:
    """Not only the first one; how many there were, nothing says."""
    store, backend = small_run()
    store.put_parts([state_part(sample.RUN, 6, 6_000_002, sample.P, [body]) for body in (b"one", b"two")])
    assert verified(backend).problems == ()
    path = next(path for path in backend.files() if f"{6_000_002:016}-P" in path)
    whole = backend.get(path)
    backend.instead = {path: whole[:-1] + b"x"}
    assert any(f"offsets from byte {len(whole) // 2}" in problem for problem in verified(backend).problems)


def test_what_is_behind_the_last_part_is_found() -> None:
    """Behind the parts of a file there is another one, or damage."""
    _, backend = small_run()
    path = next(path for path in backend.files() if f"{sample.SNAPSHOT_ID:016}-P" in path)
    backend.instead = {path: backend.get(path) + b"more"}
    assert any("inside its envelope" in problem and path[5:] in problem for problem in verified(backend).problems)


def test_every_missing_file_is_found() -> None:
    """All but an aborted record and a part that nothing lists: their absence means nothing."""
    for path in files_of_small_run():
        store, backend = small_run()
        store.take_claim(Claim(8, "o", "life 8"))
        store.write_base(Base(8, sample.SNAPSHOT_ID))
        backend.delete(path)
        unneeded = (
            "checkpoints/" in path or f"{6_000_001:016}" in path or f"{sample.SNAPSHOT_ID + 1:016}.manifest" in path
        )
        assert bool(verified(backend).problems) != unneeded, path


def test_swapped_files_are_found() -> None:
    """Any two files of one sort in each other's place."""
    paths = files_of_small_run()
    for one, other in [(a, b) for a in paths for b in paths if a < b]:
        _, backend = small_run()
        backend.instead = {one: backend.get(other), other: backend.get(one)}
        assert verified(backend).problems, (one, other)


# ---- pieces of keyed state, own state in deltas, and logs of steps


def keyed_run() -> tuple[RunStore, Tampered, tuple[Handle, ...]]:
    """A snapshot with two pieces of a generation, the whole own state and a step, each in a file of its own."""
    store = RunStore(backend := Tampered(), sample.RUN)
    store.take_claim(Claim(1, "o", "life"))
    store.write_base(Base(1, None))
    origin, half = (sample.RUN, 1, 1_000_001, sample.P), KEY_GROUPS // 2
    made = [rows_part(*origin, (1, 1), each, [b"rows"], 1) for each in ((0, half), (half, KEY_GROUPS))]
    made += [own_part(*origin, (0, 0), [b"own"]), steps_part(*origin, (0, 0), [b"step"])]
    first, second, own, step = store.put_rows(made, inline=False)
    p, q = (replace(each, incarnation=1) for each in sample.records())
    keyed = replace(p, groups=(0, KEY_GROUPS), rows=(whole(first), whole(second)), own=(own,), steps=(step,))
    assert store.write_manifest(replace(sample.manifest((keyed, q), 1_000_001), incarnation=1, claim=1))
    return store, backend, (first, second, own, step)


def test_pieces_are_proved_and_referenced() -> None:
    """A sound run has no problems, and none of its pieces is mentioned as unreferenced."""
    store, backend, _ = keyed_run()
    assert (verified(backend).problems, verified(backend).unreferenced) == ((), ())
    store.put_rows([rows_part(sample.RUN, 1, 1_000_002, sample.P, (2, 2), (0, 9), [b"later"], 1)], inline=False)
    assert len(verified(backend).unreferenced) == 1 and verified(backend).problems == ()


@pytest.mark.parametrize("number", range(4))
def test_every_damaged_piece_is_named(number: int) -> None:
    """Flipped at any byte, of any length, missing, or swapped with another: by verification and at the restore."""
    store, backend, handles = keyed_run()
    handle = handles[number]
    path = f"{sample.RUN}/{handle.path}"
    data = backend.get(path)
    damaged = [data[:length] for length in range(len(data))]
    for offset in range(len(data)):
        flipped = bytearray(data)
        flipped[offset] ^= 1 << offset % 8
        damaged.append(bytes(flipped))
    damaged += [backend.get(f"{sample.RUN}/{other.path}") for other in handles if other != handle]
    for each in damaged:
        backend.instead = {path: each}
        assert any(str(handle.path) in problem for problem in verified(backend).problems)
        with pytest.raises(SnapshotCorrupt, match=str(handle.path)):
            store.read_part(handle)
    backend.instead = {path: data + b"x"}  # a restore reads no byte behind the piece
    assert any(str(handle.path) in problem for problem in verified(backend).problems)
    backend.instead = {}
    backend.delete(path)
    assert any(str(handle.path) in problem for problem in verified(backend).problems)
    with pytest.raises(SnapshotCorrupt, match=f"{handle.path}: the file is missing"):
        store.read_part(handle)


def test_strange_files_are_found() -> None:
    """A file that has no business here is named; the log of a DataFrame's rows has."""
    _, backend = small_run()
    backend.put_if_absent(f"{sample.RUN}/input/node/file.parquet", [b"x"])
    assert verified(backend).problems == ()
    backend.put_if_absent(f"{sample.RUN}/snapshots/0000000000000042.bak", [b"x"])
    assert verified(backend).problems == ("snapshots/0000000000000042.bak: no file that belongs here",)


@pytest.mark.parametrize("folder", ["parts", "snapshots", "claims", "bases"])
def test_a_folder_in_place_of_a_file_is_found(folder: str, tmp_path: Path) -> None:
    """Each stored file in turn became a folder, empty or not: that is damage with a name, never a bare system error."""
    for holds in ((), ("child",)):
        backend = FileSystemBackend(tmp_path / f"{len(holds)}", inlineBytesMax=0)
        store = RunStore(backend, sample.RUN)
        for number in range(1, 8):
            store.take_claim(Claim(number, "o", f"life {number}"))
        store.write_base(Base(7, None))
        written(store)
        path = next(path for path in backend.files(f"{sample.RUN}/{folder}"))
        file = Path(backend.root) / path
        file.unlink()
        file.mkdir()
        for name in holds:
            (file / name).touch()
        findings = verify_run(backend, sample.RUN)
        named = [text for text in findings.problems if path.removeprefix(f"{sample.RUN}/") in text or "missing" in text]
        # An empty folder in the only manifest's place is not listed, so the run has no snapshot, and its parts no user.
        assert named or (folder == "snapshots" and findings.unreferenced and not findings.history)
        if folder == "parts":
            with pytest.raises(SnapshotCorrupt, match=f"{path}: the file is missing, or a folder has its name"):
                store.read_snapshots(sample.CODEC)[0].verify()


def test_a_copy_that_differs_is_found() -> None:
    """A checkpoint with a whole envelope and one wrong copy, of each sort, is named, with the way out."""
    _, backend = small_run()
    claim, base = Claim(3, "o", "life 3"), Base(7, None)
    right = RunStore(backend, sample.RUN).read_checkpoint(CLAIMS_PER_CHECKPOINT)
    assert (right.claims[2], right.bases, right.aborted) == (claim, (base,), (sample.SNAPSHOT_ID + 1,))
    for wrong in (
        replace(right, claims=(replace(claim, owner="other"),)),
        replace(right, claims=(Claim(9, "o", "life 9"),)),
        replace(right, bases=(Base(7, sample.SNAPSHOT_ID),)),
        replace(right, aborted=(sample.SNAPSHOT_ID,)),
    ):
        copy = Apart()
        forged = RunStore(copy, sample.RUN)
        for each in wrong.claims:
            forged.take_claim(each)
        forged._published.update(dict.fromkeys(wrong.aborted, False))
        forged.write_checkpoint(CLAIMS_PER_CHECKPOINT, wrong.bases)
        path = f"{sample.RUN}/{layout.checkpoint_path(CLAIMS_PER_CHECKPOINT)}"
        backend.instead = {path: copy.get(path)}
        named = [text for text in verified(backend).problems if text.endswith("remove this checkpoint")]
        assert [text.partition(":")[0] for text in named] == [layout.checkpoint_path(CLAIMS_PER_CHECKPOINT)]


def test_backends_by_url(tmp_path: Path) -> None:
    """What the command line is given opens the right backend."""
    for url in (str(tmp_path), f"file://{tmp_path}"):
        backend = backend_of(url)
        assert isinstance(backend, FileSystemBackend)
        assert backend.root == str(tmp_path)
    assert isinstance(backend_of("s3://bucket/prefix"), ObjectStoreBackend)


class Active(Tampered):
    """Memory in which an active run does `deed` behind the first listing."""

    deed: Callable[[], object] | None = None

    def _files(self, prefix: str) -> list[str]:
        found = super()._files(prefix)
        if self.deed is not None:
            deed, self.deed = self.deed, None
            deed()
        return found


def active_run() -> tuple[RunStore, Active]:
    """A run with a pinned snapshot, and a part of a pending one."""
    store = RunStore(backend := Active(), sample.RUN)
    store.take_claim(Claim(7, "o", "life 7"))
    store.write_base(Base(7, None))
    written(store)
    store.pins.hold(sample.SNAPSHOT_ID, PinKind.PINNED)
    store.put_parts([state_part(sample.RUN, 7, 7_000_005, sample.P, [b"pending"])])
    for number in range(1, 7):
        store.take_claim(Claim(number, "o", f"life {number}"))
    return store, backend


@pytest.mark.parametrize("kind", ["parts/", "pins/", "snapshots/"])
def test_what_an_active_run_removes_is_no_fault(kind: str) -> None:
    """Retention goes on behind the listing: manifests, then their parts and pins."""
    _, backend = active_run()
    assert verified(backend).problems == ()
    folder = layout.run_folder(sample.RUN)
    gone = [path for path in backend.files() if path.startswith((f"{folder}/{kind}", f"{folder}/snapshots/"))]
    assert any(kind in path for path in gone)
    backend.deed = lambda: backend.delete(*gone)
    assert verified(backend).problems == ()


def test_what_an_active_run_writes_is_no_fault() -> None:
    """A rollback and a snapshot come behind the listing."""
    store, backend = active_run()

    def go_on() -> None:
        store.take_claim(Claim(8, "o", "life 8"))
        store.write_base(Base(8, sample.SNAPSHOT_ID))
        store.write_manifest(replace(sample.manifest(), claim=8, incarnation=8, snapshot_id=8_000_001))

    backend.deed = go_on
    assert verified(backend).problems == ()
