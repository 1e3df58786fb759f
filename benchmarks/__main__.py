"""``python -m benchmarks [NAME ...]``: measure, and print a table or JSON lines."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Protocol, cast

from rich.console import Console

from benchmarks.result import Result, table_of
from benchmarks.run_size import (
    QUICK_REPEATS,
    QUICK_SECONDS,
    REPEATS,
    STEADY_SECONDS,
    Cases,
    NothingMatchesError,
    RunSize,
    select,
)
from benchmarks.session import Place, session

#: {benchmark: its subject}, in the order in which benchmarks run
NAMES = {
    "channel": "a channel between two processes, beside a plain socket",
    "message-floor": "each step of a message alone, in one process",
    "hops": "a hop inside a worker, beside a bare call",
    "keyed-messages": "a keyed sum in Python, beside a plain loop",
    "keyed-batches": "a keyed aggregate over Arrow batches, beside DuckDB and Polars",
    "keyed-state": "keyed state of both tiers, beside a plain dict and a plain RocksDB",
    "peers": "a keyed sum with one result a record, beside Bytewax",
    "snapshot": "duration, pause and storing of snapshots, beside a plain write",
    "recovery": "seconds from a fault to the first new record",
    "rescale": "pause of a live run for another parallelism, beside a plain restart",
    "modes": "what each mode costs, and how long it takes to resume",
    "store-outage": "a run whose store of totals is away for 20 s",
    "scale": "snapshots of 2 to 64 subtasks",
    "simulation": "the simulator of snapshot.testing",
    "page": "the cost of the live page",
}

_EPILOG = """\
benchmarks:
{names}

Each benchmark takes at most five minutes on two cores, and one minute with --quick. Two take longer: keyed-state some
half an hour, because it fills states of gigabytes, and modes a quarter of an hour, because it repeats a minute of work.
Progress is printed on standard error, a line for each configuration of each round.

examples:
  python -m benchmarks keyed-messages
  python -m benchmarks channel snapshot --json --quick
  python -m benchmarks keyed-messages --only parallelism=2 snapshot_interval_s=1.0
  python -m benchmarks keyed-messages --only snapshot_interval_s=null "sent=one by one"

A ratio to another configuration is left out when --only leaves that configuration out.
"""


class Benchmark(Protocol):
    """The functions that the module of a benchmark has."""

    def configurations(self, size: RunSize) -> Cases:
        """Return all cases of a run of this size, each with its configuration, in the order of the results."""

    def measure(self, cases: Cases, size: RunSize, place: Place) -> Iterator[Result]:
        """Yield one result for each case."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print the results. Fail when a benchmark computed something wrong."""
    command = parser()
    options = command.parse_args(arguments)
    default_seconds, default_repeats = (QUICK_SECONDS, QUICK_REPEATS) if options.quick else (STEADY_SECONDS, REPEATS)
    size = RunSize(options.seconds or default_seconds, options.repeats or default_repeats, options.quick)
    loaded = {name: load(name) for name in options.names or NAMES}
    try:
        cases_of = select({name: each.configurations(size) for name, each in loaded.items()}, options.only)
    except NothingMatchesError as error:
        command.error(str(error))
    console = Console(stderr=options.json, width=None if Console(stderr=options.json).is_terminal else 240)
    with session() as place:
        for name, cases in cases_of.items():
            results = []
            for result in loaded[name].measure(cases, size, place):
                results.append(result)
                if options.json:
                    print(result.json(), flush=True)
            console.print(table_of(results), "")


def parser() -> argparse.ArgumentParser:
    """Make the parser of the command."""
    names = "\n".join(f"  {name:<15} {what}" for name, what in NAMES.items())
    command = argparse.ArgumentParser(
        "python -m benchmarks",
        description="Measure, and print a table or JSON lines. The default is every benchmark.",
        epilog=_EPILOG.format(names=names),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument("names", metavar="NAME", nargs="*", type=_name, help="a benchmark of the list below")
    command.add_argument("--json", action="store_true", help="print a JSON line a result; the table goes to stderr")
    command.add_argument(
        "--only",
        metavar="KEY=VALUE",
        nargs="+",
        action="extend",
        default=[],
        type=_condition,
        help="run just the configurations that match all conditions; keys and values are those of the JSON lines",
    )
    command.add_argument("--seconds", type=_positive, help=f"of steady state (default: {STEADY_SECONDS:g})")
    command.add_argument("--repeats", type=_count, help=f"rounds of a configuration (default: {REPEATS})")
    command.add_argument("--quick", action="store_true", help="only show that it works; the figures say so")
    return command


def _name(text: str) -> str:
    if text not in NAMES:
        raise argparse.ArgumentTypeError(f"there is no benchmark {text!r}; there are: {', '.join(NAMES)}")
    return text


def _condition(text: str) -> str:
    if "=" not in text:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE; names of benchmarks stand before --only")
    return text


def _positive(text: str) -> float:
    if not (seconds := float(text)) > 0:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return seconds


def _count(text: str) -> int:
    if not (count := int(text)) > 0:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return count


def load(name: str) -> Benchmark:
    """Import the module of a benchmark, because most import Spark and Ray, which takes seconds."""
    return cast(Benchmark, import_module(f"benchmarks.{name.replace('-', '_')}"))


if __name__ == "__main__":
    main()
