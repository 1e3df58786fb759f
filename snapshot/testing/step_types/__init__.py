"""The steps of a schedule, by what they happen to; `snapshot.testing.steps` has all of them."""
