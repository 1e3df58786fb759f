"""What `snapshot.aggregate` computes with: distinct keys to numbers, and totals by those numbers."""
