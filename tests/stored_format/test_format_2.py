"""Stored snapshots of format 2: read field by field, lists included, and restored."""

from __future__ import annotations

import pytest

from cutline import FileSystemBackend, Subtask
from cutline.snapshot.coordinator.recovery import plan_restore
from cutline.snapshot.coordinator.run_state import Outcome
from cutline.snapshot.keyed.rows import StateKind
from cutline.snapshot.keyed.segment import decode_piece
from cutline.snapshot.stored.manifest import Manifest
from cutline.snapshot.stored.run_store import RunStore
from cutline.snapshot.stored.topology_record import topology_of_record
from cutline.state_backends.verify import verify_run
from cutline.testing import Simulator
from tests.stored_format.contents import contents, with_one_kind_of_tuples, without_bytes
from tests.stored_format.expected import CONTENTS, OUTPUT
from tests.stored_format.generate import Fixture
from tests.stored_format.generate_2 import FIXTURES_2, FORMAT_2, OUT

#: Runs that hold the same as in format 1. The keyed timers of `timers` are rows now.
SAME_CONTENTS = ("claims", "partitions")

#: Output of the runs that are restored, from then on.
OUTPUT_2 = {
    **{name: OUTPUT[name] for name in ("claims", "partitions", "timers")},
    "keyed": [
        *(["last", "b", "be"], ["last", "n", "not"], ["last", "o", "one"], ["last", "q", "question"]),
        *(["words", "b", ["be", "be"]], ["words", "n", ["not"]], ["words", "o", ["or", "one"]]),
        *(["words", "q", ["question"]], ["lengths", "b", {"be": 2}], ["lengths", "n", {"not": 3}]),
        *(["lengths", "o", {"one": 3}], ["lengths", "q", {"question": 8}]),
        *(["n", "b", 2], ["n", "n", 1], ["n", "o", 2], ["n", "q", 1]),
        ["seen", ["be", "be", "not", "one", "or", "question"]],
        *(["last", "i", "is"], ["last", "t", "that"], ["words", "i", ["is"]], ["words", "t", ["to", "to", "that"]]),
        *(["lengths", "i", {"is": 2}], ["lengths", "t", {"that": 4}], ["n", "i", 1], ["n", "t", 3]),
        ["seen", ["is", "that", "to", "to"]],
        *(["rang", "t", 3], ["rang", "i", 1], ["rang", "o", 2], ["rang", "b", 2], ["rang", "n", 1], ["rang", "q", 1]),
    ],
}

#: The snapshots that `lists` adds.
FIRST, SECOND = 2_000_002, 2_000_003


def store_of(name: str) -> RunStore:
    """The store of a fixture's run."""
    graph = next(fixture.graph for fixture in FIXTURES_2 if fixture.name == name)
    return RunStore(FileSystemBackend(FORMAT_2 / name), graph().name)


def stored(name: str) -> dict[str, bytes]:
    """The files of a fixture, as they are on disk."""
    backend = FileSystemBackend(FORMAT_2 / name)
    return {path: backend.get(path) for path in backend.files()}


def manifest_of(snapshot_id: int) -> Manifest:
    """A manifest with lists."""
    manifest = store_of("lists").read_manifest(snapshot_id)
    assert isinstance(manifest, Manifest)
    return manifest


def test_each_folder_is_a_fixture() -> None:
    """No fixture is left out of the tests below."""
    assert sorted(fixture.name for fixture in FIXTURES_2) == sorted(path.name for path in FORMAT_2.iterdir())


@pytest.mark.parametrize("fixture", FIXTURES_2, ids=lambda fixture: fixture.name)
def test_a_run_is_proved(fixture: Fixture) -> None:
    """Prove each byte of each file. Parts and manifests are of format 2, and all else of format 1."""
    store = store_of(fixture.name)
    findings = verify_run(store.backend, store.run)
    assert (findings.problems, findings.unreferenced) == ((), ())
    files = {data[:4]: int.from_bytes(data[4:6], "big") for data in stored(fixture.name).values()}
    assert all(version == (2 if magic in (b"CLPT", b"CLMF") else 1) for magic, version in files.items())


@pytest.mark.parametrize("name", SAME_CONTENTS)
def test_contents(name: str) -> None:
    """The same states, messages and numbers as in format 1."""
    store = store_of(name)
    found = {snapshot_id: contents(store, snapshot_id) for snapshot_id in store.manifests()}
    assert with_one_kind_of_tuples(found) == with_one_kind_of_tuples(CONTENTS[name])


@pytest.mark.parametrize("name", OUTPUT_2)
def test_a_run_is_restored(name: str) -> None:
    """A run goes on from the newest snapshot and ends; its output is what was missing, in order."""
    fixture = next(each for each in FIXTURES_2 if each.name == name)
    simulator = Simulator(fixture.graph(), [], seed=fixture.seed, alignment=fixture.alignment, files=stored(name))
    history = simulator.finish()
    assert history.outcome is Outcome.FINISHED
    assert history.origins[max(history.origins)] is not None
    assert history.output("out") == OUTPUT_2[name]


