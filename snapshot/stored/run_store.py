"""The files of one run: claims, bases, checkpoints, manifests, pins, parts.

Files of parts are written and read by `snapshot.stored.part_files`.

Owns the place of each file and the order of writes. Decides nothing about the run (`snapshot.coordinator.fence` does).
Every method blocks, each of its backend calls for at most the backend's deadline. Errors of the backend are raised as
OSError. After an OSError nobody knows whether a write happened.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any, NamedTuple

from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.errors import RestoreRefused, SnapshotCorrupt
from cutline.snapshot.ids import claim_of_snapshot
from cutline.snapshot.stored import claim_digest, keys, layout
from cutline.snapshot.stored.backend import StateBackend
from cutline.snapshot.stored.claim_digest import ClaimDigest
from cutline.snapshot.stored.envelope import ENVELOPE_BYTES, pack_plain, seal, unpack_plain, unseal
from cutline.snapshot.stored.history import Base, Claim, history
from cutline.snapshot.stored.keys import StoredArray
from cutline.snapshot.stored.manifest import Aborted, Manifest, decode_manifest, encode_manifest, is_aborted
from cutline.snapshot.stored.part_files import PartFiles
from cutline.snapshot.stored.pins import PinKind, PinLog, Pins, is_pinned
from cutline.snapshot.stored.snapshot import Snapshot

CLAIM_MAGIC = b"CLCL"
BASE_MAGIC = b"CLBS"
CHECKPOINT_MAGIC = b"CLCK"

_CLAIM = StoredArray(Claim, keys.CLAIM)
_BASE = StoredArray(Base, keys.BASE)
_CHECKPOINT = StoredArray(
    ClaimDigest,
    keys.CHECKPOINT,
    write={"claims": lambda them: list(map(_CLAIM.write, them)), "bases": lambda them: list(map(_BASE.write, them))},
    read={
        "claims": lambda them: tuple(map(_CLAIM.read, them)),
        "bases": lambda them: tuple(map(_BASE.read, them)),
        "aborted": tuple,
    },
)

#: Codec for manifests, which hold no pickle.
_SAFE_CODEC = Codec(safe=True)

#: Tries to read a checkpoint that the holder of a newer claim replaces at the same time.
_CHECKPOINT_TRIES = 3


class RunStore(PartFiles):
    """Read and write the stored files of one run.

    Parameters
    ----------
    backend : StateBackend
    run : str
        Name of the run, any Unicode text.
    """

    def __init__(self, backend: StateBackend, run: str) -> None:
        super().__init__(backend, run)
        self.pins = Pins(backend, run)
        #: {snapshot_id: a manifest stands in the manifest's place}; False: an aborted record. Neither ever changes
        self._published: dict[int, bool] = {}
        #: {snapshot_id: data of its manifest that removal needs}; never changes
        self._known: dict[int, _Known] = {}
        #: {path: monotonic seconds when the file was first found without a reference}
        self._orphans: dict[str, float] = {}
        #: the newest checkpoint that was read. Checkpoints never change
        self._checkpoint = claim_digest.EMPTY

    # ---- the fence

    def take_claim(self, claim: Claim) -> bool:
        """Put the claim if its number is free. Its ``instance`` makes its bytes unlike any other claim's."""
        return self._put(layout.claim_path(claim.number), seal(CLAIM_MAGIC, [pack_plain(_CLAIM.write(claim))]))

    def read_claim(self, number: int) -> Claim | None:
        """Return claim `number`, or None if it is free. Reads the store, never a cache (PROTOCOL 7.2, next claim)."""
        try:
            return _CLAIM.read(self._fields(CLAIM_MAGIC, layout.claim_path(number), number, len(keys.CLAIM)))
        except FileNotFoundError:
            return None

    def claims(self) -> tuple[Claim, ...]:
        """Return all claims, ascending. Few are read one by one, because a checkpoint has copies of the others."""
        numbers = [number for path in self._list("claims") if (number := layout.claim_number(path)) is not None]
        copies = {claim.number: claim for claim in self._newest_checkpoint().claims}
        return tuple(claim_digest.records(numbers, copies, self.read_claim))

    def write_base(self, base: Base) -> bool:
        """Put the base of a claim. Return True too if an equal base is there already."""
        path = layout.base_path(base.claim)
        record = seal(BASE_MAGIC, [pack_plain(_BASE.write(base))])
        return self._put(path, record) or self.read_base(base.claim) == base

    def read_base(self, claim: int) -> Base:
        """Return the base of `claim`. Raises FileNotFoundError if the claim has none."""
        return _BASE.read(self._fields(BASE_MAGIC, layout.base_path(claim), claim, len(keys.BASE)))

    def bases(self) -> tuple[Base, ...]:
        """Return all bases, by claim. Call before `manifests`, or a base may name a manifest that the list lacks."""
        claims = [claim for path in self._list("bases") if (claim := layout.base_claim(path)) is not None]
        copies = {base.claim: base for base in self._newest_checkpoint().bases}
        return tuple(claim_digest.records(claims, copies, self.read_base))

    def write_checkpoint(self, claim: int, bases: tuple[Base, ...]) -> None:
        """Put a checkpoint if the newest is old, and remove the older. Call as the holder of `claim`.

        Parameters
        ----------
        claim : int
        bases : tuple of Base
            The bases that were listed.
        """
        if claim - self._newest_checkpoint().claim < claim_digest.CLAIMS_PER_CHECKPOINT:
            return
        aborted = tuple(sorted(snapshot_id for snapshot_id, stands in self._published.items() if not stands))
        record = _CHECKPOINT.write(ClaimDigest(claim, self.claims(), bases, aborted))
        self._put(layout.checkpoint_path(claim), seal(CHECKPOINT_MAGIC, [pack_plain(record)]))
        older = [number for number in self._checkpoint_claims() if number < claim]
        self.backend.delete(*(self._path(layout.checkpoint_path(number)) for number in older))

    def read_checkpoint(self, claim: int) -> ClaimDigest:
        """Return the checkpoint that the holder of `claim` wrote. Raises FileNotFoundError if there is none.

        Raises
        ------
        SnapshotCorrupt
            if the checkpoint is damaged. The text says that it can be removed.
        """
        path = layout.checkpoint_path(claim)
        try:
            return _CHECKPOINT.read(self._fields(CHECKPOINT_MAGIC, path, claim, len(keys.CHECKPOINT)))
        except SnapshotCorrupt as error:
            raise SnapshotCorrupt(
                f"{error}. Remove this checkpoint: claims and bases hold all that it holds"
            ) from error

    # ---- manifests

    def write_manifest(self, manifest: Manifest | Aborted) -> bool:
        """Put a manifest, or an aborted record in its place (PROTOCOL 7.6). Return False if the place is taken."""
        assert manifest.run == self.run
        won = self._put(layout.manifest_path(manifest.snapshot_id), encode_manifest(manifest))
        if won:
            self._known[manifest.snapshot_id] = _known(manifest)
        return won

    def read_manifest(self, snapshot_id: int) -> Manifest | Aborted:
        """Return the manifest of a snapshot, or the aborted record in its place.

        Raises
        ------
        FileNotFoundError
            if neither is there, so there is no such snapshot.
        SnapshotCorrupt, RestoreRefused
            as `decode_manifest`.
        """
        path = layout.manifest_path(snapshot_id)
        manifest = decode_manifest(self._get(path), self._name(path))
        if (manifest.run, manifest.snapshot_id) != (self.run, snapshot_id):
            found = f"snapshot {manifest.snapshot_id} of run {manifest.run!r}"
            raise SnapshotCorrupt(f"{self._name(path)}: offset 0: whole, but the manifest of {found}")
        return manifest

    def manifests(self, bases: Iterable[Base] | None = None) -> tuple[int, ...]:
        """Return the ids of manifests, ascending. Ids with an aborted record are left out.

        Parameters
        ----------
        bases : iterable of Base, or None
            Return only manifests on the chain of these bases, and read no others. None: all manifests.

        Raises
        ------
        SnapshotCorrupt
            if the bases contradict each other.
        """
        listed = [each for path in self._list("snapshots") if (each := layout.manifest_id(path)) is not None]
        there = dict.fromkeys(listed)
        ids = listed if bases is None else [each for each in history(bases, listed) if each in there]
        return tuple(each for each in ids if self._is_published(each))

    def delete_snapshot(self, snapshot_id: int, keep: Collection[int], claim: int) -> bool:
        """Remove a snapshot. Its manifest goes first, so the snapshot does not exist even if a later removal fails.

        Return True if the snapshot is gone, also if it was gone before. A pinned snapshot stays: return False. So does
        a snapshot that a higher claim or a fork holds (PROTOCOL 10.5, pin log).

        Parameters
        ----------
        snapshot_id : int
        keep : collection of int
            All snapshots that stay, with the newest. Parts that they refer to stay too. Pending snapshots may be left
            out, because none is below the newest, and later lists have no part that it dropped (PROTOCOL 10.3).
        claim : int
            A claim that decided its base, and whose history has a newer snapshot. All lower claims are over.

        Raises
        ------
        SnapshotCorrupt, FileNotFoundError
            if a manifest cannot be read, so that the needed parts are unknown. Nothing was removed.
        """
        assert snapshot_id not in keep
        try:
            known = self._known_of(snapshot_id)
        except FileNotFoundError:
            return True
        kept = self._paths_of(keep)
        log = self.pins.remove(snapshot_id, in_manifest=known.is_pinned, claim=claim, is_needed_by=self._is_needed_by)
        if not log:
            return False
        self.backend.delete(self._path(layout.manifest_path(snapshot_id)))
        # The log goes after the manifest, because a holder that finds no log checks that the manifest is there.
        self.backend.delete(*(self._path(path) for path in known.paths if path not in kept), *log)
        self._known.pop(snapshot_id, None)
        return True

    def hold(self, snapshot_id: int, kind: PinKind, holder: str = "") -> bool:
        """Add an entry to the pin log of a snapshot. Return False if the snapshot is gone, or its removal is decided.

        After True no removal takes the snapshot, unless the removal finds that the holder does not need it any more.
        """
        if not self.pins.hold(snapshot_id, kind, holder):
            return False
        is_there = self.backend.exists(self._path(layout.manifest_path(snapshot_id)))
        if not is_there:
            self.pins.forget(snapshot_id)
        return is_there

    def read_snapshot(self, snapshot_id: int, codec: Codec) -> Snapshot:
        """Open a published snapshot. Its parts are read and checked on demand.

        Raises
        ------
        FileNotFoundError
            if there is no snapshot of this id, or the snapshot was aborted.
        SnapshotCorrupt, RestoreRefused
            as `read_manifest`, or if the certificate does not hold.
        """
        return self._open(snapshot_id, codec, self.pins.log(snapshot_id))

    def read_snapshots(self, codec: Codec) -> list[Snapshot]:
        """Open all snapshots that can be restored: those of the run's history, and pinned ones off its chain.

        Ids ascend, and the newest snapshot of the history is last. Other snapshots off the chain are void
        (PROTOCOL 7.3, history).

        Raises
        ------
        SnapshotCorrupt
            if a snapshot of the history is damaged, or the newest is gone. Older snapshots may be removed during the
            call.
        """
        ids = stored_history(self)
        logs = self.pins.logs()
        snapshots: list[Snapshot] = []
        for snapshot_id in ids:
            try:
                snapshots.append(self._open(snapshot_id, codec, logs.get(snapshot_id, ())))
            except FileNotFoundError as error:
                if snapshot_id == ids[-1]:
                    name = self._name(layout.manifest_path(snapshot_id))
                    raise SnapshotCorrupt(f"{name}: the newest snapshot's manifest is missing") from error
        return [*sorted((*pinned_off_chain(self, ids, codec), *snapshots[:-1])), *snapshots[-1:]]

    # ---- removal

    def remove_records(self, paths: Iterable[str]) -> None:
        """Remove files of replaced records. Parts that a stored snapshot lists stay, and go with it."""
        kept = self._paths_of(self.manifests())
        self.backend.delete(*(self._path(path) for path in paths if path not in kept))

    def collect_orphans(self, keep: Collection[int], below_incarnation: int, grace: float, now: float) -> list[str]:
        """Remove files without a reference, and return their paths.

        Removes only parts and records of incarnations below `below_incarnation`, void manifests of lower claims, pin
        logs without a manifest, and half-written files of dead writers. A part that any manifest lists stays: first the
        void manifest goes, by the rules of `delete_snapshot`. A file goes only if a call at least `grace` seconds
        before found it so: its writer may still be at work.

        Parameters
        ----------
        keep : collection of int
            All snapshots of the history. Pending snapshots reuse only parts of these, or of their own incarnation.
        below_incarnation : int
            The caller's own incarnation.
        grace : float
            Seconds between the first and the last finding. Longer than the backend's deadline.
        now : float
            Monotonic seconds, on the same clock in all calls.
        """
        pins = [(path, entry[0]) for path in self._list("pins") if (entry := layout.pin_entry(path)) is not None]
        listed = dict.fromkeys(self.manifests())
        kept = self._paths_of((*keep, *listed))
        orphans = [path for path in self._list("parts") if path not in kept and _is_below(path, below_incarnation)]
        orphans += [path for path, snapshot_id in pins if snapshot_id not in listed]
        orphans += [path for path in self._list("records") if _is_older_record(path, below_incarnation)]
        void = [each for each in listed if each not in keep and claim_of_snapshot(each) < below_incarnation]
        orphans += map(layout.manifest_path, void)
        leftovers = [path.removeprefix(f"{self._folder}/") for path in self.backend.leftovers(self._folder)]
        self._orphans = {path: self._orphans.get(path, now) for path in (*orphans, *leftovers)}
        removed = [path for path, since in self._orphans.items() if now - since >= grace]
        return [path for path in removed if self._remove_orphan(path, listed, below_incarnation)]

    # ---- helpers

    def _remove_orphan(self, path: str, listed: dict[int, None], claim: int) -> bool:
        """Remove one file, or the void snapshot of a manifest from `listed` too. Return False if the snapshot stays."""
        void = layout.manifest_id(path)
        if void is None:
            self.backend.delete(self._path(path))
        elif self.delete_snapshot(void, [each for each in listed if each != void], claim):
            del listed[void]
        return void not in listed

    def _open(self, snapshot_id: int, codec: Codec, log: PinLog) -> Snapshot:
        manifest = self.read_manifest(snapshot_id)
        if isinstance(manifest, Aborted):
            raise FileNotFoundError(f"{self.backend}: snapshot {snapshot_id} of run {self.run!r} was aborted")
        pinned = replace(manifest, pinned=is_pinned(log, manifest.pinned))
        return Snapshot(pinned, self.read_stored, codec, backend=self.backend)

    def _is_needed_by(self, fork: str) -> bool:
        """Return whether a fork still reads snapshots of this run: it has no own, or its own refer to parts of here."""
        store = RunStore(self.backend, fork)
        own = stored_history(store)
        return not own or any(_refers_to(store.read_manifest(snapshot_id), self.run) for snapshot_id in own)

    def _paths_of(self, snapshot_ids: Iterable[int]) -> dict[str, None]:
        """Return the paths of all parts that these snapshots refer to, each once."""
        return {path: None for snapshot_id in snapshot_ids for path in self._known_of(snapshot_id).paths}

    def _known_of(self, snapshot_id: int) -> _Known:
        known = self._known.get(snapshot_id)
        if known is None:
            known = self._known[snapshot_id] = _known(self.read_manifest(snapshot_id))
        return known

    def _checkpoint_claims(self) -> list[int]:
        return [claim for path in self._list("checkpoints") if (claim := layout.checkpoint_claim(path)) is not None]

    def _newest_checkpoint(self) -> ClaimDigest:
        """Return the newest checkpoint. Any checkpoint is right, and none at all is only slow."""
        for _ in range(_CHECKPOINT_TRIES):
            newest = max(self._checkpoint_claims(), default=0)
            if newest <= self._checkpoint.claim:
                break
            try:
                self._checkpoint = self.read_checkpoint(newest)
            except FileNotFoundError:
                continue  # a newer one took its place
            self._published.update(dict.fromkeys(self._checkpoint.aborted, False))
        return self._checkpoint

    def _is_published(self, snapshot_id: int) -> bool:
        if snapshot_id not in self._published:
            try:
                data = self._get(layout.manifest_path(snapshot_id))
            except FileNotFoundError:
                return False  # deleted since it was listed
            self._published[snapshot_id] = not is_aborted(data)
        return self._published[snapshot_id]

    def _fields(self, magic: bytes, path: str, number: int, count: int) -> list[Any]:
        """Return the fields of a claim or base. The first field is the record's number, so a swapped file is found."""
        name = self._name(path)
        fields = unpack_plain(unseal(magic, self._get(path), name), name)
        if not isinstance(fields, list) or len(fields) != count or fields[0] != number:
            raise SnapshotCorrupt(f"{name}: offset {ENVELOPE_BYTES}: whole, but not what belongs here: {fields}")
        return fields


