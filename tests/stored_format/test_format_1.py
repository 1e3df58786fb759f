"""Stored snapshots of format 1: read field by field, and restored by runs that end with the right output."""

from __future__ import annotations

from collections import Counter
from copy import deepcopy
from dataclasses import replace
from typing import Any

import msgpack
import pyarrow as pa
import pytest

from cutline import FileSystemBackend, MemoryBackend
from cutline.snapshot.channel.frame import PayloadKind
from cutline.snapshot.channel.out_of_band_buffers import split_buffers
from cutline.snapshot.channel.partitioning import groups_of, key_group
from cutline.snapshot.coordinator.control import Deploy
from cutline.snapshot.coordinator.recovery import plan_restore
from cutline.snapshot.coordinator.run_state import Outcome
from cutline.snapshot.plan.compiled_graph import build
from cutline.snapshot.plan.partitions import with_partitions
from cutline.snapshot.stored import keys
from cutline.snapshot.stored.history import Base, Claim
from cutline.snapshot.stored.manifest import Aborted, Manifest
from cutline.snapshot.stored.node_state import NodeState
from cutline.snapshot.stored.part import Handle, PartKind, decode_frames
from cutline.snapshot.stored.run_store import RunStore, runs
from cutline.snapshot.subtask.inheritance import united
from cutline.snapshot.worker.restored_parts import read_parts
from cutline.state_backends.verify import verify_run
from cutline.testing import Simulator
from tests.stored_format import graphs
from tests.stored_format.contents import CODEC, contents, with_one_kind_of_tuples, without_bytes
from tests.stored_format.expected import CONTENTS, OUTPUT
from tests.stored_format.generate import FIXTURES, FORMAT_1, Fixture
from tests.stored_format.nodes import Blob

BY_NAME = {fixture.name: fixture for fixture in FIXTURES}

FIRST_CLAIM, FIRST_BASE = Claim(1, "A", "A1"), Base(1, None)


def stored(name: str) -> dict[str, bytes]:
    """The files of a fixture, as they are on disk."""
    backend = FileSystemBackend(FORMAT_1 / name)
    return {path: backend.get(path) for path in backend.files()}


def store_of(name: str) -> RunStore:
    """The store of a fixture's run."""
    return RunStore(FileSystemBackend(FORMAT_1 / name), BY_NAME[name].graph().name)


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
        for handle in record.handles
    ]


# ---------------------------------------------------------------- reading


def test_each_folder_is_a_fixture() -> None:
    """No fixture is left out of the tests below."""
    assert sorted(BY_NAME) == sorted(path.name for path in FORMAT_1.iterdir())


@pytest.mark.parametrize("name", BY_NAME)
def test_a_run_is_listed_and_proved(name: str) -> None:
    """Find one run, prove each byte of it, and find no file that belongs to nothing."""
    store = store_of(name)
    assert runs(store.backend) == [store.run]
    findings = verify_run(store.backend, store.run)
    # Proving a part opens no pickle, because the codec is a safe one.
    assert (findings.problems, findings.unreferenced) == ((), ())
    assert findings.history == tuple(snapshot.id for snapshot in store.read_snapshots(CODEC))
    assert all(origin in findings.history for origin in CONTENTS.get(name, ()))


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
    """Bytes, a batch and a pickled value's memory, each beside the state."""
    state = store_of("large_state").read_snapshot(1_000_001, CODEC).node("keeper").state
    zeros = bytes(64 * 1024)
    numbers = pa.record_batch({"zero": pa.array([0] * 8192)})
    assert state == [zeros, numbers, Blob(zeros), "small"]
    assert state[1].equals(numbers)


def test_claims_and_bases() -> None:
    """A first claim, a claim that goes on from a snapshot, and an aborted record in a manifest's place."""
    assert {name: store_of(name).claims() for name in BY_NAME if name != "claims"} == dict.fromkeys(
        [name for name in BY_NAME if name != "claims"], (FIRST_CLAIM,)
    )
    store = store_of("claims")
    assert store.claims() == (FIRST_CLAIM, Claim(2, "A", "A1"))
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


def test_the_partitions_of_old() -> None:
    """A snapshot without names of partitions is restored as it was cut, by position in the list."""
    manifest = manifest_of(store_of("partitions"), 1_000_001)
    assert {record.status.partitions for record in manifest.records} == {None}
    graph = graphs.partitions()
    compiled = with_partitions(build(graph, "unaligned"), graph)
    assert compiled.partitions == {"shelves": ("a", "b", "c")}
    compiled.partitions["shelves"] = ("c", "b", "a")
    plan = plan_restore(compiled.topology, manifest, (), compiled.partitions)
    assert {str(each.subtask): each.partitions for each in plan if each.partitions is not None} == {
        "shelves[0]": ("c", "a"),
        "shelves[1]": ("b",),
    }


