"""The driver: submit, watch and end a run."""
