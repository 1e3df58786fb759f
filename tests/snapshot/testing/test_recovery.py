"""checkRecovery: five nodes with the usual mistakes are found and named, and the same nodes without them pass."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from cutline import Context, Graph, Node
from cutline.snapshot.testing import steps
from cutline.snapshot.testing.checkers import Verdict
from cutline.snapshot.testing.diagnosis.diagnose import Mistake
from cutline.snapshot.testing.trial import Run, Trial
from cutline.testing import (
    CheckFailed,
    History,
    ListSource,
    Simulator,
    checkRecovery,
    everHandled,
    restoreEquivalence,
)
from tests.run_size import scaled
from tests.snapshot.testing.broken import (
    Averages,
    ForgetsCount,
    Greets,
    GreetsInConstructor,
    GreetsInOpen,
    Ledger,
    LosesCount,
    RandomOrders,
    Requests,
    SharesLedger,
    SharesLedger2,
    into_table,
    through,
)
from tests.snapshot.testing.outside import OUTSIDES, Outside, Writer


def rows_of_table(history: History) -> int:
    """Rows in the table behind everything that came, whether it was undone or not."""
    return len({key for key, _ in everHandled(history, "table")})


_BROKEN = [
    pytest.param(through(ForgetsCount()), None, Mistake.KEPT_OUTSIDE, "'count'", id="kept outside"),
    pytest.param(through(SharesLedger()), None, Mistake.SHARED, "'LEDGERS'", id="shared by a module"),
    pytest.param(through(SharesLedger2()), None, Mistake.SHARED, "'numbers'", id="shared by a class"),
    pytest.param(through(LosesCount()), None, Mistake.LOST, "'count'", id="lost in restoreState"),
    pytest.param(through(GreetsInOpen()), None, Mistake.SENT_AT_START, "open", id="sends in open"),
    pytest.param(
        through(GreetsInConstructor()), None, Mistake.SENT_AT_START, "'outbox'", id="sends in the constructor"
    ),
    pytest.param(into_table(RandomOrders()), rows_of_table, Mistake.NOT_REPEATED, "message 1", id="not repeated"),
]


@pytest.mark.parametrize(("graph", "output", "mistake", "where"), _BROKEN)
def test_the_usual_mistakes_are_named(
    graph: Graph, output: Callable[[History], Any] | None, mistake: Mistake, where: str
) -> None:
    """A broken node fails within 200 examples, for the right reason and no other, and the schedule repeats it."""
    with pytest.raises(CheckFailed) as failed:
        checkRecovery(graph, output=output, examples=200)
    assert failed.value.checker == "restore equivalence"
    text = failed.value.text
    named = [each for each in Mistake if each.value in text]
    assert named == [mistake], text
    assert where in text.partition("The shortest schedule")[0], text
    schedule = pasted(text)
    assert len(schedule) <= 9, text
    # Nothing is left out of it, and it is enough.
    history, reference = Simulator(graph, schedule).run(), Simulator(graph, ()).run()
    assert history.schedule == schedule
    assert not restoreEquivalence(history, reference, output).holds


def pasted(text: str) -> list[Any]:
    """The schedule of a failure, as somebody pastes it into a test."""
    found = re.search(r"Simulator\(graph, (\[.*?\])\)\.run\(\)", text, re.DOTALL)
    assert found is not None, text
    schedule = eval(found[1], vars(steps))
    assert isinstance(schedule, list)
    return schedule


@pytest.mark.parametrize(
    ("graph", "output"),
    [
        pytest.param(through(Averages()), None, id="averages"),
        pytest.param(through(Ledger()), None, id="ledger"),
        pytest.param(through(Greets()), None, id="greets"),
        pytest.param(into_table(Requests()), rows_of_table, id="orders"),
    ],
)
def test_the_same_nodes_without_the_mistakes_pass(graph: Graph, output: Callable[[History], Any] | None) -> None:
    """What is repaired is not blamed, whatever fails."""
    checkRecovery(graph, output=output, examples=scaled(200))


def test_a_two_phase_sink_of_the_users_is_exactly_once() -> None:
    """What a sink writes outside in two phases is there once; the graph's maker empties the place before each run."""

    def graph() -> Graph:
        OUTSIDES["written"] = Outside()
        graph = Graph("written").add("numbers", ListSource(1, 2, 3)).add("averages", Averages()).add("out", Writer())
        return graph.connect("numbers", "averages").connect("averages", "out")

    def output(history: History) -> list[Any]:
        outside = OUTSIDES["written"]
        assert not outside.lost
        return sorted(row for rows in outside.committed.values() for row in rows)

    checkRecovery(graph, output=output, examples=scaled(100))


def test_output_that_is_never_the_same_is_found_without_faults() -> None:
    """Where two runs without faults differ already, it is said by the empty schedule."""
    with pytest.raises(CheckFailed) as failed:
        checkRecovery(into_table(RandomOrders()))
    assert pasted(failed.value.text) == []
    assert "orders: non-determinism" in failed.value.text
    assert "in the run without faults" in failed.value.text


def test_a_failure_that_does_not_come_again_is_told() -> None:
    """Nodes that are not deterministic may fail once only. The search has no second example, and tells the first."""
    refused: list[Run] = []

    def judge(run: Run) -> Verdict | None:
        if refused or not run.history.schedule:
            return None
        refused.append(run)
        return Verdict("judge", False, "refused once")

    with pytest.raises(CheckFailed, match="refused once") as failed:
        Trial(through(Averages())).demand(judge, faults=0, examples=20)
    assert repr(refused[0].history.schedule[0]) in failed.value.text


class Forever(Node):
    """Goes on for ever."""

    def onStart(self, context: Context) -> None:
        context.send(0)

    def onMessage(self, message: int, context: Context) -> None:
        context.send(message + 1)


def test_a_graph_without_an_end_is_refused() -> None:
    """There is nothing to compare with, which is said at once."""
    graph = Graph("forever").add("a", Forever()).add("b", Forever()).connect("a", "b").connect("b", "a")
    with pytest.raises(ValueError, match="'forever' does not end by itself"):
        checkRecovery(graph, output=lambda history: 0)


def test_a_failure_says_nothing_else() -> None:
    """Hypothesis prints nothing of its own: the text of the error is all that there is to read."""
    code = (
        "from cutline.testing import checkRecovery\n"
        "from tests.snapshot.testing.broken import ForgetsCount, through\n"
        "checkRecovery(through(ForgetsCount()))\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=False)
    assert ran.returncode == 1
    assert ran.stdout == ""
    assert "state kept outside snapshotState" in ran.stderr
    assert "Falsifying example" not in ran.stderr
    assert "_Found" not in ran.stderr
