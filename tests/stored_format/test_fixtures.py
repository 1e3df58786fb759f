"""Stored snapshots: read field by field, lists included, and restored by runs that end with the right output."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import msgpack
import pyarrow as pa
import pytest
import xxhash

from cutline import FileSystemBackend, MemoryBackend, Subtask
from cutline.snapshot.channel.frame import PayloadKind
from cutline.snapshot.channel.out_of_band_buffers import split_buffers
from cutline.snapshot.coordinator.recovery import plan_restore
from cutline.snapshot.coordinator.run_state import Outcome
from cutline.snapshot.keyed.kinds import StateKind
from cutline.snapshot.keyed.rows_codec import decode_key
from cutline.snapshot.keyed.segment import Segment, decode_piece
from cutline.snapshot.plan.compiled_graph import build
from cutline.snapshot.plan.partitions import with_partitions
from cutline.snapshot.stored import keys
from cutline.snapshot.stored.certificate import SubtaskRecord
from cutline.snapshot.stored.envelope import ENVELOPE_BYTES
from cutline.snapshot.stored.history import Base, Claim
from cutline.snapshot.stored.manifest import Aborted, Manifest
from cutline.snapshot.stored.part import Handle, PartKind, decode_frames
from cutline.snapshot.stored.run_store import RunStore, runs
from cutline.snapshot.stored.topology_record import topology_of_record
from cutline.state_backends.verify import verify_run
from cutline.testing import Simulator
from tests.stored_format import graphs
from tests.stored_format.contents import CODEC, contents, without_bytes
from tests.stored_format.expected import CONTENTS, OUTPUT
from tests.stored_format.generate import FIXTURES, FORMAT_2, OUT, Fixture
from tests.stored_format.nodes import Blob

BY_NAME = {fixture.name: fixture for fixture in FIXTURES}

FIRST_CLAIM, FIRST_BASE = Claim(1, "A", "A1"), Base(1, None)

#: Runs in which a worker died.
TWO_CLAIMS = ("claims", "keyed", "lists")

#: The snapshots that `lists` adds.
FIRST, SECOND = 2_000_002, 2_000_003


def stored(name: str) -> dict[str, bytes]:
    """The files of a fixture, as they are on disk."""
    backend = FileSystemBackend(FORMAT_2 / name)
    return {path: backend.get(path) for path in backend.files()}


def store_of(name: str) -> RunStore:
    """The store of a fixture's run."""
    return RunStore(FileSystemBackend(FORMAT_2 / name), BY_NAME[name].graph().name)


def manifest_of(store: RunStore, snapshot_id: int) -> Manifest:
    """A manifest that is no aborted record."""
    manifest = store.read_manifest(snapshot_id)
    assert isinstance(manifest, Manifest)
    return manifest


def handles() -> list[tuple[RunStore, Handle]]:
    """All handles of all fixtures."""
    return [
        (store, handle)
        for store in map(store_of, BY_NAME)
        for snapshot_id in store.manifests()
        for record in manifest_of(store, snapshot_id).records
        for handle in record.all_handles
    ]


def record_of(name: str, snapshot_id: int, subtask: Subtask) -> SubtaskRecord:
    """The record of a subtask."""
    (record,) = [each for each in manifest_of(store_of(name), snapshot_id).records if each.subtask == subtask]
    return record


# ---------------------------------------------------------------- reading


def test_each_folder_is_a_fixture() -> None:
    """No fixture is left out of the tests below."""
    assert sorted(BY_NAME) == sorted(path.name for path in FORMAT_2.iterdir())


@pytest.mark.parametrize("name", BY_NAME)
def test_a_run_is_listed_and_proved(name: str) -> None:
    """Find one run, prove each byte of it, and find no file that belongs to nothing.

    Parts and manifests are of format 2, and all else of format 1.
    """
    store = store_of(name)
    assert runs(store.backend) == [store.run]
    findings = verify_run(store.backend, store.run)
    # Proving a part opens no pickle, because the codec is a safe one.
    assert (findings.problems, findings.unreferenced) == ((), ())
    assert findings.history == tuple(snapshot.id for snapshot in store.read_snapshots(CODEC))
    assert all(origin in findings.history for origin in CONTENTS.get(name, ()))
    versions = {data[:4]: int.from_bytes(data[4:6], "big") for data in stored(name).values()}
    assert all(version == (2 if magic in (b"CLPT", b"CLMF") else 1) for magic, version in versions.items())


