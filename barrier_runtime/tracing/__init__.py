"""The trace of a real run: events of subtasks and the coordinator, how they are collected, and which are kept."""
