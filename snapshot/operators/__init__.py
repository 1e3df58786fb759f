"""Keyed aggregates: the nodes, the numbers of distinct keys, and the totals by these numbers."""
