"""What Hypothesis draws of graphs and schedules, and the machine that explores freely."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from itertools import groupby

import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test

from cutline import Node
from cutline.snapshot.testing.steps import Initiate
from cutline.testing import (
    CheckFailed,
    Fault,
    History,
    Simulator,
    Step,
    explorationMachine,
    faults,
    graphs,
    judge,
    schedules,
)
from tests.run_size import scaled
from tests.snapshot.testing.broken import Averages, ForgetsCount, SharesLedger, through
from tests.snapshot.testing.test_conservation import Account, bank, money
from tests.snapshot.testing.test_recovery import pasted

_FAST = settings(
    max_examples=scaled(40),
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.generate, Phase.shrink),
)


@given(st.data())
@settings(_FAST, max_examples=scaled(50))
def test_any_graph_survives_any_schedule(data: st.DataObject) -> None:
    """The whole of Cutline, judged by all checkers, on graphs and schedules that Hypothesis draws."""
    graph = data.draw(graphs())
    schedule = data.draw(schedules(graph, faults=2))
    reference = Simulator(graph, ()).run()
    history = Simulator(graph, schedule, skipsImpossible=True).run()
    for verdict in judge(history, reference=reference):
        verdict.demand()


@pytest.mark.parametrize(
    "situation",
    [
        pytest.param(lambda history: len(history.snapshots) > 2, id="several snapshots"),
        pytest.param(lambda history: history.seen["two snapshots at a time"], id="overlap"),
        pytest.param(lambda history: history.seen["a snapshot with messages in flight"], id="in flight"),
        pytest.param(lambda history: any(history.origins.values()), id="restored from a snapshot"),
        pytest.param(lambda history: len(history.origins) > 2, id="two rollbacks"),
        pytest.param(lambda history: history.seen["two lives of a coordinator"], id="zombie"),
    ],
)
def test_schedules_bring_about(situation: Callable[[History], object]) -> None:
    """What a search for mistakes needs happens in some schedule, and soon."""
    graph = through(Averages())

    def happens(schedule: list[Step]) -> bool:
        return bool(situation(Simulator(graph, schedule, skipsImpossible=True).run()))

    find(schedules(graph, faults=2), happens, settings=settings(_FAST, max_examples=200, phases=[Phase.generate]))


@given(st.data())
@settings(_FAST)
def test_faults_come_when_they_are_asked_for(data: st.DataObject) -> None:
    """A schedule without faults holds none, and `faults` draws nothing else."""
    graph = through(Averages())
    assert not any(isinstance(step, Fault) for step in data.draw(schedules(graph)))
    assert isinstance(data.draw(faults(graph)), Fault)


def test_snapshots_are_numbered_upwards() -> None:
    """Subtasks that initiate side by side start one snapshot. Anything between them makes the next snapshot."""

    def ids(schedule: list[Step]) -> list[list[int]]:
        """The ids of each group of initiators that stand side by side."""
        groups = groupby(schedule, lambda step: isinstance(step, Initiate))
        return [[step.snapshotId for step in group if isinstance(step, Initiate)] for begins, group in groups if begins]

    def has_both(schedule: list[Step]) -> bool:
        return len(found := ids(schedule)) > 1 and max(map(len, found)) > 1

    chosen = settings(_FAST, max_examples=200, phases=[Phase.generate])
    drawn = find(schedules(through(Averages())), has_both, settings=chosen)
    assert [{*group} for group in ids(drawn)] == [{number} for number in range(1, len(ids(drawn)) + 1)]


def test_an_exploration_neither_shrinks_nor_is_hurried() -> None:
    """Its failure tells a short schedule already, and a run may take long."""
    usual = settings.get_current_profile_name()
    try:
        settings.load_profile("default")
        chosen = explorationMachine(bank(Account)).TestCase.settings
    finally:
        settings.load_profile(usual)
    assert chosen.phases == (Phase.generate,)
    assert chosen.deadline is None


def test_free_exploration_of_a_sound_graph_finds_nothing() -> None:
    """A machine over a bank runs to its end under Hypothesis' own choices."""
    machine = explorationMachine(bank(Account), measure=money, output=lambda history: money(history.snapshots[-1]))
    run_state_machine_as_test(machine, settings=settings(_FAST, max_examples=scaled(20), stateful_step_count=30))


@pytest.mark.parametrize("node", [ForgetsCount, SharesLedger])
def test_free_exploration_finds_mistakes(node: type[Node]) -> None:
    """A machine over a broken node fails, and tells what `checkRecovery` tells."""
    machine = explorationMachine(through(node()))
    with pytest.raises(CheckFailed, match="Look here first") as failed:
        run_state_machine_as_test(machine, settings=settings(_FAST, max_examples=200, phases=[Phase.generate]))
    assert len(pasted(failed.value.text)) <= 9, failed.value.text


def test_the_simulator_works_without_hypothesis() -> None:
    """Only what draws examples needs it, and says so."""
    code = (
        "import sys; sys.modules['hypothesis'] = None\n"
        "import cutline\n"
        "from cutline.testing import Simulator, ListSource, ListSink, judge\n"
        "graph = cutline.Graph('g').add('a', ListSource(1)).add('b', ListSink()).connect('a', 'b')\n"
        "assert Simulator(graph, 1).run().output('b') == [1]\n"
        "from cutline.testing import checkRecovery\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert ran.stderr.endswith('ImportError: checkRecovery needs Hypothesis: pip install "cutline[testing]"\n')
