"""Text files as input: `LineSource`. Owns where lines begin and end. Must not know what a line means."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from typing import Any, Final

from cutline.snapshot.errors import GraphError
from cutline.snapshot.node import END, Context
from cutline.snapshot.replayable_source import ReplayableSource

#: Bytes of a read, which goes on to the end of the line.
READ_BYTES: Final = 64 * 1024


class LineSource(ReplayableSource):
    """Sends the lines of text files as str, without line ends. A partition is a file, and an offset a number of bytes.

    The files are complete, in UTF-8, and do not change while the run lives. Each file is read by one subtask. A later
    submission of the run also reads files that are new.

    Parameters
    ----------
    *paths : str
        Files, or patterns of files as in ``logs/*.jsonl``, that the driver and all executors share.

    Raises
    ------
    GraphError
        if no path is given.
    """

    def __init__(self, *paths: str | os.PathLike[str]) -> None:
        if not paths:
            raise GraphError("LineSource takes paths of files, and none is given")
        self._paths = [os.path.abspath(path) for path in paths]

    def partitions(self) -> Sequence[str]:
        """Return the paths of the files. Raise FileNotFoundError for a path without a file."""
        found: set[str] = set()
        for path in self._paths:
            files = [path] if os.path.isfile(path) else list(filter(os.path.isfile, glob.glob(path)))
            if not files:
                raise FileNotFoundError(f"LineSource: there is no file {path}")
            found.update(files)
        return sorted(found)

    def first(self, partition: str) -> int:
        """Return 0."""
        return 0

    def available(self, partition: str, start: int) -> Any:
        """Return the end of the line `READ_BYTES` after `start`. Raise ValueError for a file that is shorter."""
        with open(partition, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if start > size:
                raise _shorter(partition, start, size)
            if start == size:
                return END
            file.seek(start + READ_BYTES - 1)
            file.readline()
            return min(file.tell(), size)

    def read(self, partition: str, start: int, stop: int, context: Context) -> None:
        """Send the lines between two offsets. Raise ValueError for a file that is shorter, or not in UTF-8."""
        with open(partition, "rb") as file:
            file.seek(start)
            content = file.read(stop - start)
        if len(content) < stop - start:
            raise _shorter(partition, stop, start + len(content))
        try:
            text = content.decode()
        except UnicodeDecodeError as error:
            raise ValueError(f"{partition}, byte {start + error.start}: {error.reason}; lines are in UTF-8") from error
        context.sendAll([line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")])


def _shorter(path: str, read: int, size: int) -> ValueError:
    return ValueError(f"{path} was read to byte {read}, and has {size} bytes now: bring the old file back")
