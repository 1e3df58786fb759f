"""`ListSource` and `ListSink` at one parallelism after another."""

from __future__ import annotations

import pytest

from cutline import END, Graph, Sink, Subtask
from cutline.snapshot.coordinator.partition_assignment import assign_afresh
from cutline.snapshot.coordinator.run_state import Outcome
from cutline.testing import Failure, ListSink, ListSource, Simulator
from tests.barrier_runtime.hand_context import HandContext
from tests.snapshot.testing.rescaled import COMMITTED, Out

ITEMS = tuple(range(80))


def opened(items: int, index: int, parallelism: int, state: object = None) -> tuple[ListSource, HandContext]:
    """A source as a subtask has it, perhaps restored."""
    source, context = ListSource(*range(items)), HandContext(Subtask("numbers", index), parallelism=parallelism)
    context.partitions = assign_afresh(source.partitions(), parallelism)[index]
    if state is not None:
        source.restoreState(state)
    source.open(context)
    return source, context


def sent(source: ListSource, context: HandContext) -> list[int]:
    while source.poll(context) is not END:
        pass
    return context.sent


@pytest.mark.parametrize("parallelism", [1, 2, 3, 4, 12, 60])
@pytest.mark.parametrize("items", [0, 7, 130])
def test_subtasks_take_turns(items: int, parallelism: int) -> None:
    """Each subtask sends its items in their order."""
    for index in range(parallelism):
        assert sent(*opened(items, index, parallelism)) == list(range(index, items, parallelism))


@pytest.mark.parametrize("parallelism", [7, 61])
def test_other_parallelisms_send_all_items(parallelism: int) -> None:
    """Turns are less even then, or a subtask has none."""
    assert sorted(item for k in range(parallelism) for item in sent(*opened(130, k, parallelism))) == list(range(130))


def test_a_failure_comes_in_the_first_incarnation_only() -> None:
    """Later incarnations pass over it, and send all that is behind it."""
    for incarnation in (1, 2, 3):
        source = ListSource(1, Failure("asked for"), 2)
        context = HandContext(Subtask("numbers", 0), incarnation=incarnation)
        context.partitions = tuple(source.partitions())
        source.open(context)
        if incarnation == 1:
            with pytest.raises(RuntimeError, match="asked for"):
                sent(source, context)
            assert context.sent == [1]
        else:
            assert sent(source, context) == [1, 2]


def rescaled(parallelisms: list[int], seed: int, sink: Sink, run: str) -> list[list[int]]:
    """Let one simulation after another go on from the same store. Return what a `ListSink` gathered in each."""
    files: dict[str, bytes] = {}
    outputs = []
    for number, parallelism in enumerate(parallelisms):
        graph = Graph(run).add("numbers", ListSource(*ITEMS), parallelism=parallelism)
        graph.add("out", sink, parallelism=parallelism).connect("numbers", "out", partitioning="rebalance")
        is_last = number == len(parallelisms) - 1
        simulator = Simulator(
            graph, seed + number, files=files, snapshotInterval=0.1, maxSteps=200_000 if is_last else 300
        )
        history = simulator.run()
        assert not is_last or history.outcome is Outcome.FINISHED, history.reason
        outputs.append(history.output("out"))
    return outputs


@pytest.mark.parametrize("seed", range(4))
def test_each_item_is_sent_once_whatever_the_parallelism(seed: int) -> None:
    """The simulator restores snapshots with other numbers of subtasks, with messages in flight."""
    run = f"lists-{seed}"
    outputs = rescaled([2, 4, 3, 1], seed, Out(run), run)
    assert all(0 < len(rows) < len(ITEMS) for rows in outputs), "no simulation went on in the middle"
    assert sorted(row for rows in COMMITTED.pop(run).values() for row in rows) == list(ITEMS)


def test_a_list_sink_has_nothing_to_divide() -> None:
    """All its rows are prepared before its state is asked for."""
    outputs = rescaled([2, 4, 3], 0, ListSink(), "sink")
    assert {row for rows in outputs for row in rows} == set(ITEMS)
    assert len(outputs[-1]) == len(set(outputs[-1]))
