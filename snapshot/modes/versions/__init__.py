"""Versions of local databases."""
