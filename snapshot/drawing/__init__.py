"""What Cutline shows of itself in notebooks: graphs, snapshots, space-time diagrams. Gives text and bytes, no files.

Whatever needs matplotlib or networkx imports it when something is drawn, so that all else works without.
"""
