"""Steps: what a subtask logs between two cuts, so that a restore can repeat its work instead of reading its state."""
