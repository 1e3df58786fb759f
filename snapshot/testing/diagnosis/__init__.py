"""Looks for the reason why a run of a user's nodes went wrong."""
