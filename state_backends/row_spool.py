"""Encoded rows that wait on the local disk until a snapshot has stored them.

Must not know when rows are stored. The files are as disposable as a database beside them, because only the store of
snapshots is the truth.
"""

from __future__ import annotations

import itertools
import threading
from pathlib import Path
from typing import Final

from cutline.snapshot.keyed.merging import PieceRef
from cutline.snapshot.keyed.row_spool import KeptRows, in_memory
from cutline.snapshot.keyed.segment import Segment, decode_piece, pieces_of
from cutline.state_backends.scratch_folder import ScratchFolder

#: Bytes of rows that are kept in memory, because a snapshot with few changed rows should not wait for a disk.
MEMORY_BYTES_MAX: Final = 1024 * 1024

#: Most bytes of a file. A merge of many segments reads a range of key groups of each, so small files are read once.
_FILE_BYTES_MAX: Final = 2 * 1024 * 1024


class FileSpool:
    """Rows in files of a folder of its own. See `RowSpool`.

    Parameters
    ----------
    parent : Path
        Folder on a local disk.
    name : str
        Beginning of the folder's name.
    """

    is_outside_memory = True

    def __init__(self, parent: Path, name: str) -> None:
        self._parent = parent
        self._name = name
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        #: made at the first use
        self._folder: ScratchFolder | None = None
        self._is_closed = False

    def keep(self, segment: Segment) -> KeptRows:
        """See `RowSpool`."""
        if segment.rows.nbytes <= MEMORY_BYTES_MAX:
            return in_memory(segment)
        folder = self._path()
        kept = []
        for piece in pieces_of(segment, _FILE_BYTES_MAX):
            path = folder / f"{next(self._numbers)}.rows"
            path.write_bytes(piece.body)
            kept.append(PieceRef(piece.lo, piece.hi, len(piece.body), path))
        return tuple(kept)

    def read(self, ref: PieceRef) -> Segment:
        """See `RowSpool`."""
        if isinstance(ref.place, Segment):
            return ref.place
        assert isinstance(ref.place, Path)
        return decode_piece(ref.place.read_bytes(), str(ref.place))

    def discard(self, rows: KeptRows) -> None:
        """See `RowSpool`."""
        for ref in rows:
            if isinstance(ref.place, Path):
                ref.place.unlink(missing_ok=True)

    def close(self) -> None:
        """See `RowSpool`."""
        with self._lock:
            self._is_closed = True
            if self._folder is not None:
                self._folder.close()

    def _path(self) -> Path:
        with self._lock:
            if self._is_closed:
                raise OSError(f"{self._name}: the rows of an earlier incarnation are no longer kept")
            if self._folder is None:
                self._folder = ScratchFolder(self._parent, self._name)
            return self._folder.path
