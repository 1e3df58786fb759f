"""Snapshots as rows, without Spark: the plan and the batches against the readers of `Snapshot`."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from cutline import FileSystemBackend, GraphError, Snapshot, SnapshotEditor, Subtask
from cutline.barrier_runtime.dataframes import snapshot_rows
from cutline.barrier_runtime.dataframes.json_text import text_of_key, text_of_value
from cutline.barrier_runtime.dataframes.snapshot_rows import SCHEMA, Opening, plan, read
from cutline.barrier_runtime.dataframes.snapshot_source import SnapshotDataSource
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.errors import SnapshotCorrupt
from cutline.snapshot.plan.topology import KEY_GROUPS
from cutline.snapshot.stored.certificate import ListEntry
from cutline.snapshot.stored.run_store import RunStore
from tests.snapshot import sample
from tests.snapshot.editing.mended_runs import RUN, in_memory, opened, simulated
from tests.stored_format.generate import FIXTURES, FORMAT_2, Fixture

_ALL = Opening(raw=False, trusted=True)

Row = dict[str, Any]


def rows_of(snapshot: Snapshot, node: str | None = None, opening: Opening = _ALL) -> list[Row]:
    """All rows of a snapshot."""
    batches: list[Any] = []
    for pieces in plan(snapshot, node):
        batches += read(pieces, snapshot.id, snapshot.read_part, opening)
    assert all(batch.schema == SCHEMA for batch in batches)
    return [row for batch in batches for row in batch.to_pylist()]


def of_kind(rows: list[Row], *kinds: str) -> list[Row]:
    """The rows of these kinds."""
    return [row for row in rows if row["kind"] in kinds]


def keyed_texts(snapshot: Snapshot, node: str, state: str) -> set[tuple[str, str | None, str]]:
    """(key, sub, value) of one state, from the reader of `Snapshot`."""
    found: set[tuple[str, str | None, str]] = set()
    for key, value in snapshot.node(node).keyedState(state).items():
        inner: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
        if inner is None or state == "last":
            found.add((text_of_key(key), None, text_of_value(value)))
        else:
            found |= {(text_of_key(key), text_of_key(sub), text_of_value(each)) for sub, each in inner}
    return found


def check_rows(snapshot: Snapshot, node: str, states: tuple[str, ...]) -> None:
    """Demand the rows of keyed states that the reader of `Snapshot` finds."""
    rows = of_kind(rows_of(snapshot, node), "row")
    for state in states:
        found = [(row["key"], row["sub"], row["value"]) for row in rows if row["state"] == state]
        assert len(found) == len(set(found))
        assert set(found) == keyed_texts(snapshot, node, state)
    assert {row["state"] for row in rows} == set(states)


@pytest.fixture
def snapshot() -> Snapshot:
    """Rows of each kind, timers, own state in deltas, and messages in flight."""
    files, _ = simulated()
    return opened(in_memory(files))


STATES = ("last", "words", "brief", "entries", "n")


def test_rows_are_those_of_keyed_state(snapshot: Snapshot) -> None:
    """Values, lists, maps and totals; keys have their group, and only states with a time-to-live expire."""
    check_rows(snapshot, "kinds", STATES)
    for row in of_kind(rows_of(snapshot), "row"):
        assert (row["expires"] is not None) == (row["state"] in ("brief", "entries"))
        assert Codec().decode(row["key_bytes"]) == json.loads(row["key"])
        lo, hi = snapshot.records("kinds")[row["subtask"]].groups or (0, 0)
        assert lo <= row["key_group"] < hi


def test_states_timers_and_messages_are_rows(snapshot: Snapshot) -> None:
    """Own state in deltas is a row a change; a message has its number on its channel."""
    rows = rows_of(snapshot)
    kinds = [row for row in of_kind(rows, "state") if row["node"] == "kinds"]
    changes = [[json.loads(row["value"]) for row in kinds if row["subtask"] == index] for index in (0, 1)]
    assert changes == snapshot.node("kinds").changes
    timers = {(row["key"], row["sub"]) for row in of_kind(rows, "timer")}
    assert timers == {('"a"', "5000.0"), ('"b"', "5000.0"), ('"c"', "5000.0")}
    messages = of_kind(rows, "received", "sent")
    found = [(row["sequence"], json.loads(row["value"])) for row in messages]
    assert found == [(4, ["a", 3]), (5, ["b", 4]), (6, ["c", 5])]
    for row in messages:
        assert (row["source"], row["target"]) == ("words[0]", "kinds[1]")
        assert str(snapshot.channels[row["channel_number"]]) == "words[0]->kinds[1]"
        assert tuple(Codec().decode(row["value_bytes"])) == tuple(json.loads(row["value"]))
        holder = Subtask("kinds", 1) if row["kind"] == "received" else Subtask("words")
        assert Subtask(row["node"], row["subtask"]) == holder


def test_one_node_alone(snapshot: Snapshot) -> None:
    """The rows of a node are those that name the node; another name is refused."""
    assert rows_of(snapshot, "kinds") == [row for row in rows_of(snapshot) if row["node"] == "kinds"]
    with pytest.raises(GraphError, match="no node 'nowhere'; the graph's nodes are words, kinds, out"):
        plan(snapshot, "nowhere")


def test_raw_decodes_nothing(snapshot: Snapshot) -> None:
    """Keys and values are null, and their bytes are as otherwise."""
    raw = rows_of(snapshot, opening=Opening(raw=True, trusted=False))
    assert {row["value"] for row in raw} == {row["key"] for row in raw} == {None}
    assert [(row["key_bytes"], row["value_bytes"]) for row in raw] == [
        (row["key_bytes"], row["value_bytes"]) for row in rows_of(snapshot)
    ]


def test_edited_rows_are_newest(snapshot: Snapshot) -> None:
    """Set values replace, and cleared ones are gone: of several segments the newest row counts."""
    edited = SnapshotEditor(snapshot).setValue("kinds", "words", "a", ["x", "y"]).clear("kinds", "n", "b").write("copy")
    check_rows(edited, "kinds", STATES)


def test_any_division_gives_the_same_rows(snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small ranges make many tasks, and none misses, repeats or revives a row."""
    edited = SnapshotEditor(snapshot).setValue("kinds", "words", "a", ["x"]).clear("kinds", "n", "b").write("copy")
    whole = rows_of(edited)
    monkeypatch.setattr(snapshot_rows, "_TOGETHER_BYTES_MAX", 1)
    monkeypatch.setattr(snapshot_rows, "_BATCH_ROWS", 2)
    assert len(plan(edited, None)) > 8
    assert sorted(map(repr, rows_of(edited))) == sorted(map(repr, whole))


