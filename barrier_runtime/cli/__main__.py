"""`python -m barrier_runtime.cli` is `cutline`."""

from barrier_runtime.cli import main

main()
