"""Find why the stores of aggregates cannot serve a run, by name of node. Checked before the run is taken."""

from __future__ import annotations

from collections.abc import Iterator

from cutline.snapshot.errors import GraphError
from cutline.snapshot.graph import Graph
from cutline.snapshot.operators.persistent_aggregate import PersistentAggregate
from cutline.snapshot.plan.declarations import NodeDeclaration
from cutline.state_backends.aggregate_stores.memory import MemoryStore

_SHARED = "SQLiteStore, PostgreSQLStore or RedisStore"


def check_stores(graph: Graph, workers: int) -> None:
    """Refuse stores that the processes of a run cannot share.

    Raises
    ------
    GraphError
        if the store of an aggregate is lost with a process, or several processes would use a store that serves one, or
        two aggregates have one store. The text lists all problems.
    """
    problems = [*_process_problems(graph, workers), *_sharing_problems(graph)]
    if problems:
        raise GraphError(f"graph {graph.name!r}: {'; '.join(problems)}")


def _aggregates(graph: Graph) -> Iterator[tuple[NodeDeclaration, PersistentAggregate]]:
    for each in graph.nodes:
        if isinstance(each.node, PersistentAggregate):
            yield each, each.node


def _process_problems(graph: Graph, workers: int) -> Iterator[str]:
    for declared, aggregate in _aggregates(graph):
        store = aggregate.store
        processes = min(declared.parallelism, workers)  # because a node fills all workers before one has two subtasks
        if isinstance(store, MemoryStore):
            yield f"node {declared.name!r} has its totals in {store}, which is lost with its worker; use {_SHARED}"
        elif not store.isShared and processes > 1:
            yield (
                f"node {declared.name!r} has its totals in {store}, which serves one process, and runs in {processes} "
                f"workers; use {_SHARED}, or parallelism=1"
            )


def _sharing_problems(graph: Graph) -> Iterator[str]:
    owners: dict[str, str] = {}
    for declared, aggregate in _aggregates(graph):
        owner = owners.setdefault(str(aggregate.store), declared.name)
        if owner != declared.name:
            yield (
                f"nodes {owner!r} and {declared.name!r} have their totals in {aggregate.store}; give each a store of "
                "its own"
            )
