"""Messages between subtasks, and the two ends of a channel: numbers, buffers, encoding. No I/O."""
