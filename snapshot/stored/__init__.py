"""Stored snapshots: parts, certificate and manifest, and the checks that prove their bytes."""
