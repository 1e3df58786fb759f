"""The notebooks run from top to bottom, each in a kernel, Spark and Ray of its own, and say what they are to say."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.leaks import LeakCheck
from tests.source_files import ROOT

#: Notebooks that run at the same time: they wait for Spark and Ray much of their time.
_AT_ONCE = 2
#: Seconds after which a cell hangs, and a notebook.
_CELL_SECONDS_MAX, _NOTEBOOK_SECONDS_MAX = 300, 400

_NOTEBOOKS = sorted((ROOT / "demos").glob("*.ipynb"))


class Expected(NamedTuple):
    """What a notebook must show; its own cells assert the rest."""

    said: str  #: a pattern
    pictures: int


_EXPECTED = {
    "01_balls": Expected(r"was in flight: \['orange'\]", 10),
    "02_bank": Expected(r"[1-9]\d* snapshots audited, 0 of them wrong", 4),
    "03_state_machine": Expected(r"(\d+) alerts are right; the table has \1 rows", 2),
    "04_wordcount": Expected(r"[1-9][\d,]+ counts, and every one is equal", 3),
    "05_your_own_node": Expected(r"state kept outside snapshotState(.|\n)*100 sums, all right", 2),
    "06_unaligned": Expected(r"aligned takes [\d,]+ ms, unaligned [\d,]+ ms", 3),
    "07_mend": Expected(r"10,\d{3} messages were in flight, 7 totals, all right without order 1500", 2),
    "08_modes": Expected(r"6 modes, one kill each, and every count is right(.|\n)*the store.s error was: .*locked", 2),
}

#: The executed notebooks, by name.
Executions = Mapping[str, Future[list[dict[str, Any]]]]


@pytest.fixture(scope="module")
def executions(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Executions]:
    """Those notebooks that are asked for, started at once; when they are done, nothing of them is left."""
    check = LeakCheck()
    here = [item for item in request.session.items if isinstance(item, pytest.Function) and item.path == request.path]
    names = [str(item.callspec.params["name"]) for item in here if "executions" in item.fixturenames]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        yield {name: pool.submit(_execute, name, tmp_path_factory.mktemp(name)) for name in names}
        pool.shutdown(cancel_futures=True)  # a failure that ends the tests need not wait for those that have not begun
    leaks = check.wait()
    assert not leaks, "left behind:\n" + "\n".join(leaks)


def _execute(name: str, scratch: Path) -> list[dict[str, Any]]:
    """All outputs of a notebook; the executed one stays in ``artifacts/`` to be looked at."""
    folder = ROOT / "artifacts" / "notebooks"
    folder.mkdir(parents=True, exist_ok=True)
    program = Path(sys.executable).with_name("jupyter-execute")
    command = [str(program), f"--output={folder / name}", f"--timeout={_CELL_SECONDS_MAX}", f"demos/{name}.ipynb"]
    places = ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "HYPOTHESIS_STORAGE_DIRECTORY")
    environment = {**os.environ, **dict.fromkeys(places, str(scratch))}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=_NOTEBOOK_SECONDS_MAX
    )
    assert done.returncode == 0, done.stderr
    cells = json.loads((folder / f"{name}.ipynb").read_text())["cells"]
    return [output for cell in cells for output in cell.get("outputs", ())]


@pytest.mark.spark
@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(2 * _NOTEBOOK_SECONDS_MAX)
@pytest.mark.parametrize("name", list(_EXPECTED))
def test_notebook_runs_from_top_to_bottom(executions: Executions, name: str) -> None:
    """No cell fails, its pictures are there, what it teaches came out, and nothing else was said."""
    outputs = executions[name].result()
    shown = [output["data"] for output in outputs if "data" in output]
    assert not [kind for data in shown for kind in data if kind.startswith("image/")], "an image has no text of its own"
    drawn = [html for data in shown if "<svg" in (html := "".join(data.get("text/html", ())))]
    assert all('<svg role="img" aria-label="' in html for html in drawn)
    assert len(drawn) == _EXPECTED[name].pictures
    streams = {kind: _stream(outputs, kind) for kind in ("stdout", "stderr")}
    texts = [streams["stdout"], *("".join(data.get("text/html", ())) for data in shown)]
    assert re.search(_EXPECTED[name].said, "\n".join(texts))
    complaints = [line for line in streams["stderr"].splitlines() if ": live page at http://" not in line]
    assert complaints == []


def _stream(outputs: list[dict[str, Any]], name: str) -> str:
    return "".join("".join(output["text"]) for output in outputs if output.get("name") == name)


def test_each_notebook_is_tested() -> None:
    """None was added, or renamed, that nobody runs."""
    assert [path.stem for path in _NOTEBOOKS] == list(_EXPECTED)


@pytest.mark.parametrize("path", _NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_kept_without_outputs(path: Path) -> None:
    """What is kept is what was written: no outputs, no counts, nothing of the machine it was written on."""
    notebook = json.loads(path.read_text())
    assert list(notebook["metadata"]) == ["kernelspec", "language_info"]
    assert notebook["metadata"]["language_info"] == {"name": "python"}
    for cell in notebook["cells"]:
        assert cell["metadata"] == {}
        assert cell.get("outputs", []) == []
        assert cell.get("execution_count") is None