@pytest.mark.parametrize("name", CONTENTS)
def test_contents(name: str) -> None:
    """States, timers, messages in order, offsets, prepared output and the certificate are what was stored."""
    store = store_of(name)
    assert {snapshot_id: contents(store, snapshot_id) for snapshot_id in store.manifests()} == CONTENTS[name]


def test_pickled_values_keep_their_types() -> None:
    """Equal is not enough: a named tuple equals a tuple."""
    messages = store_of("pickled").read_snapshot(1_000_001, CODEC).channel("keeper", "out").messages
    assert [type(message).__qualname__ for message in messages] == ["Point"]


def test_a_large_state() -> None:
    """Bytes, a batch, a pickled value's memory and a pickle, each beside the state."""
    snapshot = store_of("large_state").read_snapshot(1_000_001, CODEC)
    zeros = bytes(64 * 1024)
    numbers = pa.record_batch({"zero": pa.array([0] * 8192)})
    assert snapshot.node("keeper").state == [zeros, numbers, "small"]
    assert snapshot.node("blob").state == [Blob(zeros)]
    assert snapshot.node("objects").state == [Blob(zeros), ("z" * 64 * 1024,)]


def test_claims_and_bases() -> None:
    """A first claim, a claim that goes on from a snapshot, and an aborted record in a manifest's place."""
    for name in BY_NAME:
        assert store_of(name).claims() == ((FIRST_CLAIM, Claim(2, "A", "A1")) if name in TWO_CLAIMS else (FIRST_CLAIM,))
    store = store_of("claims")
    assert store.bases() == (FIRST_BASE, Base(2, 1_000_001))
    assert store.manifests() == (1_000_001, 2_000_001)
    assert store.read_manifest(1_000_002) == Aborted("prepared", 1_000_002)


def test_fields_of_manifests() -> None:
    """Fields of a manifest besides its records."""
    store = store_of("pinned")
    found = [manifest_of(store, snapshot_id) for snapshot_id in store.manifests()]
    assert [(m.run, m.snapshot_id, m.incarnation, m.claim, m.final, m.pinned) for m in found] == [
        ("prepared", 1_000_000, 1, 1, False, True),
        ("prepared", 1_000_001, 1, 1, False, False),
    ]
    final = manifest_of(store_of("finished"), 1_000_001)
    assert (final.final, final.pinned) == (True, False)
    assert [record.status.ended for record in final.records] == [True, True, True]
    timed = manifest_of(store_of("timers"), 1_000_001)
    assert (timed.timestamp, timed.duration) == (1.0, 0.0)
    statuses = {str(record.subtask): record.status for record in timed.records}
    assert [statuses[name].has_timers for name in ("source[0]", "keyed[0]", "keyless[0]")] == [False, True, True]
    second = manifest_of(store_of("claims"), 2_000_001)
    assert (second.incarnation, second.claim) == (2, 2)
    assert [record.status.uncommitted for record in second.records] == [(), (2_000_001,)]


def test_the_names_of_partitions() -> None:
    """A partition stays with the subtask that has its offset, in whatever order partitions are listed now."""
    manifest = manifest_of(store_of("partitions"), 1_000_001)
    names = {"shelves[0]": ("a", "c"), "shelves[1]": ("b",)}
    statuses = {str(record.subtask): record.status for record in manifest.records}
    assert {name: status.partitions for name, status in statuses.items() if status.partitions is not None} == names
    graph = graphs.partitions()
    compiled = with_partitions(build(graph, "unaligned"), graph)
    assert compiled.partitions == {"shelves": ("a", "b", "c")}
    compiled.partitions["shelves"] = ("c", "b", "a")
    plan = plan_restore(compiled.topology, manifest, (), compiled.partitions)
    assert {str(each.subtask): each.partitions for each in plan if each.partitions is not None} == names


