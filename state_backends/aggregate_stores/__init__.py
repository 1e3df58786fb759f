"""Stores of aggregates that a user chooses from. Optional packages are imported at the first call of a store."""
