"""The coordinator's decisions: claims, triggers, publication, rollback, the end. State machines without I/O."""
