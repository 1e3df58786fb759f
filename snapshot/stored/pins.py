"""Pins of published snapshots: who holds a snapshot, and whether its removal is decided (PROTOCOL 10).

Owns the entries of each snapshot's log, and what they mean together. Entries are numbered from 1 without a gap. Each
entry is written once, by put-if-absent. So all processes agree on the order of pins and removals, however long one of
them pauses. Must not know which process calls, nor how the files of a snapshot are removed. ::

    <run>/pins/0000000007000042-0001     first entry of the log of snapshot 7000042
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from cutline.snapshot.errors import SnapshotCorrupt
from cutline.snapshot.stored import keys, layout
from cutline.snapshot.stored.backend import StateBackend
from cutline.snapshot.stored.envelope import ENVELOPE_BYTES, pack_plain, seal, unpack_plain, unseal
from cutline.snapshot.stored.keys import StoredArray

PIN_MAGIC = b"CLPN"


class PinKind(Enum):
    """Kind of an entry."""

    PINNED = "pinned"  #: the user pinned the snapshot
    UNPINNED = "unpinned"  #: the user unpinned the snapshot
    BASE = "base"  #: a claim continues from the snapshot, though there are newer snapshots
    FORK = "fork"  #: a fork reads the snapshot until the fork's own snapshots stand without it
    REMOVED = "removed"  #: the removal is decided; nothing follows


@dataclass(frozen=True, slots=True)
class PinEntry:
    """Write-once record: entry `number` of the log of `snapshot_id`."""

    snapshot_id: int
    number: int
    kind: PinKind
    holder: str  #: number of the claim, or name of the fork; "" for other kinds


#: Entries of one snapshot, in order.
PinLog = tuple[PinEntry, ...]

_ENTRY = StoredArray(PinEntry, keys.PIN, write={"kind": lambda kind: kind.value}, read={"kind": PinKind})


class Pins:
    """Read and extend the logs of one run. Nothing is cached, because other processes extend the logs.

    Parameters
    ----------
    backend : StateBackend
    run : str
        Name of the run.
    """

    def __init__(self, backend: StateBackend, run: str) -> None:
        self._backend = backend
        self._folder = layout.run_folder(run)

    def logs(self) -> dict[int, PinLog]:
        """Return the logs of all snapshots that have one."""
        return {snapshot_id: self._entries(snapshot_id, numbers) for snapshot_id, numbers in self._listed().items()}

    def log(self, snapshot_id: int) -> PinLog:
        """Return the log of a snapshot. An empty log is also that of a snapshot that is gone."""
        return self._entries(snapshot_id, self._listed().get(snapshot_id, []))

    def hold(self, snapshot_id: int, kind: PinKind, holder: str = "") -> bool:
        """Add an entry. Return False if the removal is decided. Call `RunStore.hold`, which checks the snapshot too.

        A holder adds a new entry each time, because a removal may just have found that the old one is not needed.
        """
        return self._append(snapshot_id, lambda log: None if is_removed(log) else (kind, holder), ()) is not None

    def remove(
        self, snapshot_id: int, *, in_manifest: bool, claim: int, is_needed_by: Callable[[str], bool]
    ) -> list[str]:
        """Decide the removal. Return the paths of the log, which go after the manifest, or nothing if it stays.

        Parameters
        ----------
        in_manifest : bool
            Whether the manifest says that the snapshot is pinned.
        claim : int
            Claim under whose history the snapshot is removed. The history of this claim has a newer snapshot.
        is_needed_by : callable
            Whether the fork of this name still needs the snapshot.
        """

        def decide(log: PinLog) -> tuple[PinKind, str] | None:
            if is_removed(log):
                return None
            forks = dict.fromkeys(entry.holder for entry in log if entry.kind is PinKind.FORK)
            bases = (int(entry.holder) for entry in log if entry.kind is PinKind.BASE)
            stays = is_pinned(log, in_manifest) or max(bases, default=0) > claim or any(map(is_needed_by, forks))
            return None if stays else (PinKind.REMOVED, "")

        # Without a pin in the manifest the log is seldom there, so the first request is the decision itself.
        log = self._append(snapshot_id, decide, self.log(snapshot_id) if in_manifest else ())
        if log is None:
            log = self.log(snapshot_id)
            if not is_removed(log):
                return []
        return [self._path(snapshot_id, entry.number) for entry in log]

    def forget(self, snapshot_id: int) -> None:
        """Remove the log of a snapshot that is gone."""
        self._backend.delete(*(self._path(snapshot_id, entry.number) for entry in self.log(snapshot_id)))

    def read(self, snapshot_id: int, number: int) -> PinEntry:
        """Read one entry, and check every byte.

        Raises
        ------
        FileNotFoundError
            if there is no such entry.
        SnapshotCorrupt
            if the entry is damaged, or is another entry.
        """
        path = self._path(snapshot_id, number)
        name = f"{self._backend}/{path}"
        fields = unpack_plain(unseal(PIN_MAGIC, self._backend.get(path), name), name)
        try:
            entry = _ENTRY.read(fields)
        except (TypeError, ValueError):
            entry = None
        if entry is None or (entry.snapshot_id, entry.number) != (snapshot_id, number):
            raise SnapshotCorrupt(f"{name}: offset {ENVELOPE_BYTES}: whole, but not what belongs here: {fields}")
        return entry

    def _append(
        self, snapshot_id: int, decide: Callable[[PinLog], tuple[PinKind, str] | None], log: PinLog
    ) -> PinLog | None:
        """Add what `decide` makes of the log, as the next entry. Return the log, or None without an entry."""
        while (decided := decide(log)) is not None:
            entry = PinEntry(snapshot_id, len(log) + 1, *decided)
            record = seal(PIN_MAGIC, [pack_plain(_ENTRY.write(entry))])
            if self._backend.put_if_absent(self._path(snapshot_id, entry.number), record):
                return (*log, entry)
            log = self.log(snapshot_id)
        return None

    def _listed(self) -> dict[int, list[int]]:
        """Return the numbers of the listed entries, by snapshot."""
        numbers: dict[int, list[int]] = {}
        for path in self._backend.files(f"{self._folder}/{layout.PINS_FOLDER}"):
            if (found := layout.pin_entry(path.removeprefix(f"{self._folder}/"))) is not None:
                numbers.setdefault(found[0], []).append(found[1])
        return numbers

    def _entries(self, snapshot_id: int, numbers: list[int]) -> PinLog:
        """Return the listed entries, or nothing if the log is being removed, because its snapshot is gone then."""
        if sorted(numbers) != list(range(1, len(numbers) + 1)):
            return ()
        try:
            return tuple(self.read(snapshot_id, number) for number in sorted(numbers))
        except FileNotFoundError:
            return ()

    def _path(self, snapshot_id: int, number: int) -> str:
        return f"{self._folder}/{layout.pin_path(snapshot_id, number)}"


def is_pinned(log: PinLog, in_manifest: bool) -> bool:
    """Return whether the user has pinned a snapshot. `in_manifest` is the pin in its manifest."""
    changes = [entry.kind for entry in log if entry.kind in (PinKind.PINNED, PinKind.UNPINNED)]
    return changes[-1] is PinKind.PINNED if changes else in_manifest


def is_removed(log: PinLog) -> bool:
    """Return whether the removal of a snapshot is decided. Its files may be there for a while."""
    return any(entry.kind is PinKind.REMOVED for entry in log)
