"""Run the command ``cutline``, also for ``python -m cutline``."""

from cutline.barrier_runtime.cli import main

if __name__ == "__main__":
    main()
