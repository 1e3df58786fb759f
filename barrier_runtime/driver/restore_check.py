"""The checks of `submit` before anything starts: a snapshot that does not fit, output that would be repeated.

The coordinator checks again once it holds the claim, because another driver may publish until then.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

from snapshot.coordinator.fence_events import RestoreFrom
from snapshot.coordinator.recovery import REPEATED_OUTPUT, plan_restore
from snapshot.errors import RestoreRefused
from snapshot.plan.compiled_graph import CompiledGraph
from snapshot.plan.topology import Topology
from snapshot.stored.manifest import Manifest
from snapshot.stored.pins import PinKind
from snapshot.stored.run_store import RunStore, restorable, stored_history
from snapshot.stored.snapshot import Snapshot


class Origin(NamedTuple):
    """The snapshot from which a run starts."""

    #: the snapshot to restore, in the form that the fence takes
    restore: RestoreFrom
    #: run and id of the snapshot used while the run has no snapshot of its own, or None
    fork: tuple[str, int] | None


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
    if isinstance(origin.restore, int) and origin.restore not in (there := restorable(store_of(run))):
        raise RestoreRefused(f"run {run!r} has no snapshot {origin.restore}; it has {list(there)}")
    _refuse_repeating(run, compiled.topology, origin, allow, chain)
    if isinstance(origin.restore, int):
        source = (run, origin.restore)
    elif origin.restore is None or not (chain or origin.fork):
        return
    else:
        source = (run, chain[-1]) if chain else origin.fork or (run, 0)
    manifest = store_of(source[0]).read_manifest(source[1])
    if isinstance(manifest, Manifest):
        plan_restore(compiled.topology, manifest, allow, compiled.partitions)
    if source[0] != run and not store_of(source[0]).hold(source[1], PinKind.FORK, run):
        raise RestoreRefused(f"snapshot {source[1]} of run {source[0]!r} is being removed; choose a newer one")


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