def test_the_topology() -> None:
    """Each way to spread, each alignment, a cycle, and a key."""
    topology = manifest_of(store_of("partitions"), 1_000_001).topology
    edges = {f"{edge['source']} {edge['target']}": edge for edge in topology["edges"]}
    assert {name: (edge["spread"], edge["key"]) for name, edge in edges.items()} == {
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
    """Retention spares a snapshot that an old manifest marks as pinned."""
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


# ---------------------------------------------------------------- all that format 1 has


def test_every_kind_is_stored() -> None:
    """Each kind of part, each kind of frame, parts in files, inside a file, and inside a manifest."""
    found = []
    for store, handle in handles():
        found += [handle.kind.name, "inline" if handle.path is None else "behind another" if handle.offset else "first"]
        if handle.kind is not PartKind.STATE:
            found += [frame.kind.name for frame in decode_frames(handle, store.read_part(handle))]
    kinds = [kind.name for kind in PartKind if not kind.is_listed] + [kind.name for kind in PayloadKind]
    assert sorted(dict.fromkeys(found)) == sorted([*kinds, "inline", "behind another", "first"])


def test_every_extension_is_stored() -> None:
    """Tuples, pickles, batches, and memory beside a state: the numbers that a codec gives them."""
    codes: Counter[int] = Counter()

    def note(code: int, data: bytes) -> None:
        codes[code] += 1
        if code == 1:
            msgpack.unpackb(data, ext_hook=note, strict_map_key=False)

    for store, handle in handles():
        if handle.kind is PartKind.STATE:
            encoded, inside = split_buffers(store.read_part(handle))
            codes[0] += len(inside)
            msgpack.unpackb(encoded, ext_hook=note, strict_map_key=False)
    assert sorted(codes) == [0, 1, 2, 3, 4]
    assert codes[0] == 3


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
    # No fixture of format 1 logs steps.
    assert set(keys.NODE_STATE.values()) - {"log_run"} <= found | set(chance)
    version, numbers, gauss = chance["random"]
    assert (version, len(numbers), gauss) == (3, 625, None)


# ---------------------------------------------------------------- restoring


@pytest.mark.parametrize("name", BY_NAME)
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
@pytest.mark.parametrize("name", [name for name in BY_NAME if name != "large_state"])
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

    The bytes of a part may differ, because the codec may find a better way to write a value. So may the kind of a frame
    of flat tuples, because messages that were sent by reference are encoded together. Lists are new in format 2, and
    with them the timers of keys, which were in the state. Aggregates keep rows and parts of key groups since.
    """
    made = fixture.make()
    # A part that grew may be a file of its own.
    records, before = ([path for path in files if "/parts/" not in path] for files in (made, stored(fixture.name)))
    assert sorted(records) == sorted(before)
    for path in records:
        assert without_lists(path, made[path]) == without_lists(path, stored(fixture.name)[path]), path
    backend = MemoryBackend()
    for path, data in made.items():
        backend.put_if_absent(path, [data])
    store = RunStore(backend, BY_NAME[fixture.name].graph().name)
    expected = deepcopy(CONTENTS.get(fixture.name, {}))
    found = {snapshot_id: contents(store, snapshot_id) for snapshot_id in expected}
    if fixture.name == "timers":
        assert expected[1_000_001]["keyed[0]"].pop("timers")
    if fixture.name == "batches":
        groups, *_ = expected[1_000_001]["partial[0]"].pop("state")
        ((_, part),) = found[1_000_001]["partial[0]"].pop("state")
        assert pa.ipc.open_stream(part).read_all().to_pylist() == groups
        assert len(expected[1_000_001]["totals[0]"].pop("state")) == 2
        assert found[1_000_001]["totals[0]"].pop("state") == []
    assert with_one_kind_of_tuples(found) == with_one_kind_of_tuples(expected)


def without_lists(path: str, data: bytes) -> Any:
    """The file; of a manifest the record, without bytes, lists and what a rescale must know of nodes."""
    record = without_bytes(path, data)
    for each in record["records"] if isinstance(record, dict) else ():
        for name in ("groups", "rows", "own"):
            each.pop(name, None)
        each["standing"].pop("own_state", None)
    for node in record["topology"]["nodes"] if isinstance(record, dict) and "topology" in record else ():
        node.pop("acts_on_end", None)
    return record


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


def test_timers_with_keys_go_to_the_owners_of_their_keys() -> None:
    """Format 1 has them in the state. Over all takers each is there once, and those without a key go to one heir."""
    graph = graphs.timers()
    graph.nodes = [replace(each, parallelism=3) if each.name in ("keyed", "keyless") else each for each in graph.nodes]
    topology, manifest = build(graph, "unaligned").topology, manifest_of(store_of("timers"), 1_000_001)
    # Edges without a partitioning are no longer forward, and that needs a yes.
    plan = plan_restore(topology, manifest, ("changedGraph",), {})
    parts = read_parts(Deploy(2, tuple(plan), False), store_of("timers").read_part, lambda *_: None, CODEC)
    found: dict[str, list[Any]] = {"keyed": [], "keyless": []}
    for subtask, donors in parts.donors.items():
        states = [NodeState.decode(donor.state, CODEC) for donor in donors.donors]
        timers = united(donors, states, groups_of(subtask.index, 3)).timers
        assert all(key is None or key_group(key) in groups_of(subtask.index, 3) for _, key in timers)
        found[subtask.node] += timers
    assert sorted(found["keyed"]) == [(1.0, 7), (1.5, ("t", 8))]
    assert found["keyless"] == [(1.0, None), (1.5, None)]


def test_a_state_of_format_1_that_nobody_can_divide_is_refused() -> None:
    """The snapshot does not say how a state can be divided, so the worker refuses, with the way out."""
    graph = graphs.timers()
    graph.nodes = [replace(each, parallelism=2) if each.name == "keyed" else each for each in graph.nodes]
    history = Simulator(graph, [], files=stored("timers"), allow=("changedGraph",)).finish()
    assert history.outcome is Outcome.FAILED
    assert "keyed[0]: its node had another parallelism in the snapshot, and keeps a state of its own" in history.reason
