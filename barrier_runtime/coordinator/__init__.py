"""The coordinator's process: the actor around the coordinator's machine, the store, the workers' connections."""
