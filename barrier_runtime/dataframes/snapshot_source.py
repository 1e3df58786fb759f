"""Stored snapshots as DataFrames: ``spark.read.format("cutline").load(path)``, a Python data source of Spark.

Owns the options, and the way from a store to Spark's tasks. `barrier_runtime.dataframes.snapshot_rows` has the columns.
Spark lists the pieces of a snapshot in one process. Each task reads, checks and merges its pieces.
"""

from __future__ import annotations

import base64
import pickle
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from cutline.barrier_runtime.dataframes.snapshot_rows import SCHEMA, Opening, Piece, plan, read
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.stored.backend import StateBackend
from cutline.snapshot.stored.run_store import RunStore, runs, stored_history
from cutline.snapshot.stored.signed import with_signing_key
from cutline.snapshot.stored.snapshot import Snapshot
from cutline.state_backends.object_store import ObjectStoreBackend
from cutline.state_backends.verify import backend_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Options of the source. Others go to the object store. Spark makes the names lower-case.
_OPTIONS: Final = ("path", "run", "snapshotid", "node", "raw", "trusted", "signingkey", "backendsecret")


class SnapshotDataSource(DataSource):
    """The rows of one stored snapshot. `docs/MEND.md` explains columns and options."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "cutline"

    def schema(self) -> StructType:
        """Return the columns."""
        return from_arrow_schema(SCHEMA)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of the snapshot that the options name."""
        return _Reader({name.lower(): value for name, value in self.options.items()})


@dataclass
class _Partition(InputPartition):
    """Pieces of a snapshot that one task reads."""

    snapshot_id: int
    pieces: tuple[Piece, ...]


class _Reader(DataSourceReader):
    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options
        self._backend = _backend(options)
        self._run = _run(options.get("run"), self._backend)
        self._opening = Opening(raw=_flag(options, "raw"), trusted=_flag(options, "trusted"))

    def partitions(self) -> list[InputPartition]:
        snapshot = self._snapshot()
        return [_Partition(snapshot.id, pieces) for pieces in plan(snapshot, self._options.get("node"))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Partition)
        store = RunStore(self._backend, self._run)
        return read(partition.pieces, partition.snapshot_id, store.read_part, self._opening)

    def _snapshot(self) -> Snapshot:
        store = RunStore(self._backend, self._run)
        given = self._options.get("snapshotid")
        if given is not None and not given.isdecimal():
            raise ValueError(f"option snapshotId={given!r}: give the id of a snapshot, as 7000042")
        chain = stored_history(store)
        if given is None and not chain:
            raise FileNotFoundError(f"{self._backend}: run {self._run!r} has no snapshot yet")
        return store.read_snapshot(chain[-1] if given is None else int(given), Codec(safe=True))


def read_snapshot(spark: SparkSession, backend: StateBackend, run: str, snapshot_id: int | None) -> DataFrame:
    """Return the rows of a snapshot in `backend`, which goes to Spark's tasks with its credentials and signing key.

    Parameters
    ----------
    spark : SparkSession
        A session in which `SnapshotDataSource` is registered.
    backend : StateBackend
        Must be picklable, with its files.
    run : str
    snapshot_id : int or None
        None: the newest.
    """
    reader = spark.read.format(SnapshotDataSource.name()).option("run", run)
    reader = reader.option("backendSecret", base64.b64encode(pickle.dumps(backend)).decode())
    return (reader if snapshot_id is None else reader.option("snapshotId", snapshot_id)).load()


def _backend(options: Mapping[str, str]) -> StateBackend:
    if "backendsecret" in options:
        backend: StateBackend = pickle.loads(base64.b64decode(options["backendsecret"]))
        return backend
    if "path" not in options:
        raise ValueError('give the place of the backend: spark.read.format("cutline").load(path)')
    others: dict[str, Any] = {name: value for name, value in options.items() if name not in _OPTIONS}
    backend = backend_of(options["path"])
    if others and isinstance(backend, ObjectStoreBackend):
        backend = ObjectStoreBackend(options["path"], **others)
    elif others:
        raise ValueError(f"unknown options {', '.join(sorted(others))}; there are run, snapshotId, node, raw, trusted, "
                         "signingKey")  # fmt: skip
    return with_signing_key(backend, _signing_key(options.get("signingkey")))


def _signing_key(text: str | None) -> bytes | None:
    try:
        return None if text is None else bytes.fromhex(text)
    except ValueError:
        raise ValueError("option signingKey: give the key in hexadecimal digits, as signingKey.hex()") from None


def _run(given: str | None, backend: StateBackend) -> str:
    found = runs(backend)
    if given is None and len(found) == 1:
        return found[0]
    if given not in found:
        what = "several runs, so name one" if given is None and found else f"no run {given!r}" if given else "no run"
        raise ValueError(f"{backend} holds {what}; option run: {', '.join(found) or 'there are none'}")
    return given


def _flag(options: Mapping[str, str], name: str) -> bool:
    value = options.get(name, "false").lower()
    if value not in ("true", "false"):
        raise ValueError(f"option {name}={options[name]!r}: give true or false")
    return value == "true"
