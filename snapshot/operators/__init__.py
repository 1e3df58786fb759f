"""What `snapshot.operators.aggregate` computes with: distinct keys to numbers, and totals by those numbers."""