@pytest.mark.parametrize(("more", "tasks"), [(0, 1), (1, 2)])
def test_a_task_reads_16_mib(more: int, tasks: int) -> None:
    """Small parts are read together up to the bound, and with a byte more by two tasks. The plan reads no part."""
    first, *others = sample.records()
    small = sum(handle.size for record in (first, *others) for handle in record.handles) - first.state.size
    state = replace(first.state, size=16 * 1024 * 1024 - small + more)
    records = (replace(first, handles=(state, *first.handles[1:])), *others)
    stored = Snapshot(sample.manifest(records), lambda handle: b"", sample.CODEC)
    assert len(plan(stored, None)) == tasks


def test_a_path_is_all_that_must_be_given(tmp_path: Path) -> None:
    """The only run and its newest snapshot are then read, here without Spark. Without a path the error asks for one."""
    files, _ = simulated()
    backend = FileSystemBackend(tmp_path)
    for path, data in files.items():
        assert backend.put_if_absent(path, [data])
    reader = SnapshotDataSource({"path": str(tmp_path)}).reader(StructType())
    rows: list[Row] = []
    for partition in reader.partitions():
        for batch in reader.read(partition):
            assert isinstance(batch, pa.RecordBatch)
            rows += batch.to_pylist()
    assert rows == rows_of(opened(backend))
    with pytest.raises(ValueError, match=r'the place of the backend: spark.read.format\("cutline"\).load\(path\)'):
        SnapshotDataSource({"run": RUN}).reader(StructType())


def test_clips_of_a_rescaled_list_are_read_only(snapshot: Snapshot) -> None:
    """Of a piece that two subtasks list each reads its own key groups, so that no row is there twice."""
    manifest = snapshot.manifest
    records = {str(record.subtask): record for record in manifest.records}
    first, second = records["kinds[0]"], records["kinds[1]"]
    entries = second.rows or ()
    lo, middle = (second.groups or (0, 0))[0], (second.groups or (0, 0))[0] + 8_000
    split = (0, middle)
    records["kinds[0]"] = replace(first, groups=split, rows=_clipped(entries, lo, middle))
    records["kinds[1]"] = replace(second, groups=(middle, KEY_GROUPS), rows=_clipped(entries, middle, KEY_GROUPS))
    # As a later incarnation restores the pieces, which are then nobody's own.
    later = tuple(replace(record, incarnation=9) for record in records.values())
    assert snapshot.backend is not None
    read_stored = RunStore(snapshot.backend, snapshot.run).read_stored
    rescaled = Snapshot(replace(manifest, incarnation=9, records=later), read_stored, Codec())
    rows = of_kind(rows_of(rescaled), "row")
    by_subtask = [{row["key_group"] for row in rows if row["subtask"] == index} for index in (0, 1)]
    assert all(group < middle for group in by_subtask[0])
    assert all(group >= middle for group in by_subtask[1])
    assert by_subtask[0] and by_subtask[1]
    check_rows(rescaled, "kinds", STATES)


