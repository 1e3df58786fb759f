"""Hypothesis strategies: small graphs, schedules of a graph, and the faults of a schedule.

A schedule is sparse. Its steps are taken in its order where they are possible, and the plainest rule chooses all other
steps. ::

    @given(schedules(graph, faults=2))
    def test_nothing_is_lost(schedule):
        history = Simulator(graph, schedule, skipsImpossible=True).run()

Everything shrinks: steps that are not needed go, and the remaining steps are near the beginning of the graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from cutline.snapshot.graph import Graph
from cutline.snapshot.ids import Subtask
from cutline.snapshot.node import Context, Node
from cutline.snapshot.testing.lists import ListSink, ListSource
from cutline.snapshot.testing.steps import Fault, Initiate, Quiesce, Step, Tick
from cutline.snapshot.testing.steps_of import StepsOf

#: The node that receives a token after its last hop.
OUT = "out"


class Relay(Node):
    """Sends a token on with one hop less, by a way that depends on the token alone. The last hop goes to `OUT`.

    Parameters
    ----------
    tokens : sequence of int
        Tokens that the relay sends at its start: for each token, the number of its hops.
    """

    def __init__(self, tokens: Sequence[int] = ()) -> None:
        self.tokens = list(tokens)
        #: number of handled tokens
        self.handled = 0

    def onStart(self, context: Context) -> None:
        for token in self.tokens:
            self._pass(token, context)

    def onMessage(self, token: Any, context: Context) -> None:
        self.handled += 1
        self._pass(token, context)

    def _pass(self, token: int, context: Context) -> None:
        ways = [name for name in context.outputs if name != OUT]
        if token > 0 and ways:
            context.send(token - 1, to=ways[token % len(ways)])
        else:
            context.send(token, to=OUT)

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return self.handled

    def restoreState(self, state: Any) -> None:
        self.handled = state


#: parts of a schedule between two faults: enough for a snapshot with messages on both sides, and a second snapshot
_PARTS_MAX = 6
#: one step in this many is left out of a part, so that markers and messages come in every order
_LEAVES_OUT = 8
#: maximum number of tokens of a source or relay of `graphs`, and maximum number of hops of a token
_TOKENS_MAX, _HOPS_MAX = 3, 4


# ---- schedules


def schedules(graph: Graph, *, faults: int = 0) -> SearchStrategy[list[Step]]:
    """Draw schedules of a graph, for `Simulator` with ``skipsImpossible=True``.

    Parameters
    ----------
    graph : Graph
        The graph whose nodes and channels the steps name.
    faults : int
        Maximum number of faults. After the last fault the run goes on to its end.
    """
    own = StepsOf(graph)
    parts = st.lists(_parts(own), max_size=_PARTS_MAX).map(_joined)
    if not faults:
        return parts.map(_numbered)
    stretches = st.tuples(parts, _faults(own)).map(lambda pair: [*pair[0], pair[1]])
    return st.tuples(st.lists(stretches, max_size=faults).map(_joined), parts).map(_joined).map(_numbered)


def _parts(own: StepsOf) -> SearchStrategy[list[Step]]:
    """Draw a few steps that belong together: a step that moves data, a round of such steps, or a snapshot."""
    singles = st.sampled_from([*own.polls, *own.deliveries, *own.timers, Tick()]).map(lambda step: [step])
    return st.one_of(singles, _some_of([*own.polls, *own.deliveries]), _snapshot(own))


def _snapshot(own: StepsOf) -> SearchStrategy[list[Step]]:
    """Draw steps that initiate a snapshot, move its markers along the graph, and publish."""

    def steps(initiators: list[Subtask]) -> SearchStrategy[list[Step]]:
        begun = [Initiate(0, subtask) for subtask in initiators]
        return _some_of([*begun, Quiesce(), *own.markers(initiators), Quiesce()])

    return st.lists(st.sampled_from(own.subtasks), min_size=1, max_size=2, unique=True).flatmap(steps)


def _some_of(steps: Sequence[Step]) -> SearchStrategy[list[Step]]:
    """Draw a list of these steps in their order, with few left out. The list shrinks to fewer steps."""
    keeps = st.tuples(*(st.integers(0, _LEAVES_OUT - 1) for _ in steps))
    return keeps.map(lambda drawn: [step for step, kept in zip(steps, drawn, strict=True) if kept])


def _joined(parts: Sequence[Sequence[Step]]) -> list[Step]:
    return [step for part in parts for step in part]


def _numbered(steps: Sequence[Step]) -> list[Step]:
    """Number the snapshots upwards. Adjacent `Initiate` steps start the same snapshot."""
    numbered: list[Step] = []
    snapshot_id = 0
    for place, step in enumerate(steps):
        if isinstance(step, Initiate):
            beside = place > 0 and isinstance(steps[place - 1], Initiate)
            snapshot_id += 0 if beside else 1
            step = Initiate(snapshot_id, step.at)
        numbered.append(step)
    return numbered


# ---- faults


def faults(graph: Graph) -> SearchStrategy[Fault]:
    """Draw one fault of a run of a graph: mostly of one of its nodes or their workers."""
    return _faults(StepsOf(graph))


def _faults(own: StepsOf) -> SearchStrategy[Fault]:
    return st.one_of(st.sampled_from(own.plain_faults), st.sampled_from(own.rare_faults))


# ---- graphs


def graphs(*, nodesMax: int = 5) -> SearchStrategy[Graph]:
    """Draw small graphs of relays that send tokens on: rings, meshes, stars, acyclic and arbitrary graphs.

    Every run of such a graph ends, and the same tokens come out of its node "out" in every order of steps.

    Parameters
    ----------
    nodesMax : int
        Maximum number of relays. A source and a `ListSink` come on top.
    """
    tokens = st.lists(st.integers(0, _HOPS_MAX), max_size=_TOKENS_MAX)
    sizes = st.integers(2, max(2, nodesMax))
    return sizes.flatmap(lambda size: st.builds(_graph, _edges(size), st.lists(tokens, min_size=size, max_size=size)))


def _edges(size: int) -> SearchStrategy[list[tuple[int, int]]]:
    """Draw edges between `size` relays."""
    ring = [(number, (number + 1) % size) for number in range(size)]
    mesh = [(source, target) for source in range(size) for target in range(size) if source != target]
    star = [edge for number in range(1, size) for edge in ((0, number), (number, 0))]
    forward = [(source, target) for source, target in mesh if source < target]
    return st.one_of(
        *(st.just(edges) for edges in (ring[:-1], ring, star, mesh)),
        st.lists(st.sampled_from(forward), unique=True),
        st.lists(st.sampled_from([*mesh, *((number, number) for number in range(size))]), unique=True),
    )


def _graph(edges: Sequence[tuple[int, int]], tokens: Sequence[Sequence[int]]) -> Graph:
    graph = Graph("relays")
    graph.add("in", ListSource(*tokens[0]))
    for number, own in enumerate(tokens):
        # The source sends the tokens of the first relay.
        graph.add(f"n{number}", Relay(() if number == 0 else own))
    graph.add("out", ListSink())
    graph.connect("in", "n0")
    for source, target in edges:
        graph.connect(f"n{source}", f"n{target}")
    for number in range(len(tokens)):
        graph.connect(f"n{number}", "out")
    return graph
