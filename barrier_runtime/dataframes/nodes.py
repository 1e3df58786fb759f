"""Spark's DataFrames as input and output: `DataFrameSource` and `ParquetSink`.

Owns the hooks of the two nodes that users hold. `barrier_runtime.dataframes.input_log` has the files of the source,
and `barrier_runtime.dataframes.unread` its offsets. `barrier_runtime.dataframes.staging` has the files of the sink.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from cutline.barrier_runtime.dataframes.input_log import (
    InputLog,
    LogPlace,
    find_log,
    place_of,
    share_log,
)
from cutline.barrier_runtime.dataframes.log_writing import arrow_schema_of, remove_other_attempts, write_log
from cutline.barrier_runtime.dataframes.row_file import empty_file, written_schema
from cutline.barrier_runtime.dataframes.staging import Staging
from cutline.barrier_runtime.dataframes.unread import PARTITIONS, BatchReader, Unread, share
from cutline.snapshot.errors import GraphError, RestoreRefused, SnapshotCorrupt
from cutline.snapshot.node import END, Context, Guarantee, Sink
from cutline.snapshot.plan.schemas import to_arrow_schema
from cutline.snapshot.replayable_source import ReplayableSource
from cutline.snapshot.values.fitting import row_check
from cutline.state_backends.filesystem import FileSystemBackend

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class DataFrameSource(ReplayableSource):
    """Sends the rows of a DataFrame once, as Arrow batches. Replay is exact for any lineage of the DataFrame.

    At the first submission under a run's name, Spark writes the rows into the run's input log. Later submissions of
    the run read the same log, and Spark does not compute the DataFrame again. Subtasks share the row groups of the log.
    A restore with another parallelism shares anew what is unread. At most 480 subtasks have rows to read.

    Parameters
    ----------
    df : DataFrame
        A batch DataFrame, which stays in the driver.
    logPath : str, optional
        An absolute path or ``file://`` URL below which the log is stored, shared by the driver and all executors.
        The default is the folder of the run's `FileSystemBackend`. Required with any other backend.

    Raises
    ------
    GraphError
        if `df` is no DataFrame, or a streaming DataFrame.
    """

    #: True, because a row group is decoded from its start when another one was read in between.
    sequential = True

    def __init__(self, df: DataFrame, *, logPath: str | None = None) -> None:
        from pyspark.sql import DataFrame

        if not isinstance(df, DataFrame):
            raise GraphError(f"DataFrameSource takes a DataFrame, not {type(df).__qualname__}")
        if df.isStreaming:
            raise GraphError("DataFrameSource takes a batch DataFrame, and this one is streaming: it would never end")
        self._df: DataFrame | None = df
        self._log_root = logPath
        self._place: LogPlace | None = None
        self._log: InputLog | None = None
        #: {partition: the rows that it begins with, or None}; empty for a restored source
        self._shares: Mapping[str, Unread | None] = {}
        self._reader = BatchReader()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_df": None}  # a DataFrame is of use only in the driver

    def prepare(self, root: str | None, run: str, node: str, origin: str | None = None) -> None:
        """Complete the input log. Called in the driver, before the graph is pickled for the workers.

        Idempotent. Blocks until Spark has written the rows, if no log exists.

        Parameters
        ----------
        root : str or None
            The folder of the run's backend, or None if the backend has no folder.
        origin : str, optional
            The run whose steps a fork repeats. The fork reads the log of that run, because its reads must be the same.

        Raises
        ------
        GraphError
            if no folder for the log is known, or the log cannot be written.
        RestoreRefused
            if the run has a log of other columns.
        """
        assert self._df is not None, "prepare is called in the driver"
        root = root if self._log_root is None else self._log_root
        if root is None:
            raise GraphError(
                f"node {node!r}: the run's backend has no folder that Spark can write its input log to; "
                "give DataFrameSource(df, logPath=...) one that the driver and all executors share"
            )
        place = place_of(root, run, node)
        shared = None if origin is None else share_log(place_of(root, origin, node), place)
        log = shared or find_log(place) or write_log(self._df, place)
        _check_columns(log, self._df, node)
        remove_other_attempts(log)
        self._place = place

    def partitions(self) -> Sequence[str]:
        """Return the same names for each log, because a fork continues the log of another run."""
        return PARTITIONS

    def open(self, context: Context) -> None:
        """Find the log, and the rows of this subtask."""
        if self._place is None:
            raise GraphError("this DataFrameSource has no input log: it runs under BarrierRuntime.submit only")
        log = _open_log(self._place)
        if self._offsets is not None:
            self._log = _restored_log(self._offsets, log, context)
            return
        self._log, self._shares = log, _fresh_share(log, context)
        # Taken now, because a later parallelism has other shares, and a snapshot may come before the first read.
        self._offsets = {name: self.first(name) for name in context.partitions}

    def first(self, partition: str) -> Any:
        """Return the offset at which a partition begins, or None for a partition without rows."""
        unread = self._shares[partition]
        return None if unread is None else unread.as_offset()

    def available(self, partition: str, start: Any) -> Any:
        """Return the offset after the next batch."""
        found = None if start is None else self._reader.next_batch(self._unread(start))
        return END if found is None else found[0].as_offset()

    def read(self, partition: str, start: Any, stop: Any, context: Context) -> None:
        """Send one batch."""
        for batch in self._reader.slice(self._unread(start), self._unread(stop)):
            context.send(batch)

    def close(self) -> None:
        """Close the file that is being read."""
        self._reader = BatchReader()

    def _unread(self, offset: Mapping[str, Any]) -> Unread:
        log = self._log
        assert log is not None, "open is called before any other hook"
        if offset["log"] != log.name:
            raise _other_log(offset, log)
        return Unread.of_offset(log, offset)


class ParquetSink(Sink):
    """Writes rows as Parquet. ``spark.read.parquet(path)`` reads the rows of published snapshots, each exactly once.

    Takes dicts with exactly the schema's columns, tuples of their values in order, or batches. Each subtask
    writes one file for each snapshot in which the subtask received rows.

    Parameters
    ----------
    path : str
        A folder shared by all hosts, as absolute path or ``file://`` URL. A missing folder is made. Existing files in
        the folder are left alone.
    schema : str or pyarrow.Schema
        DDL, as ``"word STRING, count LONG"``, or an Arrow schema that Spark can read.

    Raises
    ------
    GraphError
        if `path` or `schema` cannot be used.
    """

    guarantee: Guarantee | None = "exactly_once"

    def __init__(self, path: str, schema: str | pa.Schema) -> None:
        from pyspark.errors import PySparkException
        from pyspark.sql.pandas.types import from_arrow_schema

        try:
            self._path = FileSystemBackend(path).root
            self._schema = written_schema(to_arrow_schema(schema))
            from_arrow_schema(self._schema)
            empty_file(self._schema)
            row_check(self._schema)
        except (ValueError, pa.ArrowException, PySparkException) as error:
            raise GraphError(f"ParquetSink({str(path)!r}, ...): {error}") from error
        for field in self._schema:
            if pa.types.is_duration(field.type):
                raise GraphError(
                    f"ParquetSink: column {field.name!r} is {field.type}, which Spark would read as a number"
                )
        if len(dict.fromkeys(name.lower() for name in self._schema.names)) < len(self._schema):
            raise GraphError(f"ParquetSink: Spark cannot tell the columns {self._schema.names} from each other")
        self._staging: Staging | None = None

    def open(self, context: Context) -> None:
        """Make the folders."""
        self._staging = Staging(self._path, context.run, context.subtask, context.incarnation, self._schema)

    def onMessage(self, message: Any, context: Context) -> None:
        """Stage one row."""
        self._staged.file().add_row(message)

    def onBatch(self, batch: pa.RecordBatch, context: Context) -> None:
        """Stage a batch of rows."""
        self._staged.file().add_batch(batch)

    def prepareCommit(self, snapshotId: int) -> Any:
        """Make the rows since the last call durable, but still invisible."""
        return self._staged.prepare(snapshotId)

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        """Return None, because every row is in the file that `prepareCommit` has just described."""
        return None

    def restoreState(self, state: Any) -> None:
        """Restore nothing, because the prepared rows are committed again."""

    def commit(self, snapshotId: int, prepared: Mapping[str, Any]) -> None:
        """Make the rows visible."""
        self._staged.publish(prepared)

    def discardUncommitted(self, context: Context) -> None:
        """Remove the files that lower incarnations staged after the snapshot, also those of subtasks that are gone."""
        self._staged.remove_staged_before(context.incarnation, context.parallelism)

    def close(self) -> None:
        """Drop the rows that are in no snapshot."""
        if self._staging is not None:
            self._staging.close()

    @property
    def _staged(self) -> Staging:
        assert self._staging is not None, "open is called before any other hook"
        return self._staging


def _open_log(place: LogPlace) -> InputLog:
    log = find_log(place)
    if log is None:
        raise SnapshotCorrupt(f"{place}/manifest of the input log is missing; without it the run cannot replay")
    return log


def _log_of(offset: Mapping[str, Any], log: InputLog) -> InputLog:
    """Return the log in which `offset` counts. In a fork that is the log of the snapshot's run, and not `log`."""
    if offset["log"] == log.name:
        return log
    found = _open_log(LogPlace(*offset["place"]))
    if offset["log"] != found.name:
        raise _other_log(offset, found)
    return found


