"""Spark's DataFrames as input and output: `DataFrameSource` and `ParquetSink`.

Owns the hooks of the two nodes that users hold. `barrier_runtime.dataframes.input_log` has the files of the source.
`barrier_runtime.dataframes.staging` has the files of the sink.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from barrier_runtime.dataframes.input_log import (
    START,
    InputLog,
    LogPlace,
    Offset,
    arrow_schema_of,
    find_log,
    place_of,
    remove_other_attempts,
    write_log,
)
from barrier_runtime.dataframes.row_file import empty_file
from barrier_runtime.dataframes.staging import Staging
from snapshot.errors import GraphError, RestoreRefused, SnapshotCorrupt
from snapshot.node import END, Context, End, Guarantee, Sink, Source
from snapshot.plan.schemas import to_arrow_schema
from state_backends.filesystem import FileSystemBackend

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class DataFrameSource(Source):
    """Sends the rows of a DataFrame once, as Arrow batches. Replay is exact for any lineage of the DataFrame.

    At the first submission under a run's name, Spark writes the rows into the run's input log. Later submissions of
    the run read the same log, and Spark does not compute the DataFrame again.

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

    guarantee: Guarantee | None = "exactly_once"

    def __init__(self, df: DataFrame, *, logPath: str | None = None) -> None:
        from pyspark.sql import DataFrame

        if not isinstance(df, DataFrame):
            raise GraphError(f"DataFrameSource takes a DataFrame, not {type(df).__qualname__}")
        if df.isStreaming:
            raise GraphError("DataFrameSource takes a batch DataFrame, and this one is streaming: it would never end")
        self._df: DataFrame | None = df
        self._log_root = logPath
        self._place: LogPlace | None = None
        self._restored: dict[str, Any] | None = None
        self._log: InputLog | None = None
        self._offset = START
        self._parallelism = 0
        self._batches: Iterator[tuple[Offset, pa.RecordBatch]] = iter(())

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_df": None}  # a DataFrame is of use only in the driver

    def prepare(self, root: str | None, run: str, node: str) -> None:
        """Complete the input log. Called in the driver, before the graph is pickled for the workers.

        Idempotent. Blocks until Spark has written the rows, if no log exists.

        Parameters
        ----------
        root : str or None
            The folder of the run's backend, or None if the backend has no folder.

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
        log = find_log(place) or write_log(self._df, place)
        _check_columns(log, self._df, node)
        remove_other_attempts(log)
        self._place = place

    def restoreState(self, state: Any) -> None:
        """Store the offset and its log, for `open`."""
        self._restored = state

    def open(self, context: Context) -> None:
        """Find the log and start reading."""
        self._log, self._parallelism = self._find_log(), context.parallelism
        if self._restored is not None:
            if self._restored["parallelism"] != context.parallelism:
                raise RestoreRefused(
                    f"{context.subtask}: its input was shared by {self._restored['parallelism']} subtasks, now by "
                    f"{context.parallelism}: rows would be lost or repeated; restore with the same parallelism"
                )
            self._offset = Offset(*self._restored["offset"])
        self._batches = self._log.read(self._offset, context.subtask.index, context.parallelism)

    def poll(self, context: Context) -> float | End | None:
        """Send one batch."""
        for offset, batch in self._batches:
            context.send(batch)
            self._offset = offset
            return None
        return END

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        """Return the offset, and the log in which the offset counts."""
        assert self._log is not None, "snapshotState is called after open"
        return {
            "place": list(self._log.place),
            "log": self._log.name,
            "offset": list(self._offset),
            "parallelism": self._parallelism,
        }

    def close(self) -> None:
        """Close the file that is being read."""
        self._batches = iter(())

    def _find_log(self) -> InputLog:
        if self._place is None:
            raise GraphError("this DataFrameSource has no input log: it runs under BarrierRuntime.submit only")
        log = _open_log(self._place)
        if self._restored is None or self._restored["log"] == log.name:
            return log
        # In a fork, the offset counts in the log of the snapshot's run, so this source reads that log further.
        log = _open_log(LogPlace(*self._restored["place"]))
        if self._restored["log"] != log.name:
            raise RestoreRefused(
                f"the snapshot was reading the input log {self._restored['log']}, but at {log.place} is {log.name} "
                "now: its offsets mean other rows there. Bring the old log back, or submit under another name"
            )
        return log


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
            self._schema = to_arrow_schema(schema)
            from_arrow_schema(self._schema)
            empty_file(self._schema)
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
        """Remove the files that lower incarnations of this subtask staged after the snapshot."""
        self._staged.remove_staged_before(context.incarnation)

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
