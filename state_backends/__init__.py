"""State backends that a user chooses from: places where snapshots are stored."""

from snapshot.stored.backend import StateBackend, StoreRefused
from state_backends.filesystem import FileSystemBackend
from state_backends.memory import MemoryBackend
from state_backends.object_store import ObjectStoreBackend

__all__ = ["FileSystemBackend", "MemoryBackend", "ObjectStoreBackend", "StateBackend", "StoreRefused"]
