"""Records that each subtask stores by itself."""
