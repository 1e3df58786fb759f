"""Keyed aggregates: the nodes, and the groups of their rows."""
