"""Performs the store effects of fence and coordinator on a `RunStore`. Blocks, and knows no sockets and no Ray."""

from __future__ import annotations

import logging
import platform
import time
from dataclasses import replace
from importlib.metadata import version

from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_delay, wait_exponential

from cutline.snapshot.coordinator.events import (
    AskStore,
    CutNotStored,
    CutStored,
    Event,
    ListRecords,
    ManifestRead,
    RecordsListed,
    RecordsUnusable,
    StoreAnswered,
    StoreCut,
)
from cutline.snapshot.coordinator.fence_answers import perform
from cutline.snapshot.coordinator.fence_events import (
    Answer,
    CheckForClaim,
    ClaimSeen,
    DecideManifest,
    ManifestUndecided,
    ManifestWritten,
    StoreEffect,
    Unanswered,
    WriteManifest,
)
from cutline.snapshot.errors import CutlineError
from cutline.snapshot.stored.backend import StateBackend, is_permanent
from cutline.snapshot.stored.local_checkpoint_files import LocalCheckpointFiles
from cutline.snapshot.stored.manifest import Aborted, Manifest
from cutline.snapshot.stored.pins import PinKind
from cutline.snapshot.stored.run_store import RunStore, off_chain

#: Seconds to retry a store effect that the run needs. The time is longer than a rolling restart of an object store, and
#: short enough to report a dead store while the user still waits.
STORE_SECONDS_MAX = 300.0

#: seconds between two attempts: at first, and at most
_PAUSE_SECONDS = (0.05, 5.0)

#: doublings of the first pause that lead beyond the longest
_DOUBLINGS_MAX = 10

#: Seconds that a part must be unused before removal: longer than any upload may take.
ORPHAN_GRACE_SECONDS = 900.0

_logger = logging.getLogger("cutline.coordinator")


def _written_by() -> str:
    """Return what a manifest says of the program that writes it. It helps to explain an error, and decides nothing."""
    return f"Python {platform.python_version()}, Cutline {version('cutline')}"


