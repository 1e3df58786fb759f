"""Pins of snapshots that were changed after publication.

A manifest is write-once, and says whether its snapshot was pinned when the snapshot was taken. A *pin record* says the
opposite. So one file for each snapshot is enough, and the file goes when the pin is as in the manifest again. ::

    <run>/pins/0000000007000042     the pin of snapshot 7000042 is not as in the manifest
"""

from __future__ import annotations

from collections.abc import Collection

from snapshot.errors import SnapshotCorrupt
from snapshot.stored import layout
from snapshot.stored.backend import StateBackend
from snapshot.stored.envelope import ENVELOPE_BYTES, pack_plain, seal, unpack_plain, unseal

PIN_MAGIC = b"CLPN"


class Pins:
    """Read and change the pin records of one run. Nothing is cached, because other processes change pins.

    Parameters
    ----------
    backend : StateBackend
    run : str
        Name of the run.
    """

    def __init__(self, backend: StateBackend, run: str) -> None:
        self._backend = backend
        self._folder = layout.run_folder(run)

    def is_pinned(self, snapshot_id: int, in_manifest: bool) -> bool:
        """Return whether a snapshot is pinned now. `in_manifest` is the pin in its manifest."""
        return in_manifest != self._backend.exists(self._path(snapshot_id))

    def changed(self) -> Collection[int]:
        """Return the ids of the snapshots whose pin is not as in the manifest."""
        paths = self._backend.files(f"{self._folder}/{layout.PINS_FOLDER}")
        found = (layout.pinned_id(path.removeprefix(f"{self._folder}/")) for path in paths)
        return {snapshot_id: None for snapshot_id in found if snapshot_id is not None}

    def change(self, snapshot_id: int, in_manifest: bool, is_pinned: bool) -> None:
        """Pin or unpin a snapshot. A pin that is so already is no error."""
        path = self._path(snapshot_id)
        if is_pinned == in_manifest:
            self._backend.delete(path)
        else:
            self._backend.put_if_absent(path, seal(PIN_MAGIC, [pack_plain([snapshot_id])]))

    def forget(self, snapshot_id: int) -> None:
        """Remove the record of a snapshot that is gone."""
        self._backend.delete(self._path(snapshot_id))

    def check(self, snapshot_id: int) -> None:
        """Check every byte of a pin record.

        Raises
        ------
        SnapshotCorrupt
            if the record is damaged, or of another snapshot.
        """
        path = self._path(snapshot_id)
        name = f"{self._backend}/{path}"
        fields = unpack_plain(unseal(PIN_MAGIC, self._backend.get(path), name), name)
        if fields != [snapshot_id]:
            raise SnapshotCorrupt(f"{name}: offset {ENVELOPE_BYTES}: whole, but not what belongs here: {fields}")

    def _path(self, snapshot_id: int) -> str:
        return f"{self._folder}/{layout.pin_path(snapshot_id)}"
