"""`submit` proves the store before anything starts: neither Spark nor Ray is touched for a store that is refused."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cutline import BarrierRuntime, FileSystemBackend, Graph
from cutline.snapshot.stored.backend import StateBackend, StoreRefused
from tests.state_backends import disks


def _submit(backend: StateBackend, name: str = "run") -> None:
    """Submit by a session that can only register a data source, so that any other use of Spark fails the test."""
    session = SimpleNamespace(dataSource=SimpleNamespace(register=lambda source: None))
    BarrierRuntime(cast(Any, session), backend=backend).submit(Graph("never built"), name=name)


@pytest.mark.parametrize(
    ("errors", "text"),
    [
        (
            {"link": errno.EPERM, "rename_new": errno.EINVAL},
            "this file system has no hard links and no exclusive rename",
        ),
        ({"sync_folder": errno.EINVAL}, "this file system has no fsync of a folder"),
        ({"make_folder": errno.EROFS}, os.strerror(errno.EROFS)),
        ({"create": errno.EACCES}, os.strerror(errno.EACCES)),
        ({"write": errno.ENOSPC}, os.strerror(errno.ENOSPC)),
    ],
    ids=["links", "fsync", "read-only", "no right", "full"],
)
def test_a_file_system_that_lacks_something_is_refused(errors: dict[str, int], text: str, tmp_path: Path) -> None:
    """The store and the cause are in the error."""
    with pytest.raises(OSError, match=f"file://{tmp_path}.*{text}"):
        _submit(FileSystemBackend(tmp_path, disk=disks.LackingDisk(errors)))


def test_names_that_are_one_on_this_disk_are_refused() -> None:
    """A run never continues another run whose name differs in upper and lower case."""
    backend = FileSystemBackend("/data", disk=disks.CaseInsensitive())
    backend.put_if_absent("Orders/claims/00000001", [b"x"])
    with pytest.raises(StoreRefused, match="differs from orders in upper and lower case only"):
        _submit(backend, "orders")
