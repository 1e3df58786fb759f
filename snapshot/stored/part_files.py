"""The files of parts of one run: each holds the parts of one snapshot, or one part of a list.

Owns the choice between files and manifest, and the check that a file is written once. Must not know which parts a
snapshot has, nor when a file is removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from cutline.snapshot.channel.frame import Buffer
from cutline.snapshot.errors import SnapshotCorrupt
from cutline.snapshot.stored import layout
from cutline.snapshot.stored.backend import StateBackend
from cutline.snapshot.stored.part import Handle, Part, decode_part


class PartFiles:
    """Write and read the files of parts of one run.

    Every method blocks, each of its backend calls for at most the backend's deadline.

    Parameters
    ----------
    backend : StateBackend
    run : str
        Name of the run, any Unicode text.
    """

    def __init__(self, backend: StateBackend, run: str) -> None:
        self.backend = backend
        self.run = run
        self._folder = layout.run_folder(run)

    def put_parts(self, parts: Sequence[Part]) -> list[Handle]:
        """Store the parts of one snapshot in one file, or inline if all have at most `inline_bytes_max` bytes.

        Durable on return. One file for all, because each file costs several waits for the disk, or a round trip.

        Raises
        ------
        SnapshotCorrupt
            if the file exists with other bytes, because an origin was used twice.
        """
        sizes = [part.handle.size for part in parts]
        if sum(sizes) <= self.backend.inline_bytes_max:
            return [part.inline() for part in parts]
        path = layout.parts_path(parts[0].handle)
        self._put_equal(path, [buffer for part in parts for buffer in part.buffers])
        offsets = accumulate(sizes, initial=0)
        return [part.stored(path, offset) for part, offset in zip(parts, offsets, strict=False)]

    def put_rows(self, parts: Sequence[Part], inline: bool) -> list[Handle]:
        """Store ROWS and OWN parts, each in a file of its own, or inline. Durable on return.

        A file each, because compaction drops each part at its own time. A call may be repeated after a failure.

        Raises
        ------
        SnapshotCorrupt
            if a file exists with other bytes.
        """
        if inline:
            return [part.inline() for part in parts]
        return [self._put_listed(part) for part in parts]

    def read_part(self, handle: Handle) -> memoryview:
        """Return the body of a part after checking every byte. The part of another run is read for a fork.

        Raises
        ------
        SnapshotCorrupt
            if the part is missing, damaged, or another part.
        RestoreRefused
            if its format version is unknown.
        """
        if handle.path is None:
            return decode_part(handle, handle.inline or b"")
        return decode_part(handle, PartFiles(self.backend, handle.run).read_stored(handle))

    def read_stored(self, handle: Handle) -> bytes:
        """Return the bytes of a part that is not inline, unchecked.

        Raises
        ------
        SnapshotCorrupt
            if the file is missing.
        """
        assert handle.path is not None
        return self.read_file(handle.path, handle.offset, handle.size)

    def read_file(self, path: str, offset: int = 0, size: int | None = None) -> bytes:
        """Return bytes of a file of parts. A missing file is SnapshotCorrupt, because a manifest lists the file."""
        try:
            return self._get(path, offset, size)
        except FileNotFoundError as error:
            raise SnapshotCorrupt(f"{self._name(path)}: the file is missing, or a folder has its name") from error

    def put_record(self, path: str, buffers: Sequence[Buffer]) -> None:
        """Put a record of a subtask alone, whole or not at all. A call may be repeated.

        Raises
        ------
        SnapshotCorrupt
            if the record exists with other bytes.
        """
        if not self._put(path, buffers) and self._get(path) != b"".join(buffers):
            raise SnapshotCorrupt(f"{self._name(path)}: offset 0: another record of the same number is there already")

    def record_paths(self) -> list[str]:
        """Return the paths of all records of subtasks alone."""
        return self._list("records")

    def read_record(self, path: str) -> tuple[str, bytes]:
        """Return the name of a record in errors, and its bytes."""
        return self._name(path), self.read_file(path)

    def _put_listed(self, part: Part) -> Handle:
        path = layout.rows_path(part.handle)
        self._put_equal(path, part.buffers)
        return part.stored(path, 0)

    def _put_equal(self, path: str, buffers: Sequence[Buffer]) -> None:
        """Put a file of parts. A file that is there already must have the same bytes.

        One worker writes the file, because its name holds the incarnation and the subtask.
        """
        if not self.backend.put_alone(self._path(path), buffers) and self._get(path) != b"".join(buffers):
            raise SnapshotCorrupt(f"{self._name(path)}: offset 0: other parts of the same origin are there already")

    def _put(self, path: str, chunks: Sequence[Buffer]) -> bool:
        return self.backend.put_if_absent(self._path(path), chunks)

    def _get(self, path: str, offset: int = 0, size: int | None = None) -> bytes:
        return self.backend.get(self._path(path), offset, size)

    def _list(self, folder: str) -> list[str]:
        return [path.removeprefix(f"{self._folder}/") for path in self.backend.files(self._path(folder))]

    def _path(self, path: str) -> str:
        return f"{self._folder}/{path}"

    def _name(self, path: str) -> str:
        return f"{self.backend}/{self._path(path)}"
