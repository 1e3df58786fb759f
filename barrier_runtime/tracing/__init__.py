"""The trace of a real run: what subtasks and the coordinator write down, how it comes together, what is kept of it."""
