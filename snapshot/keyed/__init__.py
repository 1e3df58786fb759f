"""Keyed state: the rows that a subtask keeps by key, and the segments that rows are stored in."""
