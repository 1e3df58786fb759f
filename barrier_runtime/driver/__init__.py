"""The driver: submits, monitors and ends a run."""
