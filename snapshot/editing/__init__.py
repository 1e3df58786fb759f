"""Edits of a stored snapshot: messages in flight, rows of keyed state, and the snapshot that they make."""
