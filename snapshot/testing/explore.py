"""Every interleaving of a small graph, its snapshots and a crash: no reachable state breaks a promise.

`explore` is the entry point. A real run has the same machines, frames, markers, parts, certificate, snapshot tracker
and restore plan. Messages between the machines move in every order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cutline.snapshot.errors import GraphError
from cutline.snapshot.graph import Graph
from cutline.snapshot.ids import Subtask
from cutline.snapshot.plan.compiled_graph import build
from cutline.snapshot.plan.declarations import AlignmentWish
from cutline.snapshot.plan.partitions import with_partitions
from cutline.snapshot.testing.exploration.local_coordinator import Wishes
from cutline.snapshot.testing.exploration.model import Model
from cutline.snapshot.testing.exploration.search import Exploration, search

#: states that a few GB of memory hold
STATES_MAX = 2_000_000


def explore(
    graph: Graph,
    *,
    alignment: AlignmentWish = "unaligned",
    snapshots: Sequence[Sequence[str]] = ((),),
    aborts: int = 0,
    crashes: int = 0,
    statesMax: int = STATES_MAX,
) -> Exploration:
    """Visit all states that any order of steps leads to, nearest first, and check each.

    Every message is handled as soon, or as late, as its channel allows. So is every marker, acknowledgement and control
    message. Snapshots begin, are given up and time out at any moment. A crash loses all workers at once. All workers
    then restore the newest published snapshot, or begin afresh.

    Each complete snapshot is checked. Its certificate holds. Its state equals what its nodes sent and handled before
    their cuts. The graph's own invariants hold, and subtasks cut in the order of ids.

    Each state of rest is checked, too. Every sent message was handled once and in order, and every snapshot that began
    is complete. After a crash the nodes hold a state in which some run without a crash also rests.

    Parameters
    ----------
    graph : Graph
        A small graph: three nodes and three messages make some 100,000 states. Its nodes must come to rest by
        themselves, touch nothing outside themselves, and be deterministic.
    alignment : "unaligned", "aligned" or float
        Alignment of the markers, as of a run.
    snapshots : sequence of sequence of str
        For each snapshot, the nodes that start it at the same time. Empty: the initiators that the graph implies.
        Snapshots overlap wherever they can.
    aborts : int
        Number of snapshots that may be given up before they are complete.
    crashes : int
        Maximum number of crashes.
    statesMax : int
        Number of states above which `TooManyStates` is raised.

    Returns
    -------
    Exploration
        Result of the search. Its ``violation`` is None, or the nearest violation; ``trace`` has the steps to it.

    Raises
    ------
    GraphError
        if the graph cannot be built, or an initiator is not in it.
    NodeError
        if the partitions of a source cannot be listed.
    """
    compiled = with_partitions(build(graph, alignment), graph)
    wishes = Wishes(tuple(_initiators(compiled.topology.subtasks, names) for names in snapshots), aborts)
    model = Model(compiled, wishes, crashes)
    found = search(model.initial(), model.steps, model.problem, states_max=statesMax)
    lost = [outcome for outcome in model.outcomes[True] if outcome not in model.outcomes[False]]
    if found.violation is None and lost:
        # Known only now, when all runs without a crash are known. The second search finds the steps that lead there.
        model.forbidden = frozenset(lost)
        found = search(model.initial(), model.steps, model.problem, states_max=statesMax)
    return replace(found, seen=frozenset(model.seen))


def _initiators(subtasks: Sequence[Subtask], names: Sequence[str]) -> tuple[Subtask, ...]:
    unknown = [name for name in names if all(subtask.node != name for subtask in subtasks)]
    if unknown:
        raise GraphError(f"there is no node {unknown[0]!r} to start a snapshot")
    return tuple(subtask for subtask in subtasks if subtask.node in names)
