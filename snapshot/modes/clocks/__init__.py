"""Cuts that are no moment: epochs that sources begin, and clocks that are negotiated."""
