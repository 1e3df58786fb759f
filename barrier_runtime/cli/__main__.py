"""Run the command `cutline` for `python -m barrier_runtime.cli`."""

from barrier_runtime.cli import main

main()
