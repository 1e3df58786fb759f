"""List the partitions of a graph's sources, once a submission.

The names are listed in one place, because subtasks that listed for themselves could see different lists. The
coordinator assigns the names to subtasks (`snapshot.coordinator.partition_assignment`).
"""

from __future__ import annotations

import pickle
from dataclasses import replace

from cutline.snapshot.error_text import describe, shown
from cutline.snapshot.errors import NodeError
from cutline.snapshot.node import Source, defines
from cutline.snapshot.plan.compiled_graph import CompiledGraph
from cutline.snapshot.plan.declarations import DeclaredGraph


def with_partitions(compiled: CompiledGraph, graph: DeclaredGraph) -> CompiledGraph:
    """Return `compiled` with the names that the `partitions` hooks of its sources return. Runs user code.

    Parameters
    ----------
    compiled : CompiledGraph
    graph : DeclaredGraph
        The graph that was compiled.

    Raises
    ------
    NodeError
        if a hook raises, or returns anything but distinct, non-empty names.
    """
    sources = [each.name for each in graph.nodes if isinstance(each.node, Source) and defines(each.node, "partitions")]
    return replace(compiled, partitions={name: _listed(name, compiled.nodes[name]) for name in sources})


def _listed(name: str, pickled: bytes) -> tuple[str, ...]:
    try:
        node = pickle.loads(pickled)  # a copy, as each subtask is, because the hook may change the node
        returned = node.partitions()
        names = None if isinstance(returned, str | bytes) else tuple(returned)
    except BaseException as error:  # because user code may raise anything
        raise NodeError(f"partitions of {name}: {describe(error)}") from error
    if names is None:
        raise NodeError(f"partitions of {name}: returned {shown(returned)}, which is no sequence of names")
    seen: dict[str, None] = {}
    for each in names:
        if type(each) is not str or not each or not _is_encodable(each):
            raise NodeError(f"partitions of {name}: {shown(each)} is no name: a name is a non-empty str in UTF-8")
        if each in seen:
            raise NodeError(f"partitions of {name}: {shown(each)} is listed twice: each partition has one reader")
        seen[each] = None
    return names


def _is_encodable(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
