"""The stored names, literally, in records and files: a rename in the code must not change them.

`tests.snapshot.stored.test_keys` lists the keys of the tables. A new field makes a test here fail. A field that is None
by default is stored where it has a value. Any other field needs another number of the format.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgpack
import pyarrow as pa

from cutline import FileSystemBackend, MemoryBackend
from cutline.barrier_runtime.dataframes import input_log, staging
from cutline.snapshot.channel.frame import PayloadKind
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.operators.groups import TOTALS, Aggregates
from cutline.snapshot.plan.modes import InputLogging
from cutline.snapshot.plan.topology import KEY_GROUPS, Partitioning
from cutline.snapshot.stored import envelope, layout, manifest, part, run_store
from cutline.snapshot.stored.certificate import (
    ChannelWaves,
    ListEntry,
    LocalVersion,
    OwnStateKind,
    ReceivedEntry,
    SentEntry,
    StepBase,
)
from cutline.snapshot.stored.claim_digest import ClaimDigest
from cutline.snapshot.stored.history import Base, Claim
from cutline.snapshot.stored.manifest import SUBTASK_RECORD, decode_manifest, encode_manifest
from cutline.snapshot.stored.node_state import NodeState
from cutline.snapshot.stored.part import HANDLE, PartKind
from cutline.snapshot.stored.pins import PinKind
from cutline.snapshot.stored.recovery_report import (
    RECOVERY_REPORT,
    RecoveryReport,
    Relation,
    ReplayedLog,
    SubtaskRecovery,
)
from cutline.snapshot.stored.topology_record import record_of_topology
from cutline.snapshot.trace_events import Kind
from tests.snapshot import sample
from tests.snapshot.sample import PQ
from tests.snapshot.stored.test_keys import NAMES
from tests.stored_format.generate import FIXTURES, FORMAT_2
from tests.stored_format.generate_live import FORMAT_2_LIVE

#: records that no fixture has
NEW = ("RECOVERY_REPORT", "SUBTASK_RECOVERY", "REPLAYED_LOG", "INDEPENDENT_RECORD")

#: {record: names that are stored only where they have a value}
OPTIONAL = {
    "MANIFEST": ["written_by", "edited_from", "recovery"],
    "SUBTASK_STATUS": ["partitions", "own_state"],
    "EDGE": ["on_error"],
    "SUBTASK_RECORD": ["groups", "rows", "own", "waves", "steps", "base", "version"],
    "NODE_STATE": ["log_run"],
    "TOPOLOGY": ["mode"],
    "HANDLE": ["groups", "rows"],
    "NODE": ["acts_on_end", "formerly", "state_version", "migrations", "message_version", "is_aggregate"],
}

#: {record: optional names that no fixture has}
ABSENT = {
    "MANIFEST": ["written_by", "edited_from", "recovery"],
    "EDGE": ["on_error"],
    "SUBTASK_RECORD": ["waves", "steps", "base", "version"],
    "NODE_STATE": ["log_run"],
    "TOPOLOGY": ["mode"],
    "NODE": ["formerly", "state_version", "migrations", "message_version", "is_aggregate"],
}


def names(record: str) -> list[str]:
    """The stored names of a record."""
    return NAMES[record].split()


def usual(record: str) -> list[str]:
    """The stored names of a record that are always stored."""
    return [name for name in names(record) if name not in OPTIONAL.get(record, ())]


# ---------------------------------------------------------------- records


def _maps() -> Iterator[tuple[str, dict[str, Any]]]:
    """All maps that the fixtures hold, each with the name of its record."""
    for fixture in FIXTURES:
        backend = FileSystemBackend(FORMAT_2 / fixture.name)
        files = {path: backend.get(path) for path in backend.files()}
        for path, data in files.items():
            if data[:4] == b"CLAB":
                yield "ABORTED", msgpack.unpackb(data[30:])
            elif data[:4] == b"CLMF":
                stored = msgpack.unpackb(data[30:])
                yield "MANIFEST", stored
                yield from _maps_of_topology(stored["topology"])
                yield from _maps_of_records(stored["records"], files, path.partition("/")[0])


def _maps_of_topology(topology: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "TOPOLOGY", topology
    yield from (("NODE", node) for node in topology["nodes"])
    yield from (("EDGE", edge) for edge in topology["edges"])
    yield from (("ALIGNMENT", edge["alignment"]) for edge in topology["edges"])
    yield from (("COMPONENT", component) for component in topology["components"])


def _maps_of_records(
    records: list[dict[str, Any]], files: dict[str, bytes], run: str
) -> Iterator[tuple[str, dict[str, Any]]]:
    for record in records:
        yield "SUBTASK_RECORD", record
        yield "SUBTASK_STATUS", record["standing"]
        yield from (("HANDLE", handle) for handle, *_ in record.get("rows", ()))
        yield from (("HANDLE", handle) for handle in record.get("own", ()))
        for handle in record["handles"]:
            yield "HANDLE", handle
            if handle["kind"] == 0:
                end = handle["offset"] + handle["size"]
                data = handle["inline"] or files[f"{run}/{handle['path']}"][handle["offset"] : end]
                body = data[34 + int.from_bytes(data[30:34], "big") :]
                yield "NODE_STATE", Codec().decode_state(body)


def test_what_lies_in_the_fixtures() -> None:
    """The stored maps have these keys, in this order, read by nothing of ours but the codec."""
    found: dict[str, dict[str, None]] = {}
    for record, stored in _maps():
        assert list(stored) == [name for name in names(record) if name in stored]
        assert set(usual(record)) <= set(stored)
        found.setdefault(record, {}).update(dict.fromkeys(stored))
    assert set(found) == set(NAMES) - set(NEW)
    absent = {record: [name for name in names(record) if name not in found[record]] for record in found}
    assert {record: absent_names for record, absent_names in absent.items() if absent_names} == ABSENT


def test_what_is_written_today() -> None:
    """Write all keys that are always stored, in their order, and read them back."""
    data = b"".join(bytes(chunk) for chunk in encode_manifest(sample.manifest()))
    stored = msgpack.unpackb(data[30:])
    assert list(stored) == usual("MANIFEST")
    log = ReplayedLog(Subtask("a"), Relation.BEHIND, 3, 4)
    report = RecoveryReport((SubtaskRecovery(Subtask("b"), 7, (("a", 1),), (log,)),))
    edited = replace(sample.manifest(), written_by="Python 3.11, Cutline 0.1.0", edited_from=41, recovery=report)
    data = b"".join(bytes(chunk) for chunk in encode_manifest(edited))
    assert list(msgpack.unpackb(data[30:])) == names("MANIFEST")
    assert decode_manifest(data, "m") == edited
    assert RECOVERY_REPORT.write(report) == {
        "subtasks": [
            {
                "subtask": ["b", 0],
                "record": 7,
                "checkpoint": [["a", 1]],
                "logs": [{"sender": ["a", 0], "relation": "behind", "first": 3, "last": 4}],
            }
        ]
    }
    data = b"".join(bytes(chunk) for chunk in encode_manifest(sample.manifest()))
    assert decode_manifest(data, "m") == sample.manifest()
    record = sample.records()[0]
    assert list(SUBTASK_RECORD.write(record)) == usual("SUBTASK_RECORD")
    assert list(HANDLE.write(record.handles[0])) == usual("HANDLE")
    assert list(record_of_topology(sample.TOPOLOGY)) == usual("TOPOLOGY")
    stepped = replace(sample.TOPOLOGY, mode=InputLogging())
    assert list(record_of_topology(stepped)) == names("TOPOLOGY")
    assert record_of_topology(stepped)["mode"] == {"name": "inputLogging"}
    assert list(record_of_topology(sample.TOPOLOGY)["edges"][0]) == usual("EDGE")
    assert list(SUBTASK_RECORD.write(record)["standing"]) == usual("SUBTASK_STATUS")
    status = replace(record.status, partitions=("a", "b"), own_state=OwnStateKind.OFFSETS)
    reading = replace(record, status=status, waves=(ChannelWaves(PQ, ((3, 1), (5, 2))),))
    assert list(SUBTASK_RECORD.write(reading)["standing"]) == names("SUBTASK_STATUS")
    assert SUBTASK_RECORD.read(SUBTASK_RECORD.write(reading)) == reading
    listed = part.rows_part("run", 7, 7_000_042, record.subtask, (0, 3), (0, 9), [b"rows"], 1).inline()
    assert list(HANDLE.write(listed)) == names("HANDLE")
    waves = reading.waves
    logged = (part.steps_part("run", 7, 7_000_042, record.subtask, (0, 3), [b"steps"]).inline(),)
    keyed = replace(record, groups=(0, KEY_GROUPS), rows=(ListEntry(listed, 2, 5),), own=(), waves=waves, steps=logged)
    keyed = replace(keyed, base=StepBase(7, 1, 3, (4, 5), (6,)))
    keyed = replace(keyed, version=LocalVersion("disk", "run", Subtask("a", 1), 7, 1000))
    assert SUBTASK_RECORD.write(keyed)["version"] == ["disk", "run", ["a", 1], 7, 1000]
    assert SUBTASK_RECORD.write(keyed)["base"] == [7, 1, 3, [4, 5], [6]]
    assert list(SUBTASK_RECORD.write(keyed)) == names("SUBTASK_RECORD")
    assert SUBTASK_RECORD.read(msgpack.unpackb(msgpack.packb(SUBTASK_RECORD.write(keyed)))) == keyed
    state = NodeState(1, None, [], 0.0, [], False, False, [], {})
    assert list(Codec().decode_state(b"".join(state.encode(Codec())))) == usual("NODE_STATE")
    logged_state = replace(state, log_run="run")
    assert list(Codec().decode_state(b"".join(logged_state.encode(Codec())))) == names("NODE_STATE")


def test_arrays() -> None:
    """Records that are stored as arrays: their order is their only name."""
    a, b = Subtask("a", 1), Subtask("b", 2)
    channel = ChannelId(a, b)
    assert part.SUBTASK.write(a) == ["a", 1]
    assert part.CHANNEL.write(channel) == [["a", 1], ["b", 2]]
    assert part.CHANNEL.read([["a", 1], ["b", 2]]) == channel
    record = replace(
        sample.records()[0], sent=(SentEntry(channel, 9, 7, 8, 9),), received=(ReceivedEntry(channel, 3, 7, 4, 6),)
    )
    stored = SUBTASK_RECORD.write(record)
    assert stored["sent"] == [[[["a", 1], ["b", 2]], 9, 7, 8, 9]]
    assert stored["received"] == [[[["a", 1], ["b", 2]], 3, 7, 4, 6]]
    assert SUBTASK_RECORD.read(stored) == record
    listed = part.rows_part("run", 7, 7_000_042, a, (0, 3), (0, 9), [b"rows"], 1).inline()
    keyed = SUBTASK_RECORD.write(replace(record, groups=(0, 32_768), rows=(ListEntry(listed, 2, 5),), own=()))
    assert (keyed["groups"], keyed["own"]) == ([0, 32_768], [])
    assert keyed["rows"] == [[HANDLE.write(listed), 2, 5]]
    assert (HANDLE.write(listed)["kind"], HANDLE.write(listed)["groups"]) == (3, [0, 9])


def test_claims_bases_and_headers() -> None:
    """Other arrays, as they are in files."""
    backend = MemoryBackend()
    run = run_store.RunStore(backend, "run")
    assert run.take_claim(Claim(2, "owner", "life"))
    assert run.write_base(Base(2, 1_000_007))
    stored = {path: msgpack.unpackb(backend.get(path)[30:]) for path in backend.files()}
    assert stored == {"run/claims/00000002": [2, "owner", "life"], "run/bases/00000002": [2, 1_000_007]}
    assert (run.read_claim(2), run.read_base(2)) == (Claim(2, "owner", "life"), Base(2, 1_000_007))
    run.write_checkpoint(9, run.bases())
    data = backend.get("run/checkpoints/00000009")
    assert (data[:4], msgpack.unpackb(data[30:])) == (b"CLCK", [9, [[2, "owner", "life"]], [[2, 1_000_007]], []])
    assert run.read_checkpoint(9) == ClaimDigest(9, (Claim(2, "owner", "life"),), (Base(2, 1_000_007),), ())
    data = b"".join(part.state_part("run", 7, 7_000_042, Subtask("count", 1), [b"body"]).buffers)
    origin = ["run", 7, 7_000_042, ["count", 1]]
    assert msgpack.unpackb(data[34:-4]) == [0, *origin, None]
    listed = ("run", 7, 7_000_042, Subtask("count", 1), (2, 3))
    data = b"".join(part.rows_part(*listed, (5, 9), [b"body"], 1).buffers)
    assert msgpack.unpackb(data[34:-4]) == [3, *origin, None, [5, 9], 2, 3]
    for make_part, kind in ((part.own_part, 4), (part.steps_part, 5)):
        data = b"".join(make_part(*listed, [b"body"]).buffers)
        assert msgpack.unpackb(data[34:-4]) == [kind, *origin, None, None, 2, 3]


# ---------------------------------------------------------------- numbers and words


def test_enums() -> None:
    """The values of enums are stored; their names are not."""
    assert [kind.value for kind in PartKind] == [0, 1, 2, 3, 4, 5]
    assert [kind.value for kind in PayloadKind] == [0, 1, 2, 3, 4]
    assert [kind.value for kind in PinKind] == ["pinned", "unpinned", "base", "fork", "removed"]
    assert [kind.value for kind in Kind] == [
        *("restored", "poll", "timer", "inject", "send", "receive", "end sent", "end received", "cut", "marker sent"),
        *("marker", "commit", "failed", "deployed", "published", "aborted", "refused", "fault"),
    ]
    assert [partitioning.value for partitioning in Partitioning] == [
        "forward",
        "rebalance",
        "hash",
        "broadcast",
        "directed",
    ]


def test_constants() -> None:
    """Magic numbers of files, and the number of key groups."""
    magics = (
        envelope.PART_MAGIC,
        envelope.MANIFEST_MAGIC,
        manifest.ABORTED_MAGIC,
        run_store.CLAIM_MAGIC,
        run_store.BASE_MAGIC,
    )
    assert magics == (b"CLPT", b"CLMF", b"CLAB", b"CLCL", b"CLBS")
    assert input_log.INPUT_LOG_MAGIC == b"CLIL"
    assert KEY_GROUPS == 32_768


def test_the_version_of_each_kind_of_file(tmp_path: Path) -> None:
    """Parts and manifests are of format 2, and all else of format 1."""
    store = run_store.RunStore(FileSystemBackend(tmp_path, inlineBytesMax=0), sample.RUN)
    claim = Claim(6_000_001, "A", "A1")
    assert store.take_claim(claim) and store.write_base(Base(claim.number, None))
    store.write_checkpoint(claim.number, store.bases())
    assert store.write_manifest(sample.manifest()) and store.write_manifest(manifest.Aborted(sample.RUN, 1))
    assert store.hold(sample.SNAPSHOT_ID, PinKind.PINNED)
    store.put_parts(sample.parts())
    files = [store.backend.get(path) for path in store.backend.files()]
    versions = {data[:4]: int.from_bytes(data[4:6], "big") for data in files}
    assert versions == {b"CLPT": 2, b"CLMF": 2, **dict.fromkeys((b"CLAB", b"CLCL", b"CLBS", b"CLCK", b"CLPN"), 1)}


def test_the_state_of_aggregates() -> None:
    """Columns of stored totals, and the metadata of totals that travel."""
    functions = {"a": ("x", "count"), "b": ("x", "sum"), "c": ("y", "min"), "d": ("y", "max"), "e": ("z", "mean")}
    asked = Aggregates(("k",), functions)  # type: ignore[arg-type]  # a dict of literals
    columns = ["k", "count(x)", "sum(x)", "count(y)", "min(y)", "max(y)", "count(z)", "sum(z)"]
    assert asked.state_names() == columns
    assert TOTALS == {b"cutline": b"totals"}


def test_paths_of_parts() -> None:
    """A part's path follows from its run and subtask, not from names in the code."""
    state = part.state_part("run", 7, 7_000_042, Subtask("count", 1), [b""]).handle
    digest = "19cc42d22f0890e880d4368dd0fdddca"
    assert layout.parts_path(state) == f"parts/00000007/0000000007000042-count-1-{digest}"


