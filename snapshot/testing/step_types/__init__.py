"""The steps of a schedule, by what they act on. `snapshot.testing.steps` exports all of them."""
