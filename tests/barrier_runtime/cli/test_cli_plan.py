"""`cutline plan`: what a start would restore, printed, without a start."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from cutline import Graph
from cutline.barrier_runtime.cli import session
from cutline.testing import Simulator
from tests.barrier_runtime.invoking import invoke

_JOBS = """
from cutline import Context, Graph, Node
from cutline.testing import ListSink, ListSource, Pause


class Counts(Node):
    def open(self, context):
        self.n = context.getReducingState("n", "sum")

    def onMessage(self, message, context):
        self.n.add(1)
        context.send(message)


def itself(word):
    return word


def words(name, parallelism, formerly=None):
    source = ListSource(*(each for word in "abcabc" for each in (word, Pause(1.0))))
    graph = Graph("words").add("source", source)
    graph.add(name, Counts(), parallelism=parallelism, formerly=formerly).add("out", ListSink())
    return graph.connect("source", name, key=itself).connect(name, "out", partitioning="rebalance")


def before(): return words("counts", 2)
def wider(): return words("counts", 4)
def renamed(): return words("tally", 2, "counts")
def without(): return words("tally", 2)
def of_session(spark): return words("counts", 2)
"""


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a module of graphs, and with the store of a run that was stopped somewhere."""
    (tmp_path / "planned_jobs.py").write_text(_JOBS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "planned_jobs", raising=False)
    monkeypatch.setattr(session, "_start", lambda *_: pytest.fail("Spark is started"))
    import planned_jobs  # type: ignore[import-not-found]

    graph: Graph = planned_jobs.before()
    files: dict[str, bytes] = {}
    simulator = Simulator(graph, [], files=files, snapshotInterval=0.5)
    while simulator.now < 3.6:
        simulator.take(simulator.possible()[0])
    for path, data in files.items():
        (tmp_path / "store" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "store" / path).write_bytes(data)
    return tmp_path / "store"


def content(store: Path) -> dict[str, bytes]:
    """All files of a store."""
    return {str(path): path.read_bytes() for path in store.rglob("*") if path.is_file()}


def test_a_plan_is_printed_and_nothing_changes(store: Path) -> None:
    """A line for each node and edge, without Spark, without a claim."""
    before = content(store)
    result = invoke("plan", "planned_jobs:wider", "--backend", store)
    assert result.exit_code == 0, result.output
    assert "run 'words', snapshot 100000" in result.output
    assert "  = node counts: parallelism 2 -> 4, " in result.output
    assert "rows" in result.output and "move to other subtasks" in result.output
    assert "  = edge source->counts: hash by itself()" in result.output
    assert content(store) == before


def test_a_former_name_needs_no_yes(store: Path) -> None:
    """Renamed by formerly, the node goes on. Without it the state would be dropped, so the plan is refused."""
    renamed = invoke("plan", "planned_jobs:renamed", "--backend", store)
    assert renamed.exit_code == 0 and "= node tally: parallelism 2, formerly counts" in renamed.output
    refused = invoke("plan", "planned_jobs:without", "--backend", store)
    assert refused.exit_code == 1
    assert "+ node tally" in refused.output and "- node counts" in refused.output
    assert "refused: run 'words'" in refused.output and "changedGraph" in refused.output
    dropping = ("plan", "planned_jobs:without", "--backend", store, "--allow", "changedGraph")
    assert "droppedState" in invoke(*dropping).output
    assert invoke(*dropping, "--allow", "droppedState", "--allow", "droppedMessages").exit_code == 0


def test_a_plan_as_json(store: Path) -> None:
    """One document, with the reason of a refusal."""
    result = invoke("plan", "planned_jobs:without", "--backend", store, "--json")
    assert result.exit_code == 1
    plan = json.loads(result.stdout)
    assert plan["isRefused"] and "changedGraph" in plan["reason"]
    counts = next(line for line in plan["lines"] if line["kind"] == "node" and line["name"] == "counts")
    assert (counts["change"], counts["parallelism_before"], counts["parallelism"]) == ("-", 2, None)
    assert counts["rows"] >= 2 and counts["row_bytes"] > 0


def test_a_name_and_a_snapshot_are_chosen(store: Path) -> None:
    """A run that the store does not have begins afresh. A snapshot that is not there is an error."""
    fresh = invoke("plan", "planned_jobs:before", "another", "--backend", store)
    assert fresh.exit_code == 0 and "run 'another', a fresh start" in fresh.output
    assert "a fresh start" in invoke("plan", "planned_jobs:before", "--backend", store, "--restore-from", "none").output
    gone = invoke("plan", "planned_jobs:before", "--backend", store, "--restore-from", "7")
    assert gone.exit_code == 2 and "has no snapshot 7" in gone.output
    wrong = invoke("plan", "planned_jobs:before", "--backend", store, "--restore-from", "old")
    assert wrong.exit_code == 2 and "give latest, none, or the id of a snapshot" in wrong.output
    unknown = invoke("plan", "planned_jobs:before", "--backend", store, "--allow", "anything")
    assert unknown.exit_code == 2 and "there are changedGraph" in unknown.output


def test_a_function_of_the_session_starts_spark(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only for such a graph, because Spark takes seconds."""

    class Session:
        def stop(self) -> None:
            pass

    monkeypatch.setattr(session, "_start", lambda master, settings, log: Session())
    result = invoke("plan", "planned_jobs:of_session", "--backend", store)
    assert result.exit_code == 0 and "= node counts: parallelism 2, " in result.output, result.output
