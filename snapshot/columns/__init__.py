"""State by the column: the numbers of distinct keys, totals by these numbers, and their capture without a copy."""