#: Modules of ours whose classes may stand in pickles of users' values; they keep their names for ever.
PICKLED_MODULES = {b"cutline.snapshot.ids"}


def test_modules_in_pickles() -> None:
    """Nothing stored by the framework itself is a pickle; a user's value may hold a public class of ours."""
    ours = re.compile(rb"\x8c.(cutline\.[a-z_.]+)", re.DOTALL)
    files = [path for root in (FORMAT_2, FORMAT_2_LIVE) for path in root.rglob("*") if path.is_file()]
    assert {module for path in files for module in ours.findall(path.read_bytes())} == PICKLED_MODULES
    # The fixtures that cover pickle hold such a value; no other fixture needs pickle to be read.
    for fixture in FIXTURES:
        if fixture.name not in ("pickled", "reused", "large_state", "lists"):  # parts of `lists` are plain text
            backend = FileSystemBackend(FORMAT_2 / fixture.name)
            for snapshot in run_store.RunStore(backend, fixture.graph().name).read_snapshots(Codec(safe=True)):
                has_deltas = {node for node in snapshot.nodes if any(each.own for each in snapshot.records(node))}
                assert [snapshot.node(node).states for node in snapshot.nodes if node not in has_deltas]
                assert all(snapshot.node(node).changes for node in has_deltas)
                assert [snapshot.channel(*channel).messages for channel in snapshot.channels]


def test_prepared_files(tmp_path: Any) -> None:
    """Names in the prepared output of a ParquetSink."""
    staged = staging.Staging(str(tmp_path), "run", Subtask("out"), 1, pa.schema([("x", pa.int64())]))
    staged.file().add_row((1,))
    prepared = staged.prepare(1_000_001)
    assert prepared is not None
    assert list(prepared) == ["staged", "published", "rows", "size_bytes"]
    assert prepared["staged"].startswith("_staging/run/out/0/00000001-")
    assert prepared["published"].startswith("part-00000-00000001000001-")