def test_the_topology() -> None:
    """Each partitioning, each alignment, a cycle, and a key."""
    topology = manifest_of(store_of("partitions"), 1_000_001).topology
    edges = {f"{edge['source']} {edge['target']}": edge for edge in topology["edges"]}
    assert {name: (edge["partitioning"], edge["key"]) for name, edge in edges.items()} == {
        "shelves director": ("rebalance", None),
        "shelves turns": ("rebalance", None),
        "shelves all": ("broadcast", None),
        "director out": ("directed", None),
        "turns out": ("hash", "key_of()"),
        "all out": ("forward", None),
    }
    assert edges["shelves turns"]["alignment"] == {"aligned": True, "timeout": None}
    assert edges["shelves all"]["alignment"] == {"aligned": True, "timeout": 2.5}
    assert edges["all out"]["alignment"] == {"aligned": False, "timeout": None}
    cyclic = manifest_of(store_of("cycle"), 1_000_001).topology
    assert cyclic["components"] == [{"nodes": ["P", "Q"], "cyclic": True}]
    assert [edge["in_cycle"] for edge in cyclic["edges"]] == [True, True]


def test_a_pinned_snapshot_stays() -> None:
    """Retention spares a snapshot that its manifest marks as pinned."""
    assert not store_of("pinned").delete_snapshot(1_000_000, [1_000_001], claim=9)
    assert store_of("pinned").manifests() == (1_000_000, 1_000_001)


def test_a_reused_part_is_kept() -> None:
    """Removing an older snapshot leaves the parts that a newer one lists."""
    old, new = (manifest_of(store_of("reused"), number) for number in (1_000_001, 1_000_002))
    assert old.records == new.records
    paths = [handle.path for record in new.records for handle in record.handles]
    assert any(path is not None for path in paths)
    assert any(path is None for path in paths)
    assert {handle.snapshot_id for record in new.records for handle in record.handles} == {1_000_001}


# ---------------------------------------------------------------- other formats


def of_version(data: bytes, version: int) -> bytes:
    """A file whose first record says that it is of another version, and is whole."""
    end = ENVELOPE_BYTES + int.from_bytes(data[6:14], "big")
    prefix, content = data[:4] + version.to_bytes(2, "big") + data[6:14], data[ENVELOPE_BYTES:end]
    return prefix + xxhash.xxh3_128_digest(prefix + content) + content + data[end:]


#: One file of each kind, by its first bytes.
KINDS = {data[:4]: path for path, data in stored("claims").items()}


@pytest.mark.parametrize("is_older", [True, False], ids=["older", "newer"])
@pytest.mark.parametrize("magic", KINDS, ids=bytes.decode)
def test_a_file_of_another_version_is_refused(magic: bytes, is_older: bool) -> None:
    """By the name of the file, the version that it has, and the version that is read. No other file is at fault."""
    files, path = stored("claims"), KINDS[magic]
    expected = 2 if magic in (b"CLPT", b"CLMF") else 1
    found = expected - 1 if is_older else expected + 1
    files[path] = of_version(files[path], found)
    says = (
        re.escape(path.removeprefix("prepared/")) + rf".*: format version {found}, but this Cutline reads {expected}; "
    )
    backend = MemoryBackend()
    for each, data in files.items():
        backend.put_if_absent(each, [data])
    problems = verify_run(backend, "prepared").problems
    assert problems and all(re.search(says, each) for each in problems)


def test_no_run_is_restored_from_a_part_of_another_version() -> None:
    """The run fails with the same words, and leaves the files as they are."""
    files, path = stored("claims"), KINDS[b"CLPT"]
    files[path] = of_version(files[path], 1)
    before = dict(files)
    history = Simulator(graphs.prepared(), [], files=files).finish()
    assert history.outcome is Outcome.FAILED
    assert "format version 1, but this Cutline reads 2; use a release that reads it" in history.reason
    assert before.items() <= files.items()


# ---------------------------------------------------------------- all that the format has


def test_every_kind_is_stored() -> None:
    """Each kind of part but steps, each kind of frame, parts in files, inside a file, and inside a manifest."""
    found = []
    for store, handle in handles():
        found += [handle.kind.name, "inline" if handle.path is None else "behind another" if handle.offset else "first"]
        if handle.kind.is_of_channel:
            found += [frame.kind.name for frame in decode_frames(handle, store.read_part(handle))]
    kinds = [kind.name for kind in PartKind if kind is not PartKind.STEPS] + [kind.name for kind in PayloadKind]
    assert sorted(dict.fromkeys(found)) == sorted([*kinds, "inline", "behind another", "first"])