def _other_log(offset: Mapping[str, Any], log: InputLog) -> RestoreRefused:
    return RestoreRefused(
        f"the snapshot was reading the input log {offset['log']}, but at {log.place} is {log.name} "
        "now: its offsets mean other rows there. Bring the old log back, or submit under another name"
    )


def _fresh_share(log: InputLog, context: Context) -> dict[str, Unread | None]:
    if not context.partitions:
        return {}  # a subtask beyond the number of partitions
    return share(log, context.partitions, context.subtask.index, min(context.parallelism, len(PARTITIONS)))


def _restored_log(offsets: Mapping[str, Any], log: InputLog, context: Context) -> InputLog:
    """Return the log in which all offsets count. Refuse a state without an offset of each partition."""
    missing = [name for name in context.partitions if name not in offsets]
    if missing:
        raise SnapshotCorrupt(f"{context.subtask}: the snapshot has no offset of its partitions {missing}")
    return next((_log_of(each, log) for each in offsets.values() if each is not None), log)


def _check_columns(log: InputLog, df: DataFrame, node: str) -> None:
    """Refuse a DataFrame whose columns differ from those of the log. Equal rows cannot be checked."""
    logged, given = ([(field.name, field.type) for field in schema] for schema in (log.schema, arrow_schema_of(df)))
    if logged != given:
        raise RestoreRefused(
            f"node {node!r}: the run's input log has the columns {_described(logged)}, "
            f"but the DataFrame {_described(given)}: "
            "a run keeps the input that it began with; submit other data under another name"
        )


def _described(columns: list[tuple[str, pa.DataType]]) -> str:
    return "(" + ", ".join(f"{name} {type_}" for name, type_ in columns) + ")"
