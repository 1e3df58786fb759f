"""``python -m benchmarks [NAME ...] [--json]``: measure, and print a table or one JSON object a line."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from importlib import import_module

from benchmarks.result import Result

#: Modules of this package with a function ``measure``, in the order in which they run.
BENCHMARKS = ("backpressure", "recovery")


def main() -> None:
    """Run the benchmarks that were named, or all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure, and print what came out.")
    parser.add_argument("names", nargs="*", choices=[*BENCHMARKS, []], metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    arguments = parser.parse_args()
    for name in arguments.names or BENCHMARKS:
        measured: Iterator[Result] = import_module(f"benchmarks.{name}").measure()
        for result in measured:
            print(result.json() if arguments.json else result.text(), flush=True)


if __name__ == "__main__":
    main()
