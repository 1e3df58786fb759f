"""Search for the mistake in a user's nodes that made a run fail."""
