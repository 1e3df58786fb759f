"""The coordinator's decisions: claims, triggers, publication, rollback, termination. State machines without I/O."""
