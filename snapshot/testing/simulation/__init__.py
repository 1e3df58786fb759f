"""The simulator's processes, channels, store and clock in memory, around the real machines."""
