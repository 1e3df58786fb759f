"""docs/CHANGE.md: its code runs as it stands there, on a runtime, and prints what the page shows."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from cutline import BarrierRuntime, FileSystemBackend
from tests.barrier_runtime.local_cluster import local_cluster
from tests.leaks import LeakCheck
from tests.source_files import ROOT


def blocks() -> list[tuple[str, str]]:
    """All code of the page, in order, and the output that the page shows behind it."""
    page = (ROOT / "docs/CHANGE.md").read_text()
    fences = re.findall(r"```(python|text)\n(.*?)```", page, re.DOTALL)
    following = [*fences[1:], ("", "")]
    return [
        (code, after if next_kind == "text" else "")
        for (kind, code), (next_kind, after) in zip(fences, following, strict=True)
        if kind == "python"
    ]


def plain(output: str) -> str:
    """An output without numbers, and without messages that are in flight by chance."""
    return re.sub(r"[0-9][0-9,]*", "0", re.sub(r", [0-9,]+ messages (kept|rerouted)", "", output)).strip()


def test_the_page_is_true(
    leak_check: LeakCheck, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every block runs behind those before it. Outputs are as shown, but for numbers."""
    module = ModuleType("change_page")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    shown = 0
    with local_cluster() as cluster:
        backend = FileSystemBackend(str(tmp_path))
        vars(module)["runtime"] = BarrierRuntime(cluster.spark, backend=backend, page=False, snapshotInterval=None)
        for code, output in blocks():
            capsys.readouterr()
            exec(code, vars(module))
            found = capsys.readouterr().out
            assert plain(found) == plain(output)
            shown += bool(output)
    assert shown == 4
