"""Verify, file by file and byte by byte, the stored data of a run. Open a backend by its URL.

Owns the command line's view of a store. Writes and removes nothing, and runs no user code.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.errors import RestoreRefused, SnapshotCorrupt
from cutline.snapshot.ids import claim_of_snapshot
from cutline.snapshot.stored import layout
from cutline.snapshot.stored.backend import StateBackend
from cutline.snapshot.stored.claim_digest import ClaimDigest
from cutline.snapshot.stored.envelope import PART_MAGIC, envelopes, unseal
from cutline.snapshot.stored.local_checkpoint_files import LocalCheckpointFiles
from cutline.snapshot.stored.manifest import Aborted, Manifest
from cutline.snapshot.stored.part import Handle
from cutline.snapshot.stored.run_store import RunStore, restorable
from cutline.state_backends.filesystem import FileSystemBackend
from cutline.state_backends.object_store import ObjectStoreBackend


@dataclass(frozen=True, slots=True)
class Findings:
    """Stored data of a run, and its faults."""

    run: str
    files: int
    history: tuple[int, ...]  #: ids of the snapshots that can be restored, ascending; the newest of the history is last
    problems: tuple[str, ...]  #: faults; empty when every byte is proved
    unreferenced: tuple[
        str, ...
    ]  #: files of whole parts that no manifest lists: of pending, aborted or deleted snapshots


def backend_of(url: str) -> StateBackend:
    """Return the backend of a path, a ``file://`` URL or an object store's URL, with the environment's credentials."""
    return FileSystemBackend(url) if "://" not in url or url.startswith("file:") else ObjectStoreBackend(url)


def verify_run(backend: StateBackend, run: str) -> Findings:
    """Read every file of `run`, and every part of every manifest.

    Raises
    ------
    OSError
        if the store fails. Damage is never raised, but reported in the findings.
    """
    return _Verification(RunStore(backend, run)).findings()


class _Verification:
    def __init__(self, store: RunStore) -> None:
        self._store = store
        self._problems: list[str] = []
        self._referenced: dict[str, None] = {}
        self._unreferenced: list[str] = []

    def findings(self) -> Findings:
        folder = layout.run_folder(self._store.run)
        paths = [path.removeprefix(f"{folder}/") for path in self._store.backend.files(folder)]
        claims = [number for path in paths if (number := layout.claim_number(path)) is not None]
        manifests = [number for path in paths if (number := layout.manifest_id(path)) is not None]
        bases = [claim for path in paths if (claim := layout.base_claim(path)) is not None]
        for check in (self._check_record, self._check_other):  # parts after all manifests are read
            for path in paths:
                self._try_file(path, partial(check, path))
        before_newest = range(1, max(claims, default=0))
        due = sorted({*before_newest, *bases}.difference(claims))
        gone = [n for n in due if not self._is_there(layout.claim_path(n))]
        self._problems += [f"claim {n} is missing" for n in gone if n in before_newest]
        self._problems += [f"base of claim {n}: there is no such claim" for n in gone if n in bases]
        # A manifest is written after its claim's base. Without the base the manifest would be left out in silence.
        baseless = [n for n in manifests if claim_of_snapshot(n) not in bases and self._has_no_base(n)]
        self._problems += [
            f"{layout.manifest_path(n)}: the base of claim {claim_of_snapshot(n)} is missing" for n in baseless
        ]
        ids: list[int] = []
        self._try(lambda: ids.extend(restorable(self._store)))
        missing = [path for n in ids if n not in manifests and not self._is_there(path := layout.manifest_path(n))]
        self._problems += [f"{path}: the file is missing" for path in missing]
        return Findings(self._store.run, len(paths), tuple(ids), tuple(self._problems), tuple(self._unreferenced))

    def _is_there(self, path: str) -> bool:
        """Look again, because an active run writes and removes files after the listing."""
        return self._store.backend.exists(f"{layout.run_folder(self._store.run)}/{path}")

    def _has_no_base(self, snapshot_id: int) -> bool:
        base, manifest = layout.base_path(claim_of_snapshot(snapshot_id)), layout.manifest_path(snapshot_id)
        return not self._is_there(base) and self._is_there(manifest)

    def _try_file(self, path: str, check: Callable[[], object]) -> None:
        """Check a listed file. What is wrong with a file that is gone by now is no fault."""
        known = len(self._problems)
        try:
            self._try(check)
        except FileNotFoundError:
            if self._is_there(path):
                raise
        if len(self._problems) > known and not self._is_there(path):
            del self._problems[known:]

    def _try(self, check: Callable[[], object]) -> None:
        try:
            check()
        except (SnapshotCorrupt, RestoreRefused) as error:
            if str(error) not in self._problems:
                self._problems.append(str(error))

    def _check_record(self, path: str) -> None:
        """Check a claim, a base, a checkpoint, a pin, or a manifest with all its parts."""
        claim, base, snapshot_id = layout.claim_number(path), layout.base_claim(path), layout.manifest_id(path)
        if claim is not None:
            self._store.read_claim(claim)
        if base is not None:
            self._store.read_base(base)
        if (entry := layout.pin_entry(path)) is not None:
            self._store.pins.read(*entry)
        if (checkpoint := layout.checkpoint_claim(path)) is not None:
            self._check_checkpoint(path, self._store.read_checkpoint(checkpoint))
        if layout.record_origin(path) is not None:
            self._reference(LocalCheckpointFiles(self._store).read(path).all_handles)
        if snapshot_id is not None:
            manifest = self._store.read_manifest(snapshot_id)
            if isinstance(manifest, Manifest):
                self._reference(handle for record in manifest.records for handle in record.all_handles)
                self._store.read_snapshot(snapshot_id, Codec(safe=True)).verify()

    def _reference(self, handles: Iterable[Handle]) -> None:
        self._referenced.update(dict.fromkeys(handle.path for handle in handles if handle.path is not None))

    def _check_checkpoint(self, path: str, checkpoint: ClaimDigest) -> None:
        """Compare each copy with its record. A missing record is reported elsewhere, by its own path."""
        with contextlib.suppress(FileNotFoundError):
            for claim in checkpoint.claims:
                self._refuse_copy(path, claim, self._store.read_claim(claim.number))
            for base in checkpoint.bases:
                self._refuse_copy(path, base, self._store.read_base(base.claim))
            for snapshot_id in checkpoint.aborted:
                record = self._store.read_manifest(snapshot_id)
                self._refuse_copy(path, Aborted(record.run, snapshot_id), record)

    def _refuse_copy(self, path: str, copy: object, record: object) -> None:
        if copy != record:
            self._problems.append(f"{path}: holds {copy}, but stored is {record}; remove this checkpoint")

    def _check_other(self, path: str) -> None:
        """Check all parts of a file of parts, listed or not. Report a file that does not belong to a run."""
        known: tuple[Callable[[str], object], ...] = (
            *(layout.claim_number, layout.base_claim, layout.checkpoint_claim, layout.manifest_id, layout.pin_entry),
            layout.record_origin,
        )
        if layout.part_origin(path) is not None:
            if path not in self._referenced:
                self._unreferenced.append(path)
            for offset, part in envelopes(self._store.read_file(path)):
                unseal(PART_MAGIC, part, f"{path} (offsets from byte {offset:,})")
        elif all(parse(path) is None for parse in known) and not path.startswith(layout.INPUT_FOLDER):
            self._problems.append(f"{path}: no file that belongs here")
