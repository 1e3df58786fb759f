"""The coordinator's process: the actor around its machine, the store, the workers' connections."""
