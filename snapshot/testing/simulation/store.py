"""The store of a simulated run: the real `RunStore` over memory, which one process at a time can find broken."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import assert_never

from snapshot.coordinator.fence_events import (
    Answer,
    BaseWritten,
    ClaimLost,
    ClaimSeen,
    ClaimsListed,
    ClaimTaken,
    DecideManifest,
    HistoryListed,
    ListClaims,
    ListHistory,
    LookForClaim,
    ManifestAborted,
    ManifestUndecided,
    ManifestWritten,
    StoreEffect,
    TakeClaim,
    WriteBase,
    WriteManifest,
)
from snapshot.stored.manifest import Aborted, Manifest
from state_backends.memory import MemoryBackend
from state_backends.store import RunStore

#: Parts above this size are stored on their own, so that both ways are taken.
_INLINE_BYTES_MAX = 250


class Break(Enum):
    """How the next call of a process to the store ends."""

    FAILS = "fails"
    TEARS = "tears"


class SimulatedBackend(MemoryBackend):
    """The memory that all processes of a simulation share, as one of them sees it.

    Parameters
    ----------
    files : dict
        ``{path: bytes}``, shared.
    """

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__()
        self.inline_bytes_max = _INLINE_BYTES_MAX
        #: how the next call that touches a part ends
        self._break: Break | None = None
        self._bytes = files

    def break_next(self, how: Break) -> None:
        """Have the next call that touches a part end so; until then small parts are stored on their own too."""
        self._break = how
        self.inline_bytes_max = 0

    def _put_if_absent(self, path: str, chunks: Sequence[memoryview]) -> bool:
        match self._take_break(path):
            case Break.FAILS:
                raise OSError(f"{path}: simulated: no space")
            case Break.TEARS:
                data = b"".join(chunks)
                super()._put_if_absent(path, [memoryview(data)[: len(data) // 2]])
                raise OSError(f"{path}: simulated: torn")
            case None:
                return super()._put_if_absent(path, chunks)

    def _get(self, path: str) -> bytes:
        if self._take_break(path) is not None:
            raise OSError(f"{path}: simulated: unreadable")
        return super()._get(path)

    def _take_break(self, path: str) -> Break | None:
        """Only parts: a store puts a manifest whole or not at all, and `Doubt` is what can happen to its answer."""
        if "/parts/" not in path:
            return None
        found, self._break = self._break, None
        self.inline_bytes_max = _INLINE_BYTES_MAX
        return found


def perform(store: RunStore, effect: StoreEffect, manifest: Manifest | None) -> Answer:
    """Do at the store what a fence asks for."""
    match effect:
        case ListClaims():
            return ClaimsListed(effect, store.claims())
        case TakeClaim(claim):
            if store.take_claim(claim):
                return ClaimTaken(effect)
            holder = store.read_claim(claim.number)
            assert holder is not None
            return ClaimTaken(effect) if holder == claim else ClaimLost(effect, holder)
        case ListHistory():
            bases = store.bases()
            return HistoryListed(effect, bases, store.manifests())
        case WriteBase(base):
            assert store.write_base(base)
            return BaseWritten(effect)
        case LookForClaim(number):
            return ClaimSeen(effect, store.read_claim(number))
        case WriteManifest():
            assert manifest is not None
            return ManifestWritten(effect) if store.write_manifest(manifest) else ManifestUndecided(effect)
        case DecideManifest(snapshot_id):
            if store.write_manifest(Aborted(store.run, snapshot_id)):
                return ManifestAborted(effect)
            stands = store.read_manifest(snapshot_id)
            return ManifestAborted(effect) if isinstance(stands, Aborted) else ManifestWritten(effect)
        case _:
            assert_never(effect)
