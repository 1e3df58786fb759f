"""The inside of the simulator: processes, channels, store and clock in memory, around the real machines."""
