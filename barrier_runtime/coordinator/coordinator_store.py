"""Performs the store effects of fence and coordinator on a `RunStore`. Blocks; knows no sockets and no Ray."""

from __future__ import annotations

import logging
import time

from tenacity import Retrying, before_sleep_log, retry_if_exception, stop_after_delay, wait_exponential

from snapshot.coordinator.events import AskStore, ManifestRead, ManifestUnreadable, StoreAnswered
from snapshot.coordinator.fence_answers import perform
from snapshot.coordinator.fence_events import (
    Answer,
    ClaimSeen,
    ManifestUndecided,
    ManifestWritten,
    StoreEffect,
    WriteManifest,
)
from snapshot.errors import CutlineError
from snapshot.stored.backend import StateBackend
from snapshot.stored.manifest import Aborted, Manifest
from snapshot.stored.run_store import RunStore

#: Seconds for which a store that fails is asked again for what the run cannot go on without. Longer than a
#: rolling restart of an object store, short enough that a dead one is named while somebody still looks.
STORE_SECONDS_MAX = 300.0

#: Seconds between two attempts, at first and at most.
_PAUSE_SECONDS = (0.05, 5.0)

#: Seconds for which a part must be seen unused before it is removed: longer than any upload may take.
ORPHAN_GRACE_SECONDS = 900.0

_logger = logging.getLogger("cutline.coordinator")


class CoordinatorStore:
    """One run's storage, as its coordinator uses it.

    Parameters
    ----------
    backend : StateBackend
    run : str
    """

    def __init__(self, backend: StateBackend, run: str) -> None:
        self.backend = backend
        self.store = RunStore(backend, run)
        #: snapshots of the last removal, because a sweep that was requested before may still count on them
        self._removed: tuple[int, ...] = ()

    def answer(self, ask: AskStore) -> StoreAnswered:
        """Perform what the fence asks for, and the check behind a manifest that was written.

        Raises
        ------
        OSError
            if the store has failed for `STORE_SECONDS_MAX`.
        SnapshotCorrupt
            if a claim or a base is damaged.
        """
        if not isinstance(ask.effect, WriteManifest):
            return StoreAnswered(self._perform(ask.effect))
        assert ask.manifest is not None
        answer = self._write_manifest(ask.effect, ask.manifest)
        if ask.check is None or not isinstance(answer, ManifestWritten):
            return StoreAnswered(answer)
        check = self._perform(ask.check)
        assert isinstance(check, ClaimSeen)
        return StoreAnswered(answer, check)

    def _perform(self, effect: StoreEffect) -> Answer:
        for attempt in self._patiently():
            with attempt:
                answer = perform(self.store, effect, None)
        return answer

    def read_manifest(self, run: str, snapshot_id: int) -> ManifestRead | ManifestUnreadable:
        """Read the manifest to restore from; damaged or missing is never taken for empty."""
        try:
            for attempt in self._patiently():
                with attempt:
                    manifest = RunStore(self.backend, run).read_manifest(snapshot_id)
        except FileNotFoundError:
            return ManifestUnreadable(f"{self.backend}: run {run!r} has no manifest of snapshot {snapshot_id}")
        except (CutlineError, OSError) as error:
            return ManifestUnreadable(f"{error}. To go on from an older snapshot, submit with restoreFrom=<its id>")
        if isinstance(manifest, Aborted):
            return ManifestUnreadable(f"{self.backend}: snapshot {snapshot_id} of run {run!r} was aborted")
        return ManifestRead(manifest)

    def delete_snapshots(self, snapshot_ids: tuple[int, ...], keep: tuple[int, ...]) -> tuple[int, ...]:
        """Remove what retention no longer keeps, except pinned snapshots; returns what was removed."""
        removed: list[int] = []
        for snapshot_id in snapshot_ids:
            try:
                if self.store.delete_snapshot(snapshot_id, [k for k in keep if k != snapshot_id]):
                    removed.append(snapshot_id)
            except (CutlineError, OSError) as error:
                # Also where one that is kept is gone: without it, it is not known which parts it shares.
                _logger.warning("snapshot %d could not be removed: %s", snapshot_id, error)
        self._removed = tuple(removed)
        return self._removed

    def collect_orphans(self, keep: tuple[int, ...], incarnation: int) -> None:
        """Remove parts that lower incarnations left; what cannot be removed now is tried again next time."""
        try:
            still_kept = [k for k in keep if k not in self._removed]
            removed = self.store.collect_orphans(still_kept, incarnation, ORPHAN_GRACE_SECONDS, time.monotonic())
        except (CutlineError, OSError) as error:
            _logger.warning("orphans could not be collected: %s", error)
        else:
            if removed:
                _logger.info("removed %d parts that nothing refers to", len(removed))

    def _write_manifest(self, effect: WriteManifest, manifest: Manifest) -> Answer:
        try:
            return perform(self.store, effect, manifest)
        except OSError as error:
            _logger.warning("manifest %d: not known to be written: %s", effect.snapshot_id, error)
            return ManifestUndecided(effect)

    def _patiently(self) -> Retrying:
        return Retrying(
            retry=retry_if_exception(_may_pass),
            wait=wait_exponential(multiplier=_PAUSE_SECONDS[0], max=_PAUSE_SECONDS[1]),
            stop=stop_after_delay(STORE_SECONDS_MAX),
            before_sleep=before_sleep_log(_logger, logging.WARNING),
            reraise=True,
        )


def _may_pass(error: BaseException) -> bool:
    """Return whether asking again may help. A missing file stays missing."""
    return isinstance(error, OSError) and not isinstance(error, FileNotFoundError)
