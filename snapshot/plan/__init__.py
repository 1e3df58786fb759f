"""Plan: the declared graph, checked, and expanded from nodes and edges to a topology. Knows no running code."""