def test_every_extension_is_stored() -> None:
    """Pickles, batches, and memory beside a state: the numbers of extensions, and those of the kinds of memory."""
    codes, kinds, count = set(), [], 0

    def note(code: int, data: bytes) -> None:
        codes.add(code)
        if code == 4:
            kinds.append(msgpack.unpackb(data)[0])

    for store, handle in handles():
        if handle.kind is PartKind.STATE:
            encoded, inside = split_buffers(store.read_part(handle))
            count += len(inside)
            msgpack.unpackb(encoded, ext_hook=note, strict_map_key=False)
    assert codes == {2, 3, 4}
    assert sorted(kinds) == [0, 1, 2, 3]
    assert count == 5


def test_every_field_of_a_state_is_stored() -> None:
    """Each field is somewhere other than in a fresh subtask."""
    found = {
        name
        for snapshots in CONTENTS.values()
        for held in snapshots.values()
        for part in held.values()
        for name in part
    }
    chance = contents(store_of("chance"), 1_000_001)["dice[0]"]
    # No fixture logs steps.
    assert set(keys.NODE_STATE.values()) - {"log_run"} <= found | set(chance)
    version, numbers, gauss = chance["random"]
    assert (version, len(numbers), gauss) == (3, 625, None)


# ---------------------------------------------------------------- lists

#: Stored form of a timer's time, and of True.
_AT, _SET = b"\xcb?\xf0\x00\x00\x00\x00\x00\x00", b"\xc3"

#: Sub-key of a list's length.
_LENGTH = b"\xc0"

#: {(incarnation, generation): its rows (state, key, sub-key, value, expiry)}, of the first subtask
KEYED_ROWS: dict[tuple[int, int], list[tuple[Any, ...]]] = {
    (1, 1): [
        ("#timers", b"\xa1t", _AT, _SET, None),
        ("count", b"\xa1t", None, b"\x01", None),
        ("last", b"\xa1t", None, b"\xa2to", None),
        ("lengths", b"\xa1t", b"\xa2to", b"\x02", 3600.0),
        ("words", b"\xa1t", b"\x00", b"\xa2to", None),
        ("words", b"\xa1t", _LENGTH, b"\x01", None),
    ],
    (1, 2): [
        ("count", b"\xa1t", None, b"\x02", None),
        ("last", b"\xa1t", None, b"\xa2to", None),
        ("lengths", b"\xa1t", b"\xa2to", b"\x02", 3600.0),
        ("words", b"\xa1t", b"\x01", b"\xa2to", None),
        ("words", b"\xa1t", _LENGTH, b"\x02", None),
    ],
    (2, 1): [
        ("count", b"\xa1t", None, b"\x03", None),
        ("last", b"\xa1t", None, b"\xa4that", None),
        ("lengths", b"\xa1t", b"\xa2to", None, None),
        ("lengths", b"\xa1t", b"\xa4that", b"\x04", 3600.0),
        ("words", b"\xa1t", b"\x02", b"\xa4that", None),
        ("words", b"\xa1t", _LENGTH, b"\x03", None),
    ],
    (2, 2): [
        ("#timers", b"\xa1i", _AT, _SET, None),
        ("count", b"\xa1i", None, b"\x01", None),
        ("last", b"\xa1i", None, b"\xa2is", None),
        ("lengths", b"\xa1i", b"\xa2is", b"\x02", 3600.0),
        ("words", b"\xa1i", b"\x00", b"\xa2is", None),
        ("words", b"\xa1i", _LENGTH, b"\x01", None),
    ],
}


def segments_of(store: RunStore, record: SubtaskRecord) -> dict[tuple[int, int], Segment]:
    """{(incarnation, first generation): its piece} of the keyed state of a subtask."""
    handles = [entry.handle for entry in record.rows or ()]
    return {
        (handle.incarnation, handle.first): decode_piece(store.read_part(handle), handle.name) for handle in handles
    }


