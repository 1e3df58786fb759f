"""The checks of `submit` before anything starts: a snapshot that does not fit, output that would be repeated.

`plan_of` shows what the checks find, and what a restore does. It changes nothing in the store.

The coordinator checks again once it holds the claim, because another driver may publish until then.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import NamedTuple

from cutline.snapshot.coordinator.fence_events import RestoreFrom
from cutline.snapshot.coordinator.recovery import REPEATED_OUTPUT, check_allowances, explain_restore, plan_restore
from cutline.snapshot.coordinator.restore_plan import RestorePlan
from cutline.snapshot.errors import RestoreRefused
from cutline.snapshot.graph import Graph
from cutline.snapshot.plan.compiled_graph import CompiledGraph, build
from cutline.snapshot.plan.modes import ModeWish, mode_of
from cutline.snapshot.plan.partitions import with_partitions
from cutline.snapshot.plan.topology import Topology
from cutline.snapshot.stored.manifest import Manifest
from cutline.snapshot.stored.pins import PinKind
from cutline.snapshot.stored.run_store import RunStore, restorable, stored_history
from cutline.snapshot.stored.snapshot import Snapshot
from cutline.snapshot.stored.topology_record import topology_of_record


class Origin(NamedTuple):
    """The snapshot from which a run starts."""

    #: the snapshot to restore, in the form that the fence takes
    restore: RestoreFrom
    #: run and id of the snapshot used while the run has no snapshot of its own, or None
    fork: tuple[str, int] | None


#: the origin of a submission that goes on with a run from the newest snapshot
GOES_ON = Origin("latest", None)


def origin_of(restore_from: str | int | Snapshot | None, run: str) -> Origin:
    """Read the user's ``restoreFrom``."""
    if isinstance(restore_from, Snapshot):
        if restore_from.run == run:
            return Origin(restore_from.id, None)
        return Origin("latest", (restore_from.run, restore_from.id))
    if restore_from is None or isinstance(restore_from, int):
        return Origin(restore_from, None)
    if restore_from != "latest":
        raise ValueError(f"restoreFrom={restore_from!r}: give 'latest', an id, a Snapshot or None")
    return Origin("latest", None)


def check_restore(
    run: str, compiled: CompiledGraph, origin: Origin, allow: Collection[str], store_of: Callable[[str], RunStore]
) -> None:
    """Refuse a snapshot that cannot or must not be restored. Blocks for the store.

    Parameters
    ----------
    store_of : callable
        The storage of a run, by its name.

    Raises
    ------
    RestoreRefused
        with each difference, and the ``allow`` value that accepts the difference.
    SnapshotCorrupt
        if the manifest or the run's records are damaged.
    """
    chain = stored_history(store_of(run))
    source = _source_of(run, origin, chain, store_of)
    _refuse_repeating(run, compiled.topology, origin, allow, chain)
    if source is None:
        return
    manifest = store_of(source[0]).read_manifest(source[1])
    if isinstance(manifest, Manifest):
        plan_restore(compiled.topology, manifest, allow, compiled.partitions)
    if source[0] != run and not store_of(source[0]).hold(source[1], PinKind.FORK, run):
        raise RestoreRefused(f"snapshot {source[1]} of run {source[0]!r} is being removed; choose a newer one")


def plan_of(
    run: str,
    graph: Graph,
    restore_from: str | int | Snapshot | None,
    allow: Collection[str],
    store_of: Callable[[str], RunStore],
    mode: ModeWish | None = None,
) -> RestorePlan:
    """Return what `submit` would restore, or why it would refuse. Takes no claim, and writes nothing.

    Parameters
    ----------
    store_of : callable
        The storage of a run, by its name.
    mode : "markers", "inputLogging", the settings of a mode, or None
        None: the mode of the snapshot.

    Raises
    ------
    GraphError, NodeError, ValueError
        as `submit`.
    RestoreRefused
        if there is no such snapshot.
    SnapshotCorrupt
        if the manifest or the run's records are damaged.
    """
    allowed, origin = check_allowances(allow), origin_of(restore_from, run)
    chain = stored_history(store_of(run))
    source = _source_of(run, origin, chain, store_of)
    manifest = None if source is None else store_of(source[0]).read_manifest(source[1])
    stored = manifest if isinstance(manifest, Manifest) else None
    before = None if stored is None else topology_of_record(stored.topology).mode
    compiled = with_partitions(build(graph, "unaligned", before if mode is None else mode_of(mode)), graph)
    plan = explain_restore(compiled.topology, stored, allowed, compiled.partitions)
    plan = plan if stored is not None else replace(plan, run=run)
    try:
        _refuse_repeating(run, compiled.topology, origin, allowed, chain)
    except RestoreRefused as error:
        return replace(plan, reason=str(error))
    return plan


def _source_of(
    run: str, origin: Origin, chain: tuple[int, ...], store_of: Callable[[str], RunStore]
) -> tuple[str, int] | None:
    """Return run and id of the snapshot to restore, or None for a fresh start. Refuse a snapshot that is not there."""
    if isinstance(origin.restore, int):
        if origin.restore not in (there := restorable(store_of(run))):
            raise RestoreRefused(f"run {run!r} has no snapshot {origin.restore}; it has {list(there)}")
        return (run, origin.restore)
    if origin.restore is None:
        return None
    return (run, chain[-1]) if chain else origin.fork


def _refuse_repeating(
    run: str, topology: Topology, origin: Origin, allow: Collection[str], chain: tuple[int, ...]
) -> None:
    """Refuse to restore a state older than the commits of an exactly-once sink, because output would be repeated."""
    sinks = [node.name for node in topology.nodes if node.is_sink and node.guarantee == "exactly_once"]
    if not sinks or origin.restore == "latest" or REPEATED_OUTPUT in allow:
        return
    newest = chain[-1] if chain else None
    if origin.restore != newest:  # also above the newest, where a pinned snapshot off the chain may be
        committed = "after that snapshot" if newest is None else f"up to snapshot {newest}"
        raise RestoreRefused(
            f"run {run!r}: {', '.join(sinks)} committed output {committed}; going back to "
            f"{origin.restore or 'the beginning'} would repeat it. allow={{'{REPEATED_OUTPUT}'}} accepts that"
        )
