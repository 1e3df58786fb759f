"""Every interleaving of a small graph, its snapshots and a crash: no state that can be reached breaks a promise.

`explore` is the door. The machines, the frames and markers, the parts, the certificate, the coordinator's book and the
restore plan are those that a run has; what moves between them, and when, is tried in every order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from snapshot.errors import GraphError
from snapshot.graph import Graph
from snapshot.ids import Subtask
from snapshot.plan.compiled_graph import build
from snapshot.plan.declarations import AlignmentWish
from snapshot.testing.exploration.local_coordinator import Wishes
from snapshot.testing.exploration.model import Model
from snapshot.testing.exploration.search import Exploration, search

#: Worlds that a few GB of memory hold.
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

    Every message is handled as soon, or as late, as its channel allows; every marker, acknowledgement and control
    message likewise; snapshots begin, are given up and time out at any moment; a crash loses all workers at once, and
    all restore the newest published snapshot, or begin afresh.

    Checked are: every snapshot that is whole has a certificate that holds, and is exact by what its nodes really sent
    and handled before their cuts; the graph's own invariants hold in it; subtasks cut in the order of ids. Wherever a
    run comes to rest, everything that was sent was handled once and in order, every snapshot that began is complete,
    and after a crash the nodes keep what they also keep after some run without one.

    Parameters
    ----------
    graph : Graph
        Small: three nodes and three messages make some 100,000 states. Its nodes must come to rest by themselves, touch
        nothing outside themselves, and do the same when the same is repeated.
    alignment : "unaligned", "aligned" or float
        As of a run.
    snapshots : sequence of sequence of str
        For each snapshot that is taken, the nodes that start it at the same time; none: those that the graph implies.
        They overlap wherever they can.
    aborts : int
        Snapshots that may be given up before they are whole.
    crashes : int
        That may come.
    statesMax : int
        More states than this raise `TooManyStates`.

    Returns
    -------
    Exploration
        Its ``violation`` is None if all is well, else the nearest; ``trace`` are the steps that lead there.

    Raises
    ------
    GraphError
        if the graph cannot be built, or an initiator is not in it.
    """
    compiled = build(graph, alignment)
    wishes = Wishes(tuple(_initiators(compiled.topology.subtasks, names) for names in snapshots), aborts)
    model = Model(compiled, wishes, crashes)
    found = search(model.initial(), model.steps, model.problem, states_max=statesMax)
    lost = [outcome for outcome in model.outcomes[True] if outcome not in model.outcomes[False]]
    if found.violation is None and lost:
        # Known only now, when all runs without a crash are known; the second search says how it comes about.
        model.forbidden = frozenset(lost)
        found = search(model.initial(), model.steps, model.problem, states_max=statesMax)
    return replace(found, seen=frozenset(model.seen))


def _initiators(subtasks: Sequence[Subtask], names: Sequence[str]) -> tuple[Subtask, ...]:
    unknown = [name for name in names if all(subtask.node != name for subtask in subtasks)]
    if unknown:
        raise GraphError(f"there is no node {unknown[0]!r} to start a snapshot")
    return tuple(subtask for subtask in subtasks if subtask.node in names)
