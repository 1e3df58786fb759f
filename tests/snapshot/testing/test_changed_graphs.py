"""Snapshots restored into a changed graph: new edges around nodes that have ended (PROTOCOL 6.7, ended subtasks)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from random import Random
from typing import Any

import pytest

from cutline import Context, Graph, Node
from cutline.snapshot.coordinator.recovery import ALLOWANCES
from cutline.snapshot.coordinator.run_state import Outcome
from cutline.snapshot.testing.strategies import Relay
from cutline.testing import History, ListSink, ListSource, Pause, Simulator, judge
from tests.run_size import FACTOR, scaled

ALLOW = {"changedGraph"}


class Last(Node):
    """Passes messages on, and sends the name of each input that has ended."""

    def onMessage(self, message: Any, context: Context) -> None:
        context.send(message)

    def onEnd(self, context: Context) -> None:
        assert context.sender is not None
        context.send(f"end of {context.sender.node}")


def before() -> Graph:
    """`short` and `last` end long before `long` does."""
    graph = Graph("g").add("short", ListSource(1)).add("last", Last()).add("out", ListSink())
    graph.add("long", ListSource("a", Pause(5.0), "b", Pause(5.0), "c"))
    return graph.connect("short", "last").connect("last", "out").connect("long", "out")


def stopped_after_the_end() -> tuple[dict[str, bytes], list[Any]]:
    """The store of a run whose driver died while `long` paused, and the output so far."""
    files: dict[str, bytes] = {}
    simulator = Simulator(before(), [], files=files, snapshotInterval=1.0)
    while simulator.now < 4.0:
        simulator.take(simulator.possible()[0])
    assert not simulator.isOver
    return files, simulator.history.output("out")


def restored(graph: Graph, files: Mapping[str, bytes], *, faults: int = 0, seed: int = 0) -> History:
    """A run of a changed graph that goes on from the store, to its end."""
    return Simulator(graph, seed, faults=faults, files=dict(files), allow=ALLOW, maxSteps=20_000).run()


def demand(history: History) -> None:
    """Demand that a restored run finished, and that no checker finds anything."""
    assert history.outcome is Outcome.FINISHED, history.reason
    assert any(history.origins.values())
    assert [verdict for verdict in judge(history) if not verdict.holds] == []


@pytest.mark.parametrize("faults", [0, 2])
@pytest.mark.parametrize("seed", range(3))
def test_a_new_edge_behind_an_ended_node_is_ended(seed: int, faults: int) -> None:
    """The new node's input ends at the restore, so the run finishes. Nothing is sent again."""
    files, rows = stopped_after_the_end()
    assert sorted(map(str, rows)) == ["1", "a", "end of short"]
    graph = before().add("new", Last()).connect("short", "new").connect("new", "out")
    history = restored(graph, files, faults=faults, seed=seed)
    demand(history)
    assert sorted(history.output("out")) == ["b", "c", "end of short"]


def test_a_new_edge_into_an_ended_node_is_refused() -> None:
    """No message of the edge would be processed. The reason names the run, the snapshot and both nodes."""
    files, _ = stopped_after_the_end()
    history = restored(before().connect("long", "last"), files)
    assert history.outcome is Outcome.FAILED
    assert history.reason == (
        "run 'g', snapshot 1000002: the edge long->last is new, and last[0] has ended in the snapshot: it would take "
        "no message. Lead the edge to a new node, or restore an earlier snapshot"
    )


@pytest.mark.parametrize("seed", range(3))
def test_a_new_edge_between_ended_nodes_carries_nothing(seed: int) -> None:
    """The target has ended already, so `onEnd` is not called for the edge, and no end waits for ever."""
    files, _ = stopped_after_the_end()
    grown = before().add("other", ListSource()).connect("other", "out")
    history = restored(grown.connect("short", "out"), files, seed=seed)
    demand(history)
    between = Graph("g").add("short", ListSource(1)).add("also", ListSource(2)).add("last", Last())
    between.add("out", ListSink()).add("long", ListSource("a", Pause(5.0), "b"))
    between.connect("short", "last").connect("last", "out").connect("long", "out").connect("also", "out")
    ended: dict[str, bytes] = {}
    simulator = Simulator(between, [], files=ended, snapshotInterval=1.0)
    while simulator.now < 4.0:
        simulator.take(simulator.possible()[0])
    history = restored(between.connect("also", "last"), ended, faults=1, seed=seed)
    demand(history)
    assert history.output("out") == ["b"]


