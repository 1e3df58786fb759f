"""State backends and stores of aggregates that a user chooses from, and settings that say where keyed state is."""