@pytest.mark.parametrize("seed", range(4))
def test_keyed_state_is_restored_in_any_order(seed: int) -> None:
    """Restore each kind of state under random schedules with faults: the node ends with the same rows."""
    fixture = next(each for each in FIXTURES_2 if each.name == "keyed")
    history = Simulator(fixture.graph(), seed, faults=2, alignment=fixture.alignment, files=stored("keyed")).run()
    assert history.outcome is Outcome.FINISHED
    found, expected = (
        sorted(repr(row) for row in rows if row[0] != "rang") for rows in (history.output("out"), OUTPUT_2["keyed"])
    )
    assert found == expected


#: Stored form of a timer's time, and of True.
_AT, _SET = b"\xcb?\xf0\x00\x00\x00\x00\x00\x00", b"\xc3"

#: Sub-key of a list's length.
_LENGTH = b"\xc0"

#: {(incarnation, generation): its rows (state, key, sub-key, value, expiry)}, of the first subtask
KEYED_ROWS = {
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


def test_keyed_rows() -> None:
    """Segments of two claims, sorted: each kind of state, keyed timers, time-to-live and a tombstone."""
    store = store_of("keyed")
    manifest = store.read_manifest(2_000_002)
    assert isinstance(manifest, Manifest)
    (record,) = [each for each in manifest.records if each.subtask == Subtask("visits", 0)]
    assert record.rows is not None and record.own is not None
    found, kinds = {}, {}
    for entry in record.rows:
        segment = decode_piece(store.read_part(entry.handle), entry.handle.name)
        kinds.update({spec.name: (spec.kind, spec.ttl) for spec in segment.states})
        found[entry.handle.incarnation, entry.handle.first] = [
            (segment.states[row["state"]].name, row["key"], row["sub"], row["value"], row["expires"])
            for row in segment.rows.to_pylist()
        ]
    assert found == KEYED_ROWS
    assert kinds == {
        **{"last": (StateKind.VALUE, None), "words": (StateKind.LIST, None), "lengths": (StateKind.MAP, 3600.0)},
        **{"count": (StateKind.REDUCING, None), "#timers": (StateKind.TIMERS, None)},
    }
    own = [(each.incarnation, each.first, each.last) for each in record.own]
    assert own == [(1, 0, 1), (1, 2, 2), (2, 1, 1), (2, 2, 2)]


def test_lists() -> None:
    """Key groups, clips, generations, incarnations and bodies, of pieces in files and inside the manifest."""
    store = store_of("lists")
    found = {}
    for snapshot_id in (FIRST, SECOND):
        (record,) = [each for each in manifest_of(snapshot_id).records if each.subtask == OUT]
        assert record.groups == (0, 32_768) and record.rows is not None and record.own is not None
        rows = [
            (
                *(handle.incarnation, handle.first, handle.last, handle.groups, (entry.lo, entry.hi)),
                *(handle.path is None, bytes(store.read_part(handle)).decode()),
            )
            for entry in record.rows
            for handle in [entry.handle]
        ]
        own = [
            (each.incarnation, each.first, each.path is None, bytes(store.read_part(each)).decode())
            for each in record.own
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
    manifest = manifest_of(snapshot_id)
    plan = plan_restore(topology_of_record(manifest.topology), manifest, (), {})
    (out,) = [each for each in plan if each.subtask == OUT]
    (record,) = [each for each in manifest.records if each.subtask == OUT]
    assert (out.groups, out.rows, out.own) == (record.groups, record.rows, record.own)
    assert [(each.groups, each.rows, each.own) for each in plan if each is not out] == [(None, (), ())]


@pytest.mark.parametrize("fixture", FIXTURES_2, ids=lambda fixture: fixture.name)
def test_the_same_is_written(fixture: Fixture) -> None:
    """The code of today stores the same run: the same files, records and names.

    What a rescale must know of nodes, and the number of rows of a piece, are said since.
    """
    made, before = fixture.make(), stored(fixture.name)
    assert sorted(made) == sorted(before)
    for path in (path for path in made if "/parts/" not in path):
        written = without_bytes(path, made[path])
        if isinstance(written, dict):
            for record in written["records"]:
                record["standing"].pop("own_state", None)
                for handle, *_ in record.get("rows", ()):
                    handle.pop("rows", None)
            for node in written["topology"]["nodes"]:
                node.pop("acts_on_end", None)
        assert written == without_bytes(path, before[path]), path
    for path in (path for path in made if "-rows-" in path or "-own-" in path):
        assert made[path] == before[path], path
