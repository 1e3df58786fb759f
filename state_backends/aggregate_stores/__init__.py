"""Stores of aggregates that a user chooses from. Optional packages are imported at the first call of a store."""

from state_backends.aggregate_stores.memory import MemoryStore
from state_backends.aggregate_stores.postgresql import PostgreSQLStore
from state_backends.aggregate_stores.redis import RedisStore
from state_backends.aggregate_stores.rocksdb import RocksDBStore
from state_backends.aggregate_stores.sqlite import SQLiteStore

__all__ = ["MemoryStore", "PostgreSQLStore", "RedisStore", "RocksDBStore", "SQLiteStore"]