class CoordinatorStore:
    """The storage of one run, for the run's coordinator.

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
        #: a claim, and the snapshots off its chain, of which some may be gone since
        self._apart: tuple[int, tuple[int, ...]] = (0, ())
        #: {snapshot: snapshots whose local versions it lists}
        self._versions: dict[int, tuple[int, ...]] = {}
        #: why the last call of the fence failed, or None after one that did not
        self.error: str | None = None
        #: calls of the fence that failed in a row, and that the fence repeats
        self._silences = 0

    def answer(self, ask: AskStore) -> StoreAnswered:
        """Perform what the fence asks for, and the check after a written manifest.

        What the fence repeats is tried once, with a pause after a failure, because a rollback must not wait for it.

        Raises
        ------
        OSError
            if the store has failed for `STORE_SECONDS_MAX`, or at once if another try is of no use.
        SnapshotCorrupt
            if a claim or a base is damaged.
        """
        if ask.is_repeated:
            assert isinstance(ask.effect, DecideManifest | CheckForClaim)
            return StoreAnswered(self._perform_once(ask.effect))
        if not isinstance(ask.effect, WriteManifest):
            return StoreAnswered(self._perform(ask.effect))
        assert ask.manifest is not None
        answer = self._write_manifest(ask.effect, ask.manifest)
        if ask.check is None or not isinstance(answer, ManifestWritten):
            return StoreAnswered(answer)
        check = self._perform_once(ask.check)
        return StoreAnswered(answer, check if isinstance(check, ClaimSeen) else None)

    def _perform(self, effect: StoreEffect) -> Answer:
        for attempt in self._patiently():
            with attempt:
                answer = perform(self.store, effect, None)
        self.error = None
        return answer

    def _perform_once(self, effect: DecideManifest | CheckForClaim) -> Answer:
        try:
            answer = perform(self.store, effect, None)
        except OSError as error:
            pause = min(_PAUSE_SECONDS[0] * 2**self._silences, _PAUSE_SECONDS[1])
            self._note(effect, error, f"tried again in {pause:g} s")
            self._silences = min(self._silences + 1, _DOUBLINGS_MAX)
            time.sleep(pause)
            return Unanswered(effect)
        self._silences, self.error = 0, None
        return answer

    def read_manifest(self, run: str, snapshot_id: int) -> ManifestRead | RecordsUnusable:
        """Read the manifest to restore from. A damaged or missing manifest is reported, and never taken as empty."""
        store = RunStore(self.backend, run)
        try:
            for attempt in self._patiently():
                with attempt:
                    # A fork holds the snapshot anew at each restore, because its own history may have begun afresh.
                    is_held = run == self.store.run or store.hold(snapshot_id, PinKind.FORK, self.store.run)
                    manifest = store.read_manifest(snapshot_id)
        except FileNotFoundError:
            return RecordsUnusable(f"{self.backend}: run {run!r} has no manifest of snapshot {snapshot_id}")
        except CutlineError as error:
            return RecordsUnusable(f"{error}. To go on from an older snapshot, submit with restoreFrom=<its id>")
        except OSError as error:
            return RecordsUnusable(f"{error}. Submit again when the store answers")
        if isinstance(manifest, Aborted):
            return RecordsUnusable(f"{self.backend}: snapshot {snapshot_id} of run {run!r} was aborted")
        if not is_held:
            return RecordsUnusable(f"{self.backend}: snapshot {snapshot_id} of run {run!r} is being removed")
        return ManifestRead(manifest)

    def about_records(self, effect: ListRecords | StoreCut) -> Event:
        """List records of subtasks alone, or store the messages of a cut."""
        files = LocalCheckpointFiles(self.store)
        try:
            for attempt in self._patiently():
                with attempt:
                    match effect:
                        case ListRecords(claim, incarnation):
                            answer: Event = RecordsListed(claim, files.newest(incarnation))
                        case StoreCut(snapshot_id, incarnation, plan):
                            answer = CutStored(snapshot_id, files.store_cut(plan, snapshot_id, incarnation))
        except (CutlineError, OSError) as error:
            if isinstance(effect, StoreCut):
                return CutNotStored(effect.snapshot_id, str(error))
            return RecordsUnusable(f"the records of the run cannot be used: {error}")
        return answer

    def remove_records(self, paths: tuple[str, ...]) -> None:
        """Remove replaced records. What cannot be removed now goes when the incarnation is over."""
        try:
            self.store.remove_records(paths)
        except (CutlineError, OSError) as error:
            _logger.warning("replaced records could not be removed: %s", error)

    def delete_snapshots(self, snapshot_ids: tuple[int, ...], keep: tuple[int, ...], claim: int) -> tuple[int, ...]:
        """Remove snapshots that retention no longer keeps, except held snapshots. Return the removed ids."""
        removed: list[int] = []
        apart: tuple[int, ...] | None = None
        for snapshot_id in snapshot_ids:
            try:
                if apart is None:
                    apart = self._apart_from((*keep, *snapshot_ids), claim)
                # Those of the same removal too, because some may stay: they are pinned, or held, or the store fails.
                stays = (*keep, *apart, *snapshot_ids)
                others = [each for each in stays if each != snapshot_id and each not in removed]
                if self.store.delete_snapshot(snapshot_id, others, claim):
                    removed.append(snapshot_id)
            except (CutlineError, OSError) as error:
                # Raised also when a kept snapshot is missing, because the parts that it shares are then unknown.
                _logger.warning("snapshot %d could not be removed: %s", snapshot_id, error)
        self._removed = tuple(removed)
        return self._removed

    def versions_of(self, snapshot_ids: tuple[int, ...], claim: int) -> tuple[int, ...]:
        """Return the snapshots whose local versions stored snapshots list: `snapshot_ids`, and those off their chain.

        Empty where no snapshot lists any, or where one cannot be read, so that the needed versions are unknown.
        """
        try:
            stored = dict.fromkeys((*snapshot_ids, *self._apart_from(snapshot_ids, claim)))
            known = self._versions
            self._versions = {each: known[each] if each in known else self._listed_versions(each) for each in stored}
        except (CutlineError, OSError) as error:
            _logger.warning("local versions are not pruned: %s", error)
            return ()
        return tuple(sorted({version for versions in self._versions.values() for version in versions}))

    def _listed_versions(self, snapshot_id: int) -> tuple[int, ...]:
        manifest = self.store.read_manifest(snapshot_id)
        records = () if isinstance(manifest, Aborted) else manifest.records
        return tuple(each.version.snapshot_id for each in records if each.version)

    def collect_orphans(self, keep: tuple[int, ...], incarnation: int) -> None:
        """Remove unused parts of lower incarnations. Retry failed removals at the next call."""
        try:
            still_kept = [k for k in keep if k not in self._removed]
            removed = self.store.collect_orphans(still_kept, incarnation, ORPHAN_GRACE_SECONDS, time.monotonic())
        except (CutlineError, OSError) as error:
            _logger.warning("orphans could not be collected: %s", error)
        else:
            if removed:
                _logger.info("removed %d parts that nothing refers to", len(removed))

    def _apart_from(self, chain: tuple[int, ...], claim: int) -> tuple[int, ...]:
        """Return the stored snapshots off the chain, pinned or not: a fork may hold them, or they are pinned later.

        Only a claim leaves a chain, so they are read once.
        """
        if self._apart[0] != claim:
            self._apart = (claim, tuple(snapshot.id for snapshot in off_chain(self.store, chain)))
        if not self._apart[1]:
            return ()
        stored = self.store.manifests()
        return tuple(each for each in self._apart[1] if each in stored)

    def _write_manifest(self, effect: WriteManifest, manifest: Manifest) -> Answer:
        try:
            return perform(self.store, effect, replace(manifest, written_by=_written_by()))
        except OSError as error:
            self._note(effect, error, "not known to be written")
            return ManifestUndecided(effect)

    def _note(self, effect: StoreEffect, error: OSError, what: str) -> None:
        self.error = str(error)
        _logger.warning("%s: %s: %s", effect, what, error)

    def _patiently(self) -> Retrying:
        return Retrying(
            retry=retry_if_exception(_may_pass),
            wait=wait_exponential(multiplier=_PAUSE_SECONDS[0], max=_PAUSE_SECONDS[1]),
            stop=stop_after_delay(STORE_SECONDS_MAX),
            before_sleep=self._before_sleep,
            reraise=True,
        )

    def _before_sleep(self, state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome is not None else None
        self.error = str(error)
        _logger.warning("the store has failed, and is asked again in %.2f s: %s", state.upcoming_sleep, error)


def _may_pass(error: BaseException) -> bool:
    """Return whether asking again may help. A missing file stays missing, and a missing right too."""
    return isinstance(error, OSError) and not is_permanent(error)
