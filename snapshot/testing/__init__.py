"""Tests for the nodes that users write: a simulator of whole runs, its checkers, and what searches for failures."""
