"""What runs in the driver: submitting, watching and ending a run."""
