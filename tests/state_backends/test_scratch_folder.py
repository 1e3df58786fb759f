"""Scratch folders: they belong to a process, and none outlives it for long."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cutline.state_backends.scratch_folder import ScratchFolder

_CHILD = """
import sys
from pathlib import Path
from cutline.state_backends.scratch_folder import ScratchFolder
folder = ScratchFolder(Path(sys.argv[1]), "child")
(folder.path / "file").write_text("x")
print(folder.path, flush=True)
sys.stdin.read()
"""


def _folders(parent: Path) -> list[str]:
    return sorted(path.name.split(".")[0] for path in parent.iterdir() if path.is_dir())


def test_a_folder_is_empty_and_its_own(tmp_path: Path) -> None:
    """Two folders of one name do not share anything, and each is removed by its own `close`."""
    one, other = ScratchFolder(tmp_path, "a"), ScratchFolder(tmp_path, "a")
    (one.path / "file").write_text("x")
    assert list(other.path.iterdir()) == []
    one.close()
    assert not one.path.exists()
    assert other.path.exists()
    other.close()
    other.close()
    assert _folders(tmp_path) == []


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    """The folder of a live process is kept, and the folder of a killed one is removed by the next that is made."""
    child = subprocess.Popen(
        [sys.executable, "-c", _CHILD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with child:
        assert child.stdout is not None
        path = Path(child.stdout.readline().strip())
        ScratchFolder(tmp_path, "mine").close()
        assert (path / "file").exists()
        os.kill(child.pid, signal.SIGKILL)
    ScratchFolder(tmp_path, "mine").close()
    assert not path.exists()
    assert _folders(tmp_path) == []


def test_a_disk_that_refuses_is_an_error(tmp_path: Path) -> None:
    """A parent that is a file raises, and nothing is hidden."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(OSError, match="file"):
        ScratchFolder(tmp_path / "file", "mine")
