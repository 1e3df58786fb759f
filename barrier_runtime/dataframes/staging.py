"""Two-phase output into a folder of Parquet files. Staged files are durable but invisible until published.

Owns the names of files and the moves between folders (PROTOCOL 8). Must not know the form of rows.

::

    <path>/part-empty-<schema>.parquet                                  no rows: shows the schema from the start
    <path>/part-00001-00000001000042-<token>.parquet                    published; subtask 1, snapshot 1000042
    <path>/_staging/<run>/<node>/<subtask>/00000001-<token>.parquet     staged by incarnation 1

Spark and most other readers of Parquet ignore a folder whose name begins with an underscore. Each file has a
random token, so that runs which write below one path never confuse their files.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import xxhash

from cutline.barrier_runtime.dataframes.row_file import RowFile, empty_file
from cutline.snapshot.errors import SnapshotCorrupt
from cutline.snapshot.ids import Subtask
from cutline.snapshot.stored.history import may_discard
from cutline.snapshot.stored.layout import run_folder
from cutline.state_backends.disk import Disk
from cutline.state_backends.filesystem import FileSystemBackend

_SUBTASK = re.compile(r"[0-9]+")
_STAGED = re.compile(r"(?P<incarnation>\d{8,})-(?P<token>[0-9a-f]{16})\.parquet")


class Staging:
    """The staged and published output of one subtask. Makes its folders durably.

    Parameters
    ----------
    path : str
        Absolute path of the folder that readers read.
    incarnation : int
        Incarnation in the names of newly staged files.
    """

    def __init__(self, path: str, run: str, subtask: Subtask, incarnation: int, schema: pa.Schema) -> None:
        self._path = path
        self._subtask = subtask
        self._incarnation = incarnation
        self._schema = schema
        self._disk = Disk()
        self._file: RowFile | None = None
        self._put_empty_file()
        self._folder = path
        for name in ("_staging", *run_folder(run).split("/"), *run_folder(subtask.node).split("/"), str(subtask.index)):
            self._enter_folder(name)

    def file(self) -> RowFile:
        """Return the file that takes rows now. Make a new file when the last was prepared."""
        if self._file is None:
            name = f"{self._incarnation:08}-{secrets.token_hex(8)}.parquet"
            self._file = RowFile(os.path.join(self._folder, name), self._schema)
        return self._file

    def prepare(self, snapshot_id: int) -> dict[str, Any] | None:
        """Make all rows so far durable. Return the record for `publish`, or None without rows."""
        if self._file is None:
            return None
        file = self._file
        size = file.finish()
        self._file = None
        self._disk.sync_folder(self._folder)
        token = os.path.basename(file.path).removesuffix(".parquet").rpartition("-")[2]
        return {
            "staged": os.path.relpath(file.path, self._path),
            "published": f"part-{self._subtask.index:05}-{snapshot_id:014}-{token}.parquet",
            "rows": file.row_count,
            "size_bytes": size,
        }

    def publish(self, prepared: Mapping[str, Any]) -> None:
        """Give a staged file its final name, durably. Idempotent, also after another instance has published the file.

        Raises
        ------
        SnapshotCorrupt
            if the file is neither staged nor published, or differs from the prepared file.
        """
        staged = os.path.join(self._path, prepared["staged"])
        published = os.path.join(self._path, prepared["published"])
        with contextlib.suppress(FileNotFoundError):  # published before, perhaps by an earlier incarnation
            _check_size(staged, prepared["size_bytes"])  # before the file becomes visible
            os.rename(staged, published)
        try:
            _check_size(published, prepared["size_bytes"])
        except FileNotFoundError as error:
            raise SnapshotCorrupt(
                f"{published} with {prepared['rows']} committed rows is missing, and so is {staged}"
            ) from error
        self._disk.sync_folder(self._path)  # also if it was there, because its publisher may have died before this line

    def remove_staged_before(self, incarnation: int, parallelism: int) -> None:
        """Remove files that lower incarnations staged, of the subtasks that this subtask answers for (PROTOCOL 7.4).

        These are the subtasks i of the node with i mod `parallelism` = this subtask's index. Those beyond `parallelism`
        are gone since a restore with fewer subtasks.
        """
        node_folder = os.path.dirname(self._folder)
        for name, is_folder in self._disk.entries(node_folder):
            if is_folder and _SUBTASK.fullmatch(name) and int(name) % parallelism == self._subtask.index:
                self._remove_staged(os.path.join(node_folder, name), incarnation)

    def _remove_staged(self, folder: str, incarnation: int) -> None:
        for name, is_folder in self._disk.entries(folder):
            match = _STAGED.fullmatch(name)
            if match is not None and not is_folder and may_discard(int(match["incarnation"]), incarnation):
                with contextlib.suppress(FileNotFoundError):  # a fenced instance may remove the file as well
                    self._disk.remove(os.path.join(folder, name))

    def close(self) -> None:
        """Drop the rows that were not prepared, because they belong to no snapshot."""
        if self._file is not None:
            file, self._file = self._file, None
            file.abandon()

    def _put_empty_file(self) -> None:
        """Write a file without rows, so that readers find the columns even if no rows are ever committed."""
        digest = xxhash.xxh3_64_hexdigest(self._schema.serialize())
        FileSystemBackend(self._path).put_if_absent(f"part-empty-{digest}.parquet", [empty_file(self._schema)])

    def _enter_folder(self, name: str) -> None:
        above, self._folder = self._folder, os.path.join(self._folder, name)
        with contextlib.suppress(FileExistsError):
            self._disk.make_folder(self._folder)
        self._disk.sync_folder(above)


def _check_size(path: str, size_bytes: int) -> None:
    found = os.stat(path).st_size
    if found != size_bytes:
        raise SnapshotCorrupt(f"{path} has {found} bytes instead of the {size_bytes} that were prepared")
