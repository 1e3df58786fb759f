"""The limit of storing: one file written and synced, and nothing else."""

from __future__ import annotations

import os
import time
from pathlib import Path

#: Bytes of one write: large enough that calls count for nothing.
_BLOCK_BYTES = 8 * 1024 * 1024


def bare_write_bytes_per_second(folder: Path, size: int) -> float:
    """Write `size` bytes that no file system can compress to a new file in `folder`, sync it, and remove it."""
    block = memoryview(os.urandom(min(size, _BLOCK_BYTES)))
    path = folder / "bare-write"
    began_at = time.perf_counter()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        left = size
        while left:
            left -= os.write(descriptor, block[:left])
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    seconds = time.perf_counter() - began_at
    path.unlink()
    return size / seconds
