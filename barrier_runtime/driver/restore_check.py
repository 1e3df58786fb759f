"""Checks of `submit` before anything is started: does the snapshot fit, and would output be repeated.

The coordinator decides again, when it holds the claim: until then another driver may go on publishing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

from snapshot.coordinator.fence_events import RestoreFrom
from snapshot.coordinator.recovery import REPEATED_OUTPUT, plan_restore
from snapshot.errors import RestoreRefused
from snapshot.plan.topology import Topology
from snapshot.stored.history import history
from snapshot.stored.manifest import Manifest
from snapshot.stored.run_store import RunStore
from snapshot.stored.snapshot import Snapshot


class Origin(NamedTuple):
    """Starting point of a run."""

    #: in the fence's form
    restore: RestoreFrom
    #: run and id of a snapshot that counts while the run has none of its own
    fork: tuple[str, int] | None


def origin_of(restore_from: str | int | Snapshot | None, run: str) -> Origin:
    """Read what the user gave as ``restoreFrom``."""
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
    run: str, topology: Topology, origin: Origin, allow: Collection[str], store_of: Callable[[str], RunStore]
) -> None:
    """Refuse what cannot or must not be restored. Blocks for the store.

    Parameters
    ----------
    store_of : callable
        The storage of a run, by its name.

    Raises
    ------
    RestoreRefused
        saying each difference, and what would allow it.
    SnapshotCorrupt
        if the manifest or the run's records are damaged.
    """
    store = store_of(run)
    bases = store.bases()  # before the manifests: a base may name the newest of them
    chain = history(bases, store.manifests())
    _refuse_repeating(run, topology, origin, allow, chain)
    if isinstance(origin.restore, int):
        if origin.restore not in chain:
            raise RestoreRefused(f"run {run!r} has no snapshot {origin.restore}; it has {list(chain)}")
        source = (run, origin.restore)
    elif origin.restore is None or not (chain or origin.fork):
        return
    else:
        source = (run, chain[-1]) if chain else origin.fork or (run, 0)
    manifest = store_of(source[0]).read_manifest(source[1])
    if isinstance(manifest, Manifest):
        plan_restore(topology, manifest, allow)


def _refuse_repeating(
    run: str, topology: Topology, origin: Origin, allow: Collection[str], chain: tuple[int, ...]
) -> None:
    """Going back behind what an exactly-once sink has committed repeats its output."""
    sinks = [node.name for node in topology.nodes if node.is_sink and node.guarantee == "exactly_once"]
    if not sinks or origin.restore == "latest" or REPEATED_OUTPUT in allow:
        return
    if chain and (origin.restore is None or origin.restore < chain[-1]):
        raise RestoreRefused(
            f"run {run!r}: {', '.join(sinks)} committed output up to snapshot {chain[-1]}; going back to "
            f"{origin.restore or 'the beginning'} would repeat it. allow={{'{REPEATED_OUTPUT}'}} accepts that"
        )
