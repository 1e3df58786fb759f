"""Stores of aggregates that a user chooses from. Packages of servers are imported at the first call of a store."""

from state_backends.aggregate_stores.memory import MemoryStore
from state_backends.aggregate_stores.sqlite import SQLiteStore

__all__ = ["MemoryStore", "SQLiteStore"]