def stored_history(store: RunStore) -> tuple[int, ...]:
    """Return the ids of the snapshots in the run's history, ascending (PROTOCOL 7.3, history).

    Raises
    ------
    SnapshotCorrupt
        if the run's records are damaged.
    """
    bases = store.bases()  # read before the manifests, because a base may name the newest manifest
    return history(bases, store.manifests(bases))


def pinned_off_chain(store: RunStore, chain: Collection[int], codec: Codec = _SAFE_CODEC) -> list[Snapshot]:
    """Open the pinned snapshots that are not in `chain`, ascending. They stay, but are no history (PROTOCOL 7.3)."""
    return [snapshot for snapshot in off_chain(store, chain, codec) if snapshot.pinned]


def off_chain(store: RunStore, chain: Collection[int], codec: Codec = _SAFE_CODEC) -> list[Snapshot]:
    """Open the snapshots that are not in `chain`, ascending.

    A damaged manifest off the chain is left out, because nothing else shows that its snapshot was pinned. Only
    `state_backends.verify` names it. A damaged history must not prevent a fresh start, nor the listing after the start.
    """
    folder = layout.run_folder(store.run)
    paths = store.backend.files(f"{folder}/snapshots")
    ids = [layout.manifest_id(path.removeprefix(f"{folder}/")) for path in paths]
    found: list[Snapshot] = []
    for snapshot_id in sorted(each for each in ids if each is not None and each not in chain):
        with contextlib.suppress(FileNotFoundError, SnapshotCorrupt, RestoreRefused):
            found.append(store.read_snapshot(snapshot_id, codec))
    return found


