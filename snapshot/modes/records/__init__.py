"""Records that each subtask stores by itself, the cut that a restore makes of them, and the report of a recovery."""
