"""State backends and stores of aggregates that a user chooses from, and settings that say where keyed state is."""

from snapshot.operators.aggregate_store import AggregateStore, StoreClaim
from snapshot.stored.backend import StateBackend, StoreRefused
from state_backends.aggregate_stores import MemoryStore, PostgreSQLStore, RedisStore, RocksDBStore, SQLiteStore
from state_backends.filesystem import FileSystemBackend
from state_backends.fsspec import FsspecBackend
from state_backends.keyed_state import HeapState, RocksDBState
from state_backends.memory import MemoryBackend
from state_backends.object_store import ObjectStoreBackend

__all__ = [
    "AggregateStore",
    "FileSystemBackend",
    "FsspecBackend",
    "HeapState",
    "MemoryBackend",
    "MemoryStore",
    "ObjectStoreBackend",
    "PostgreSQLStore",
    "RedisStore",
    "RocksDBState",
    "RocksDBStore",
    "SQLiteStore",
    "StateBackend",
    "StoreClaim",
    "StoreRefused",
]