def restorable(store: RunStore) -> tuple[int, ...]:
    """Return the ids of all snapshots that can be restored, as `RunStore.read_snapshots` lists them.

    Raises
    ------
    SnapshotCorrupt
        if the run's records are damaged.
    """
    chain = stored_history(store)
    apart = (snapshot.id for snapshot in pinned_off_chain(store, chain))
    return (*sorted((*apart, *chain[:-1])), *chain[-1:])


def runs(backend: StateBackend) -> list[str]:
    """Return the names of all runs in a backend, ascending."""
    found = [split for path in backend.files() if (split := layout.split_run(path))]
    return sorted(dict.fromkeys(name for name, rest in found if layout.claim_number(rest) is not None))


class _Known(NamedTuple):
    """Data of a manifest that the removal of its snapshot needs."""

    is_pinned: bool  #: as in the manifest; `Pins` has what changed since
    #: paths of the files that hold its parts, each once
    paths: tuple[str, ...]


def _known(manifest: Manifest | Aborted) -> _Known:
    if isinstance(manifest, Aborted):
        return _Known(is_pinned=False, paths=())
    paths = (handle.path for record in manifest.records for handle in record.all_handles)
    return _Known(manifest.pinned, tuple(dict.fromkeys(path for path in paths if path is not None)))


def _refers_to(manifest: Manifest | Aborted, run: str) -> bool:
    """Return whether a manifest lists files of parts of `run`."""
    records = manifest.records if isinstance(manifest, Manifest) else ()
    handles = (handle for record in records for handle in record.all_handles)
    return any(handle.run == run and handle.path is not None for handle in handles)


def _is_older_record(path: str, incarnation: int) -> bool:
    """Return whether a record is of an older incarnation, whose records have become a snapshot."""
    origin = layout.record_origin(path)
    return origin is not None and origin.incarnation < incarnation


def _is_below(path: str, incarnation: int) -> bool:
    origin = layout.part_origin(path)
    return origin is not None and origin.incarnation < incarnation
