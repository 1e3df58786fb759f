"""Totals in a store that others read: their differences, and the calls on the store."""