def rows_in(segment: Segment) -> list[tuple[Any, ...]]:
    """The rows of a piece, each (state, key, sub-key, value, expiry)."""
    return [
        (segment.states[row["state"]].name, row["key"], row["sub"], row["value"], row["expires"])
        for row in segment.rows.to_pylist()
    ]


def test_keyed_rows() -> None:
    """Segments of two claims, sorted: each kind of state, keyed timers, time-to-live and a tombstone."""
    record = record_of("keyed", 2_000_002, Subtask("visits"))
    segments = segments_of(store_of("keyed"), record)
    assert {generation: rows_in(segment) for generation, segment in segments.items()} == KEYED_ROWS
    assert {spec.name: (spec.kind, spec.ttl) for segment in segments.values() for spec in segment.states} == {
        **{"last": (StateKind.VALUE, None), "words": (StateKind.LIST, None), "lengths": (StateKind.MAP, 3600.0)},
        **{"count": (StateKind.REDUCING, None), "#timers": (StateKind.TIMERS, None)},
    }
    assert [entry.handle.rows for entry in record.rows or ()] == [len(rows) for rows in KEYED_ROWS.values()]
    own = [(each.incarnation, each.first, each.last) for each in record.own or ()]
    assert own == [(1, 0, 1), (1, 2, 2), (2, 1, 1), (2, 2, 2)]


def test_keyed_timers() -> None:
    """Timers with keys of each type, as rows, and no row of a timer that has fired."""
    (segment,) = segments_of(store_of("timers"), record_of("timers", 1_000_001, Subtask("keyed"))).values()
    timers = {(decode_key(sub), decode_key(key)): value for _, key, sub, value, _ in rows_in(segment)}
    assert timers == {(1.0, 7): _SET, (1.5, ("t", 8)): _SET}


def test_groups_of_aggregates() -> None:
    """The groups of an aggregate are rows. Those that are not sent have the number of their rows, and a time."""
    snapshot = store_of("batches").read_snapshot(1_000_001, CODEC)
    assert snapshot.node("totals").keyedState("groups") == {"a": [1, 1], "bb": [2, 4]}
    [[(_, unsent)]] = snapshot.node("partial").states
    assert msgpack.unpackb(pa.ipc.open_stream(unsent).schema.metadata[b"unsent"]) == [1, 1.0]


def test_lists() -> None:
    """Key groups, clips, generations, incarnations and bodies, of pieces in files and inside the manifest."""
    store = store_of("lists")
    found = {}
    for snapshot_id in (FIRST, SECOND):
        record = record_of("lists", snapshot_id, OUT)
        assert record.groups == (0, 32_768)
        rows = [
            (
                *(handle.incarnation, handle.first, handle.last, handle.groups, (entry.lo, entry.hi)),
                *(handle.path is None, bytes(store.read_part(handle)).decode()),
            )
            for entry in record.rows or ()
            for handle in [entry.handle]
        ]
        own = [
            (each.incarnation, each.first, each.path is None, bytes(store.read_part(each)).decode())
            for each in record.own or ()
        ]
        found[snapshot_id] = (rows, own)
    assert found == {
        FIRST: (
            [
                (1, 0, 3, (0, 16_384), (0, 16_384), False, "base, first half"),
                (1, 0, 3, (16_384, 32_768), (16_384, 30_000), False, "base, second half"),
                (1, 4, 4, (7, 900), (7, 900), True, "a delta"),
                (2, 1, 1, (0, 32_768), (0, 32_768), False, "one generation"),
                (2, 2, 5, (11, 12), (11, 12), True, "several generations"),
                (2, 2, 5, (11, 12), (11, 12), True, "the same key group"),
            ],
            [(1, 0, False, "whole"), (2, 1, True, "delta")],
        ),
        SECOND: ([(2, 0, 5, (0, 32_768), (0, 32_768), False, "a base")], [(2, 0, True, "whole again")]),
    }


@pytest.mark.parametrize("snapshot_id", [FIRST, SECOND])
def test_lists_are_restored(snapshot_id: int) -> None:
    """The plan of a restore has them in order, for the subtask that has them."""
    manifest = manifest_of(store_of("lists"), snapshot_id)
    plan = plan_restore(topology_of_record(manifest.topology), manifest, (), {})
    (out,) = [each for each in plan if each.subtask == OUT]
    record = record_of("lists", snapshot_id, OUT)
    assert (out.groups, out.rows, out.own) == (record.groups, record.rows, record.own)
    assert [(each.groups, each.rows, each.own) for each in plan if each is not out] == [(None, (), ())]


