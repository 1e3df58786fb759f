"""One subtask at work: the user's node, the marker rules, and what it contributes to snapshots. No I/O."""
