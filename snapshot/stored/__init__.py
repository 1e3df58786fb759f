"""Stored snapshots: parts, certificate, manifest, and the checks of their bytes."""
