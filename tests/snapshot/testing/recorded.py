"""Graphs of mode channelLogs whose nodes are not deterministic, and the check of their output.

Each node draws from a count that no restore turns back. So whatever is done twice comes out differently, and a link
that has no predecessor shows it.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from typing import Any

from cutline import END, ChannelLogs, Context, Graph, Node, Source
from cutline.snapshot.coordinator.restart_policy import RestartPolicy
from cutline.snapshot.coordinator.run_state import Outcome
from cutline.snapshot.node import End
from cutline.snapshot.testing.checkers import CheckFailed, judge
from cutline.snapshot.testing.history import History
from cutline.testing import ListSink, Odds, Simulator

#: what nodes draw from; never the same twice
_CHANCE = count(1)

#: seconds from one record to the next
INTERVAL = 0.05


class Numbers(Source):
    """Sends numbers, one or two at a poll, by chance. Nothing reads them again."""

    guarantee = "exactly_once"

    def __init__(self, most: int) -> None:
        self.most = most
        self.last = 0

    def poll(self, context: Context) -> float | End | None:
        if self.last == self.most:
            return END
        for _ in range(1 + next(_CHANCE) % 2):
            if self.last < self.most:
                self.last += 1
                context.send((f"{context.subtask}", self.last))
        return 0.01

    def snapshotState(self, snapshotId: int, timestamp: float) -> int:
        return self.last

    def restoreState(self, state: Any) -> None:
        self.last = state


class Pass(Node):
    """Sends on what it gets."""

    def onMessage(self, message: Any, context: Context) -> None:
        context.send(message)


class Link(Node):
    """Sends each message with its place, and with the links that it joins. Each link is drawn."""

    def __init__(self) -> None:
        self.n = 0
        self.link = 0

    def onMessage(self, message: tuple[str, int], context: Context) -> None:
        self.n += 1
        before, self.link = self.link, next(_CHANCE)
        context.send((str(context.subtask), self.n, before, self.link, *message))

    def snapshotState(self, snapshotId: int, timestamp: float) -> list[int]:
        return [self.n, self.link]

    def restoreState(self, state: Any) -> None:
        self.n, self.link = state


class Tail(ListSink):
    """A sink in two phases."""


def number_of(message: tuple[str, int]) -> int:
    """Return the key of a message."""
    return message[1]


def recorded(layers: int, most: int, *, is_diamond: bool = False, name: str = "recorded", links: int = 2) -> Graph:
    """Return sources, layers of nodes that pass messages on, two subtasks that link them, and a sink."""
    graph = Graph(name).add("numbers", Numbers(most), parallelism=2).add("link", Link(), parallelism=links)
    graph.add("out", Tail())
    before = ["numbers"]
    for layer in range(layers):
        names = [f"pass{layer}", f"other{layer}"] if is_diamond and layer == 0 else [f"pass{layer}"]
        for name in names:
            graph.add(name, Pass(), parallelism=2)
        for source in before:
            for name in names:
                graph.connect(source, name)
        before = names
    for source in before:
        graph.connect(source, "link", key=number_of)
    return graph.connect("link", "out")


def copies(*, is_diamond: bool) -> int:
    """Return how often each number comes."""
    return 2 if is_diamond else 1


def problems(rows: Iterable[tuple[Any, ...]], most: int, times: int) -> list[str]:
    """Return what is lost, doubled or disordered: links that do not join, and numbers that are missing or too many."""
    found: list[str] = []
    links: dict[str, tuple[int, int]] = {}
    last: dict[tuple[str, str], int] = {}
    counts: dict[tuple[str, int], int] = {}
    for subtask, n, before, link, source, number in sorted(rows):
        if links.get(subtask, (0, 0)) != (n - 1, before):
            found.append(f"link {n} of {subtask} joins {before}, but {links.get(subtask)} was before")
        links[subtask] = (n, link)
        counts[source, number] = counts.get((source, number), 0) + 1
        if times == 1 and number <= last.get((subtask, source), 0):
            found.append(f"{subtask} had {number} of {source} behind {last[subtask, source]}")
        last[subtask, source] = number
    due = {(f"numbers[{index}]", number): times for index in range(2) for number in range(1, most + 1)}
    wrong = {each: counts.get(each, 0) for each in {**due, **counts} if counts.get(each, 0) != due.get(each, 0)}
    return found + ([f"came as often: {wrong}"] if wrong else [])


def run(seed: int, *, faults: int = 4, most: int = 6, **settings: Any) -> History:
    """Run a graph that the seed chooses, with faults."""
    is_diamond = seed % 5 == 4
    graph = recorded(max(is_diamond, seed % 4), most, is_diamond=is_diamond)
    settings = {"odds": Odds(fault=40, tick=8), "mode": ChannelLogs(INTERVAL), **settings}
    policy = RestartPolicy(maxRestarts=50)
    history = Simulator(graph, seed, faults=faults, restartPolicy=policy, **settings).run()
    demand(history, most, copies(is_diamond=is_diamond))
    return history


def demand(history: History, most: int, times: int) -> None:
    """Check the outcome, the links, and all that the checkers know.

    Raises
    ------
    CheckFailed
    """
    if history.outcome is not Outcome.FINISHED:
        raise CheckFailed("outcome", f"{history.outcome}: {history.reason}")
    wrong = problems(history.output("out"), most, times)
    if wrong:
        raise CheckFailed("links", "; ".join(wrong[:5]))
    for verdict in judge(history):
        verdict.demand()
