"""The inside of space-time diagrams; `snapshot.testing.diagram` is their door."""