# ---------------------------------------------------------------- restoring


@pytest.mark.parametrize("name", OUTPUT)
def test_a_run_is_restored(name: str) -> None:
    """A run goes on from the newest snapshot and ends; its output is what was missing, in order."""
    fixture = BY_NAME[name]
    before = store_of(name).manifests()
    history = Simulator(
        fixture.graph(), [], seed=fixture.seed, alignment=fixture.alignment, files=stored(name)
    ).finish()
    assert history.outcome is Outcome.FINISHED
    assert tuple(snapshot.id for snapshot in history.snapshots[: len(before)]) == before
    assert history.origins[max(history.origins)] is not None
    assert history.output("P" if name == "cycle" else "out") == OUTPUT[name]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", [name for name in OUTPUT if name != "large_state"])
def test_a_run_is_restored_in_any_order(name: str, seed: int) -> None:
    """Restore under random schedules with faults: the output has the same rows."""
    fixture = BY_NAME[name]
    history = Simulator(fixture.graph(), seed, faults=2, alignment=fixture.alignment, files=stored(name)).run()
    assert history.outcome is Outcome.FINISHED
    out = history.output("P" if name == "cycle" else "out")
    assert _in_any_order(out) == _in_any_order(OUTPUT[name])


def _in_any_order(rows: list[Any]) -> list[str]:
    """The rows, without those that depend on when a timer is set."""
    return sorted(repr(row) for row in rows if not (isinstance(row, list) and row[0] == "rang"))


# ---------------------------------------------------------------- writing


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda fixture: fixture.name)
def test_the_same_is_written(fixture: Fixture) -> None:
    """The code of today stores the same run: the same files, records and names, and parts of the same contents.

    The bytes of a state or of a message may differ, because the codec may find a better way to write a value.
    """
    made, before = fixture.make(), stored(fixture.name)
    assert sorted(made) == sorted(before)
    for path in (path for path in made if "/parts/" not in path):
        assert without_bytes(path, made[path]) == without_bytes(path, before[path]), path
    for path in (path for path in made if "-rows-" in path or "-own-" in path):
        assert made[path] == before[path], path
    backend = MemoryBackend()
    for path, data in made.items():
        backend.put_if_absent(path, [data])
    store = RunStore(backend, fixture.graph().name)
    expected = CONTENTS.get(fixture.name, {})
    assert {snapshot_id: contents(store, snapshot_id) for snapshot_id in expected} == expected


# ---------------------------------------------------------------- restoring with another parallelism


def test_messages_are_put_on_other_channels() -> None:
    """Messages in flight of a rebalance and of a directed edge, in both parts, go to three directors instead of one."""
    graph = graphs.partitions()
    [director] = [node for node in graph.nodes if node.name == "director"]
    graph.nodes[graph.nodes.index(director)] = replace(director, parallelism=3)
    history = Simulator(graph, [], seed=BY_NAME["partitions"].seed, files=stored("partitions")).finish()
    assert history.outcome is Outcome.FINISHED, history.reason
    assert history.origins[max(history.origins)] == (1, 1_000_001)
    assert sorted(history.output("out")) == sorted(OUTPUT["partitions"])
    [manifest] = [each.manifest for each in history.snapshots if each.id == 1_000_001]
    moved = [handle for record in manifest.records for handle in record.handles if handle.channel is not None]
    assert sum(1 for handle in moved if handle.channel and handle.channel.target.node == "director") == 3


def test_a_state_that_nobody_can_divide_is_refused() -> None:
    """The snapshot says how a state can be divided, so the coordinator refuses, with the way out."""
    graph = graphs.timers()
    graph.nodes = [replace(each, parallelism=2) if each.name == "keyed" else each for each in graph.nodes]
    history = Simulator(graph, [], files=stored("timers"), allow=("changedGraph",)).finish()
    assert history.outcome is Outcome.FAILED
    assert "1 of its subtasks, keyed[0] first, keep a state of their own that nobody can divide" in history.reason
