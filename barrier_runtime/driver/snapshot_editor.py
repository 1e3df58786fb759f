"""`SnapshotEditor`, by which users change a stored snapshot and go on from the result.

Owns the writing: the claim of the run, or another run's name. `snapshot.editing` makes the edited snapshot. The fence
of coordinators decides here too, so an old coordinator stops as it does at any newer claim (PROTOCOL 7).
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator

from cutline.barrier_runtime.coordinator.coordinator_store import CoordinatorStore
from cutline.barrier_runtime.driver.preflight import run_name_problem
from cutline.snapshot.coordinator.events import AskStore
from cutline.snapshot.coordinator.fence import Fence
from cutline.snapshot.coordinator.fence_events import (
    Continue,
    FenceEvent,
    Publish,
    Published,
    RestoreFrom,
    Start,
    Stop,
    Unpublished,
    WriteManifest,
)
from cutline.snapshot.editing.mended_snapshot import MendedSnapshot
from cutline.snapshot.errors import Fenced, RestoreRefused
from cutline.snapshot.ids import first_snapshot_id
from cutline.snapshot.plan.topology import Topology
from cutline.snapshot.stored.backend import StateBackend
from cutline.snapshot.stored.manifest import Manifest
from cutline.snapshot.stored.pins import PinKind
from cutline.snapshot.stored.run_store import RunStore, stored_history
from cutline.snapshot.stored.snapshot import Snapshot
from cutline.snapshot.stored.topology_record import topology_of_record


class SnapshotEditor(MendedSnapshot):
    """Changes messages in flight and keyed state of a stored snapshot. `write` makes a new snapshot of them.

    Parameters
    ----------
    snapshot : Snapshot
        Of `BarrierRuntime.snapshots` or `Run.snapshots`. The snapshot itself never changes.
    """

    def write(self, name: str | None = None, force: bool = False) -> Snapshot:
        """Store the edited snapshot as the newest of its run, or as the first of a new run. Blocks for the store.

        The next `submit` goes on from the edited snapshot.

        Parameters
        ----------
        name : str or None
            Name of a new run, which gets a copy of everything. None: the snapshot's own run. That takes a claim, so a
            coordinator of the run stops.
        force : bool
            Write into the snapshot's own run although the run has not finished, or has newer snapshots, which are left
            behind.

        Raises
        ------
        RestoreRefused
            if `force` is needed, the name is in use, the snapshot is being removed, nothing was edited, or the snapshot
            has steps that fit the edit no more.
        Fenced
            if somebody else took the run meanwhile. Whether the edited snapshot counts, `snapshots` shows.
        OSError
            if the store fails. The run may have a new claim already, so that its coordinator stops. Call `write` again.
        """
        snapshot = self.snapshot
        if snapshot.backend is None:
            raise RestoreRefused(f"{snapshot}: is not in a store, so there is no place for the edited snapshot")
        is_copy = name is not None and name != snapshot.run
        if (problem := self.problem_of_steps(is_copy=is_copy)) is not None:
            raise RestoreRefused(f"{snapshot}: {problem}")
        if name is None or name == snapshot.run:
            if not self.edits:
                raise RestoreRefused(f"{snapshot}: nothing was edited; to copy it, give the name of a new run")
            row = topology_of_record(snapshot.manifest.topology).row
            if row.is_alone and not snapshot.manifest.final:
                raise RestoreRefused(
                    f"{snapshot}: subtasks may have newer records, which an edited snapshot would lose; give the name "
                    "of a new run"
                )
            _check_force(snapshot, RunStore(snapshot.backend, snapshot.run), force=force)
            return self._publish(snapshot.backend, snapshot.run, snapshot.id)
        _hold_for_copy(snapshot, snapshot.backend, name)
        return self._publish(snapshot.backend, name, "latest")

    def _publish(self, backend: StateBackend, run: str, base: RestoreFrom) -> Snapshot:
        """Take a claim that continues from `base`, store the parts, and publish the manifest."""
        store = CoordinatorStore(backend, run)
        fence = Fence(f"editor {secrets.token_hex(8)}", secrets.token_hex(8), base)
        decided = _decided(fence, store, Start(), None)
        if isinstance(decided, Continue) and (decided.snapshot_id or "latest") != base:
            raise RestoreRefused(f"run {run!r} was started meanwhile; give the name of a new run")
        if isinstance(decided, Continue):
            snapshot_id = first_snapshot_id(decided.claim)
            manifest = self.store_parts(store.store, decided.claim, snapshot_id)
            decided = _decided(fence, store, Publish(snapshot_id), manifest)
        if isinstance(decided, Stop):
            raise Fenced(
                f"run {run!r}: claim {decided.claim.number} took the run while the edited snapshot was written; "
                "snapshots() shows whether the run went on from it"
            )
        if not isinstance(decided, Published):
            raise Fenced(f"run {run!r}: another record is in the place of the edited snapshot; try again")
        return store.store.read_snapshot(decided.snapshot_id, self.snapshot.codec)


def _decided(
    fence: Fence, store: CoordinatorStore, event: FenceEvent, manifest: Manifest | None
) -> Continue | Published | Unpublished | Stop:
    """Perform what the fence asks of the store, until the fence decides. One effect is awaited at a time."""
    (effect,) = fence.step(event)
    while not isinstance(effect, Continue | Published | Unpublished | Stop):
        ask = AskStore(effect, manifest if isinstance(effect, WriteManifest) else None)
        (effect,) = fence.step(store.answer(ask).answer)
    return effect


def _check_force(snapshot: Snapshot, store: RunStore, *, force: bool) -> None:
    """Refuse what a claim would break, unless the user accepts it."""
    reasons = list(_reasons_for_force(snapshot, store))
    if reasons and not force:
        raise RestoreRefused(
            f"{snapshot}: {'; '.join(reasons)}. force=True accepts that, or give the name of a new run"
        )


def _reasons_for_force(snapshot: Snapshot, store: RunStore) -> Iterator[str]:
    chain = stored_history(store)
    newest = store.read_manifest(chain[-1]) if chain else snapshot.manifest
    if not isinstance(newest, Manifest) or not newest.final:
        yield "the run has not finished, and whoever runs it is fenced by the edited snapshot"
    if chain[-1:] != (snapshot.id,):
        yield f"the run has the newer snapshot {newest.snapshot_id}, which is left behind"
        sinks = [node.name for node in _topology(snapshot).nodes if node.is_sink and node.guarantee == "exactly_once"]
        if sinks:
            yield f"output that {', '.join(sinks)} committed since is repeated"


def _hold_for_copy(snapshot: Snapshot, backend: StateBackend, name: str) -> None:
    """Check the name of a new run, and keep the snapshot until the new run has one of its own (PROTOCOL 10.5)."""
    problem = run_name_problem(name)
    if problem is not None:
        raise RestoreRefused(f"run name {name!r}: {problem}")
    if RunStore(backend, name).claims():
        raise RestoreRefused(f"{backend}: there is a run {name!r} already; give the name of a new run")
    if not RunStore(backend, snapshot.run).hold(snapshot.id, PinKind.FORK, name):
        raise RestoreRefused(f"{snapshot}: is being removed; edit a newer one")


def _topology(snapshot: Snapshot) -> Topology:
    return topology_of_record(snapshot.manifest.topology)