def _clipped(entries: tuple[ListEntry, ...], lo: int, hi: int) -> tuple[ListEntry, ...]:
    inside = (ListEntry(each.handle, max(lo, each.lo), min(hi, each.hi)) for each in entries)
    return tuple(each for each in inside if each.lo < each.hi)


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda fixture: fixture.name)
def test_every_stored_fixture_can_be_read(fixture: Fixture) -> None:
    """Messages of each kind, batches too, are those of the reader of `Snapshot`, and so are states."""
    store = RunStore(FileSystemBackend(FORMAT_2 / fixture.name), fixture.graph().name)
    for snapshot_id in store.manifests():
        stored = store.read_snapshot(snapshot_id, Codec())
        if fixture.name == "lists" and stored.id > 2_000_001:
            continue  # its rows are plain text
        rows = rows_of(stored)
        for number, channel in enumerate(stored.channels):
            of_channel = [row for row in of_kind(rows, "received", "sent") if row["channel_number"] == number]
            found = [row["value"] for row in sorted(of_channel, key=lambda row: row["sequence"])]
            assert found == list(map(text_of_value, stored.channel(*channel).messages))
        for node in stored.nodes:
            if not any(record.own for record in stored.records(node)):
                states = [row["value"] for row in of_kind(rows, "state") if row["node"] == node]
                assert _plain(states) == _plain(list(map(text_of_value, stored.node(node).states)))


def _plain(texts: list[str]) -> list[str]:
    """Texts without the addresses of objects."""
    return [re.sub("at 0x[0-9a-f]+", "", text) for text in texts]


def test_pickles_are_opened_only_when_trusted() -> None:
    """Without trust a pickled object is null beside its bytes, and the messages around it are shown."""
    store = RunStore(FileSystemBackend(FORMAT_2 / "pickled"), "pickled")
    stored = store.read_snapshot(store.manifests()[-1], Codec())
    messages = of_kind(rows_of(stored), "received", "sent")
    safe = of_kind(rows_of(stored, opening=Opening(raw=False, trusted=False)), "received", "sent")
    assert [row["value"] is None for row in safe] != [row["value"] is None for row in messages]
    assert all(row["value"] is not None for row in messages)
    assert all(row["value_bytes"] for row in safe)


def test_an_unknown_control_frame_is_refused_by_name() -> None:
    """The rows never leave out a statement that they cannot read. An end is left out."""
    unknown = sample.manifest_with_sent(sample.sent_part(*sample.UNKNOWN_STATEMENT))
    whole, refused = (
        Snapshot(manifest, lambda handle: handle.inline or b"", sample.CODEC)
        for manifest in (sample.manifest(), unknown)
    )
    assert sorted(row["sequence"] for row in of_kind(rows_of(whole), "received", "sent")) == [3, 4, 5, 6, 7, 8]
    with pytest.raises(SnapshotCorrupt, match=r"P\[0\]->Q\[0\].*message 8 is a control frame"):
        rows_of(refused)


# ---------------------------------------------------------------- texts


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (None, "null"),
        (7, "7"),
        (1 << 70, str(1 << 70)),
        ("é", '"é"'),
        ("\ud800", '"\\ud800"'),
        (b"\x00\xff", '{"base64": "AP8="}'),
        (("a", (1, b"b")), '["a", [1, {"base64": "Yg=="}]]'),
    ],
)
def test_every_key_is_json(key: Any, text: str) -> None:
    """Each type that keys have, nested too."""
    assert text_of_key(key) == text
    json.loads(text)
    pa.array([text])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": [1, 2.5, None, True, ("t",)]}, '{"a": [1, 2.5, null, true, ["t"]]}'),
        ("text", '"text"'),
        (float("nan"), "nan"),
        ([float("inf")], "[inf]"),
        ({1: "one"}, "{1: 'one'}"),
        (b"bytes", "b'bytes'"),
        ({1, 2}, "{1, 2}"),
        (Subtask("a", 1), "Subtask(node='a', index=1)"),
        (["\ud800", b""], "['\\ud800', b'']"),
    ],
)
def test_a_value_is_json_or_its_repr(value: Any, text: str) -> None:
    """JSON where JSON can say it without loss, and never text that Arrow refuses."""
    assert text_of_value(value) == text
    pa.array([text])
