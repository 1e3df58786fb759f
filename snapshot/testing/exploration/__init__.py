"""Exhaustive exploration: the events that each machine can take next, computed once, and the search over all states."""
