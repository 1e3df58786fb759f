"""Totals of an aggregate in a RocksDB database on a local disk, for one process at a time."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from cutline.snapshot.errors import StateError
from cutline.snapshot.stored.backend import StoreRefused
from cutline.state_backends.aggregate_stores.cell_store import (
    NOBODY,
    Cell,
    CellStore,
    CellTable,
    Holder,
    Result,
    imported,
)
from cutline.state_backends.rocksdb import refuse_in_child

if TYPE_CHECKING:
    from rocksdict import Rdict, WriteBatch

#: First bytes of a row: a cell by its key; a key after the id of the snapshot that wrote it; the holder.
_CELL: Final = b"c"
_WRITTEN: Final = b"w"
_HOLDER: Final = b"h"
_WRITTEN_END: Final = b"x"

#: beginning of RocksDB's errors of the disk, and of a lock that another process holds
_PASSING: Final = "IO error"


class RocksDBStore(CellStore):
    """Keep totals in a RocksDB database. Each call is durable when it returns.

    Instances of one process share the database. RocksDB locks it against other processes, so all subtasks of the
    aggregate must run in one worker. A row of a key is ``c`` and the key in JSON. It has three lines: the newest value
    in JSON, the id of its snapshot, and the value before.

    Parameters
    ----------
    folder : str
        Folder of the database. It is made where it is missing.
    """

    isShared: ClassVar[bool] = False

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        super().__init__()
        self.folder = os.path.abspath(os.fspath(folder))

    def __str__(self) -> str:
        return f"RocksDB database in {self.folder}"

    def _connect(self) -> CellTable:
        rocksdict = imported(self, "rocksdict", "rocksdb")
        with _LOCK:
            table = _OPEN.get(self.folder)
            if table is None:
                try:
                    refuse_in_child()
                except StateError as error:
                    raise StoreRefused(f"{self}: {error}") from error
                table = _OPEN[self.folder] = _Table(self.folder, rocksdict)
            table.users += 1
            return table

    def _translated(self, error: Exception) -> OSError | None:
        if type(error) is not Exception:  # RocksDB's errors have no class of their own
            return None
        if _may_pass(error):
            return OSError(f"{self}: {error}; one process at a time may use it, and its disk must have room")
        return StoreRefused(f"{self}: {error}")


class _Table:
    """See `CellTable`. Shared by all instances of a process, each of which may be used by its own thread."""

    def __init__(self, folder: str, rocksdict: Any) -> None:
        self.users = 0
        self._folder = folder
        self._rocksdict = rocksdict
        self._lock = threading.Lock()
        #: The open database. None before its first use, and after an error of the disk, because RocksDB then writes no
        #: more until it is opened anew.
        self._opened: Rdict | None = None
        self._durably = rocksdict.WriteOptions()
        self._durably.sync = True

    def atomically(self, deed: Callable[[], Result], *, alone: bool) -> Result:
        """See `CellTable`."""
        with self._lock:
            try:
                return deed()
            except Exception as error:
                if _may_pass(error):
                    self._end()
                raise

    def holder(self) -> Holder:
        """See `CellTable`."""
        row: bytes | None = self._rows.get(_HOLDER)
        if row is None:
            return NOBODY
        number, committed, run = row.decode("utf-8", "surrogatepass").split("\n", 2)
        return Holder(run, int(number), int(committed))

    def hold(self, holder: Holder) -> None:
        """See `CellTable`."""
        batch = self._batch()
        row = f"{holder.number}\n{holder.committed}\n{holder.run}"
        batch.put(_HOLDER, row.encode("utf-8", "surrogatepass"))
        batch.delete_range(_WRITTEN, _written(holder.committed + 1))
        self._rows.write(batch, self._durably)

    def write(self, texts: Sequence[tuple[str, str]], snapshot_id: int, committed: int) -> None:
        """See `CellTable`."""
        batch, written = self._batch(), _written(snapshot_id)
        for (key, value), cell in zip(texts, self._cells([key.encode() for key, _ in texts]), strict=True):
            previous = None if cell is None else cell.counting(committed)
            batch.put(_CELL + key.encode(), str(Cell(value, snapshot_id, previous)).encode())
            batch.put(written + key.encode(), b"")
        self._rows.write(batch, self._durably)

    def roll_back(self, snapshot_id: int, committed: int) -> bool:
        """See `CellTable`."""
        batch = self._batch()
        keys = [row[len(_written(0)) :] for row in self._written_above(snapshot_id)]
        for key, cell in zip(keys, self._cells(keys), strict=True):
            if cell is None or cell.snapshot_id <= snapshot_id:
                continue  # because another snapshot wrote the key too
            if cell.previous is None:
                batch.delete(_CELL + key)
            else:
                batch.put(_CELL + key, str(Cell(cell.previous, committed)).encode())
        batch.delete_range(_written(snapshot_id + 1), _WRITTEN_END)
        self._rows.write(batch, self._durably)
        return False

    def read(self, keys: Sequence[str]) -> list[str | None]:
        """See `CellTable`."""
        with self._lock:
            committed = self.holder().committed
            cells = self._cells([key.encode() for key in keys])
        return [None if cell is None else cell.counting(committed) for cell in cells]

    def close(self) -> None:
        """See `CellTable`. The last instance that closes ends the database."""
        with _LOCK:
            self.users -= 1
            if not self.users:
                del _OPEN[self._folder]
                self._end()

    @property
    def _rows(self) -> Rdict:
        if self._opened is None:
            options = self._rocksdict.Options(raw_mode=True)
            options.create_if_missing(True)
            options.set_keep_log_file_num(1)
            self._opened = self._rocksdict.Rdict(self._folder, options)
        return self._opened

    def _end(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            with contextlib.suppress(Exception):  # because a database whose write failed says so once more
                opened.close()

    def _batch(self) -> WriteBatch:
        batch: WriteBatch = self._rocksdict.WriteBatch(raw_mode=True)
        return batch

    def _cells(self, keys: Sequence[bytes]) -> list[Cell | None]:
        rows: Any = self._rows.get([_CELL + key for key in keys])
        return [None if row is None else Cell.of(row.decode()) for row in rows]

    def _written_above(self, snapshot_id: int) -> Iterator[bytes]:
        for row in self._rows.keys(from_key=_written(snapshot_id + 1)):
            assert isinstance(row, bytes)
            if row >= _WRITTEN_END:
                return
            yield row


def _may_pass(error: Exception) -> bool:
    """Return whether the disk, or another process, refused. RocksDB's errors have no class of their own."""
    return type(error) is Exception and str(error).startswith(_PASSING)


def _written(snapshot_id: int) -> bytes:
    """Return the beginning of the rows that say which keys a snapshot wrote."""
    return _WRITTEN + snapshot_id.to_bytes(8, "big")


#: {folder: its open database}
_OPEN: dict[str, _Table] = {}
_LOCK = threading.Lock()
