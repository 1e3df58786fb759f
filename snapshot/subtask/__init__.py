"""The machine of one subtask: the user's node, the marker rules, and the parts of snapshots. No I/O."""