def test_changes_are_refused_unless_allowed() -> None:
    """The simulator takes the names that `submit` takes, and no others."""
    files, _ = stopped_after_the_end()
    grown = before().add("new", ListSink()).connect("short", "new")
    history = Simulator(grown, [], files=files).run()
    assert history.outcome is Outcome.FAILED
    assert "+ node new: not in the snapshot" in history.reason and "changedGraph" in history.reason
    with pytest.raises(ValueError, match=r"'anything'.* is unknown; there are changedGraph"):
        Simulator(grown, [], allow={"anything"})


# ---------------------------------------------------------------- any change


NAMES = ("short", "long", "n0", "n1", "n2", "n3")


def random_graph(nodes: list[str], edges: list[tuple[str, str]], parallelism: Mapping[str, int]) -> Graph:
    """A graph of two sources and some relays, in cycles too."""
    graph = Graph("g").add("out", ListSink())
    for name in nodes:
        if name == "short":
            graph.add(name, ListSource(2, 3))
        elif name == "long":
            graph.add(name, ListSource(1, Pause(1.0), 2, Pause(1.0), 3, Pause(1.0), 1))
        else:
            graph.add(name, Relay([2] if name == "n1" else ()), parallelism=parallelism[name])
    for source, target in edges:
        graph.connect(source, target, partitioning="rebalance")
    return graph


def random_edges(random: Random, nodes: list[str]) -> list[tuple[str, str]]:
    """Every node to the sink, and some to some relays."""
    pairs = [(source, target) for source in nodes for target in nodes if target.startswith("n")]
    return [*((node, "out") for node in nodes), *(pair for pair in pairs if random.random() < 0.35)]


def random_change(seed: int) -> History:
    """A run that is cut off somewhere, and goes on as another graph: with nodes and edges added and removed."""
    random = Random(seed)
    parallelism = {name: random.choice([1, 1, 2]) for name in NAMES}
    nodes = [*NAMES[:2], *(name for name in NAMES[2:] if random.random() < 0.6)]
    edges = random_edges(random, nodes)
    kept = [name for name in nodes if random.random() < 0.9]
    grown = kept + [name for name in NAMES if name not in nodes and random.random() < 0.7]
    changed = [edge for edge in edges if {*edge} <= {*grown, "out"} and (edge[1] == "out" or random.random() < 0.85)]
    for edge in random_edges(random, grown):
        is_of_new_node = not {*edge} <= {*nodes, "out"}
        if edge not in changed and (is_of_new_node or random.random() < 0.15):
            changed.append(edge)
    files: dict[str, bytes] = {}
    steps = random.choice([60, 120, 200, 300, 400])
    Simulator(random_graph(nodes, edges, parallelism), seed, files=files, snapshotInterval=0.5, maxSteps=steps).run()
    return Simulator(
        random_graph(grown, changed, parallelism), seed + 1, faults=random.choice([0, 0, 2]), files=files,
        allow=ALLOWANCES, snapshotInterval=0.5, maxSteps=20_000,
    ).run()  # fmt: skip


def test_any_change_finishes_or_is_refused() -> None:
    """No node waits for ever, no message is lost on an edge of both graphs, and each cut is exact."""
    seen: Counter[str] = Counter()
    for seed in range(scaled(80)):
        history = random_change(seed)
        if history.outcome is Outcome.FAILED:
            assert "has ended in the snapshot" in history.reason, (seed, history.reason)
            seen["refused"] += 1
            continue
        assert history.outcome is Outcome.FINISHED, (seed, history.reason)
        assert [verdict for verdict in judge(history) if not verdict.holds] == [], seed
        seen["restored"] += any(history.origins.values())
        seen["rolled back"] += len(history.origins) > 2
    if FACTOR >= 1:
        assert min(seen[what] for what in ("refused", "restored", "rolled back")) > 5, seen
