"""Logs of steps."""
