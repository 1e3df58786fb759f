"""Draw graphs, snapshots and space-time diagrams for notebooks, as text and bytes, not as files.

Drawing code imports matplotlib or networkx only when a drawing is made, because all other code must work without them.
"""
