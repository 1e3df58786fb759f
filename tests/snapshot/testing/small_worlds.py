"""Small graphs for faults at every step. Their output is the same in every schedule, or is made of chains.

All state is keyed, so that each world runs in each mode.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from cutline import ChannelLogs, Context, Deltas, Graph, InputLogging, Node, PersistentState
from cutline.snapshot.coordinator.restart_policy import RestartPolicy
from cutline.snapshot.plan.modes import Mode, ModeWish
from cutline.snapshot.testing.history import History
from cutline.snapshot.testing.steps import Step
from cutline.testing import ListSink, Odds, Simulator
from tests.snapshot.testing.replayed import Keyed, Relay, Slices, chain_problems, word_of

#: Even, so that messages share frames.
_SEED = 2

MODES: dict[str, Mode] = {
    "log": InputLogging(),
    **{f"deltas {n}": Deltas(every=n) for n in (1, 2, 3)},
    "versions": PersistentState("/disk", every=3),
    "records": ChannelLogs(0.05),
}


class Count(Node):
    """Sends each message with its place among the messages of its word. A word has one channel."""

    deterministic = True

    def open(self, context: Context) -> None:
        self.count = context.getReducingState("count", "count")

    def onMessage(self, message: tuple[str, int], context: Context) -> None:
        self.count.add(1)
        context.send((*message, self.count.get()))

    def onEnd(self, context: Context) -> None:
        assert context.sender is not None
        context.send(("end of", context.sender.node, str(context.subtask)))


class Join(Node):
    """Sends each pair of numbers of one word that came from two sources, when the second of them comes."""

    deterministic = True

    def open(self, context: Context) -> None:
        self.sides = {node: context.getListState(node) for node in ("left", "right")}

    def onMessage(self, message: tuple[str, int], context: Context) -> None:
        assert context.sender is not None
        word, number = message
        here = context.sender.node
        there = "right" if here == "left" else "left"
        self.sides[here].appendValue(number)
        context.sendAll([(word, *sorted([(here, number), (there, other)])) for other in self.sides[there].get()])


def _counted() -> Graph:
    graph = Graph("counted").add("slices", Slices({"a": 3, "b": 2}, most=1), parallelism=2)
    graph.add("count", Count(), parallelism=2).add("out", ListSink())
    return graph.connect("slices", "count", key=word_of).connect("count", "out")


def _early_end() -> Graph:
    """A source without a message, and one of two subtasks of another that ends at once."""
    graph = Graph("early").add("none", Slices({"c": 0})).add("slices", Slices({"a": 4, "b": 0}, most=1), parallelism=2)
    graph.add("count", Count(), parallelism=2).add("out", ListSink())
    graph.connect("none", "count", key=word_of).connect("slices", "count", key=word_of)
    return graph.connect("count", "out")


def _joined() -> Graph:
    graph = Graph("joined").add("left", Slices({"a": 4}, most=2)).add("right", Slices({"a": 3}, most=1))
    graph.add("join", Join(), parallelism=2).add("out", ListSink())
    graph.connect("left", "join", key=word_of).connect("right", "join", key=word_of)
    return graph.connect("join", "out")


def _timed() -> Graph:
    graph = Graph("timed").add("slices", Slices({"a": 3, "b": 2}, most=1)).add("node", Keyed()).add("out", ListSink())
    return graph.connect("slices", "node", key=word_of).connect("node", "out")


def _diamond() -> Graph:
    graph = Graph("diamond").add("slices", Slices({"a": 2, "b": 2}, most=1))
    graph.add("left", Relay()).add("right", Relay()).add("node", Keyed()).add("out", ListSink())
    graph.connect("slices", "left").connect("slices", "right")
    graph.connect("left", "node", key=word_of).connect("right", "node", key=word_of)
    return graph.connect("node", "out")


@dataclass(frozen=True)
class SmallWorld:
    """A graph, and whether its output is made of chains, which show the order of its inputs."""

    graph: Callable[[], Graph]
    has_chains: bool = False

    def simulator(self, mode: ModeWish, schedule: Sequence[Step] | None = None) -> Simulator:
        """Make a run by a schedule, without the steps that a fault has made impossible; None: by a seed."""
        return Simulator(
            self.graph(),
            _SEED if schedule is None else schedule,
            seed=_SEED,
            mode=mode,
            snapshotInterval=0.04,
            odds=Odds(tick=6),
            restartPolicy=RestartPolicy(maxRestarts=50),
            skipsImpossible=True,
        )

    def problems(self, history: History, reference: History) -> list[str]:
        """What is lost, doubled or disordered, compared with the run without faults."""
        rows, due = history.output("out"), reference.output("out")
        if not self.has_chains:
            lost, more = Counter(due) - Counter(rows), Counter(rows) - Counter(due)
            return [f"lost {lost}, too many {more}"] if lost or more else []
        handled = [Counter(_fact(row) for row in each if row[6]) for each in (rows, due)]
        found = [] if handled[0] == handled[1] else [f"handled {handled[0]}, not {handled[1]}"]
        return [*chain_problems(rows), *found]


def _fact(row: Any) -> tuple[str, str]:
    """Return key and message of a link."""
    return row[0], row[2].split(")")[0]


WORLDS = {
    "counted": SmallWorld(_counted),
    "early end": SmallWorld(_early_end),
    "joined": SmallWorld(_joined),
    "timed": SmallWorld(_timed, has_chains=True),
    "diamond": SmallWorld(_diamond, has_chains=True),
}
