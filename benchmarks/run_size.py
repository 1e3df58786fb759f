"""Decide how much a benchmark measures: seconds, rounds, and which of its configurations.

Every benchmark is a module with two functions. ``configurations(size)`` returns ``{case: configuration}`` and measures
nothing. ``measure(cases, size, place)`` measures the cases that it receives. `select` leaves out the cases that the
caller did not choose, so no benchmark selects by itself.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

Choice = TypeVar("Choice")
#: parameters of one configuration, with the keys and values of the JSON line
Configuration: TypeAlias = Mapping[str, Any]
#: {case: its configuration} of one benchmark, in the order of the results
Cases: TypeAlias = Mapping[Any, Configuration]

#: Seconds of steady state: enough for several snapshots, and so few that a whole benchmark ends within five minutes.
STEADY_SECONDS = 2.5
#: Rounds of a configuration. The median is printed. Compared measurements run in turn within each round.
REPEATS = 3
#: Seconds and rounds of ``--quick``, which shows that a benchmark works. Its figures are not worth keeping.
QUICK_SECONDS = 0.5
QUICK_REPEATS = 1

#: Seconds that a run or a process may take beyond its steady state, for its start and its end.
MARGIN_SECONDS = 90.0

_STARTED_AT = time.monotonic()


@dataclass(frozen=True, slots=True)
class RunSize:
    """Seconds of steady state and rounds of each configuration."""

    seconds: float = STEADY_SECONDS
    repeats: int = REPEATS
    quick: bool = False

    def choose(self, full: Choice, quick: Choice) -> Choice:
        """Return `quick` for a quick run, else `full`."""
        return quick if self.quick else full

    def configuration(self) -> dict[str, object]:
        """Return the parameters that every result states about its size."""
        return {"seconds": self.seconds, "quick": self.quick}


class NothingMatchesError(ValueError):
    """A condition of ``--only`` matches no configuration. The text names the keys and values that exist."""


def select(benchmarks: Mapping[str, Cases], only: Sequence[str]) -> dict[str, Cases]:
    """Keep the cases whose configurations match every condition, and drop benchmarks without such a case.

    Parameters
    ----------
    benchmarks : mapping
        ``{name of the benchmark: its cases}``
    only : sequence of str
        Conditions ``key=value``. A value is written as in the JSON line: ``null``, ``1.0``, ``in lists``.

    Raises
    ------
    NothingMatchesError
        if a key or a value exists in no configuration, or no configuration matches all conditions.
    """
    every = [configuration for cases in benchmarks.values() for configuration in cases.values()]
    conditions = [_condition(each, every) for each in only]
    selected = {
        name: {case: found for case, found in cases.items() if all(_matches(found, *each) for each in conditions)}
        for name, cases in benchmarks.items()
    }
    if not any(selected.values()):
        known = "\n".join(f"  {label(configuration)}" for configuration in every)
        raise NothingMatchesError(f"no configuration has {' and '.join(only)}; there are:\n{known}")
    return {name: cases for name, cases in selected.items() if cases}


def _condition(text: str, every: Sequence[Configuration]) -> tuple[str, str]:
    key, _, value = text.partition("=")
    known = list(dict.fromkeys(_json(found[key]) for found in every if key in found))
    if not known:
        keys = ", ".join(dict.fromkeys(name for found in every for name in found))
        raise NothingMatchesError(f"no configuration has the key {key!r} of {text!r}; there are: {keys}")
    if not any(_matches(found, key, value) for found in every):
        raise NothingMatchesError(f"no configuration has {text!r}; {key} is one of: {', '.join(known)}")
    return key, value


def _matches(configuration: Configuration, key: str, text: str) -> bool:
    """Return whether the value of `key` is `text`. Numbers are compared as numbers, so ``1`` matches ``1.0``."""
    if key not in configuration:
        return False
    value = configuration[key]
    if isinstance(value, bool) or not isinstance(value, int | float):
        return text == _json(value)
    try:
        return float(text) == value
    except ValueError:
        return False


def _json(value: Hashable) -> str:
    """Return the value as the JSON line has it, without the quotes of a string."""
    return value if isinstance(value, str) else json.dumps(value)


def label(configuration: Configuration) -> str:
    """Return the parameters as conditions of ``--only``, without the size of the run."""
    size = RunSize().configuration()
    return " ".join(f"{key}={_json(value)}" for key, value in configuration.items() if key not in size)


def show_progress(benchmark: str, configuration: Configuration, number: int, rounds: int) -> None:
    """Print on standard error which round of which configuration begins, and after how many seconds."""
    seconds = time.monotonic() - _STARTED_AT
    print(f"{seconds:5.0f} s  {benchmark}, round {number} of {rounds}: {label(configuration)}", file=sys.stderr)
