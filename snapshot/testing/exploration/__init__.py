"""The inside of exhaustive exploration: what each machine can do next, computed once, and the search over all of it."""
