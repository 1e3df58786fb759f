"""Results of a benchmark, as JSON lines and as a table.

The module owns the names of the JSON line: ``benchmark configuration metrics ratios machine versions``. The module
knows no benchmark, and not how a figure was measured.
"""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib.metadata import version
from statistics import median
from typing import Any, TypeAlias

from rich.table import Table

_PACKAGES = ("cutline", "pyspark", "ray", "pyarrow", "msgpack", "numpy", "duckdb", "polars")


@dataclass(frozen=True, slots=True)
class Metric:
    """A figure of repeated runs."""

    #: median, smallest and largest of the medians of the runs
    median: float
    min: float
    max: float
    #: quantiles of the samples of all runs
    p50: float
    p99: float
    unit: str
    runs: int


#: metrics and ratios of one configuration
Figures: TypeAlias = tuple[dict[str, Metric], dict[str, float]]


@dataclass(frozen=True, slots=True)
class Result:
    """Figures of one configuration."""

    benchmark: str
    configuration: Mapping[str, Any]
    metrics: Mapping[str, Metric]
    #: {name of the comparison: our figure / the figure beside it, measured in turn}
    ratios: Mapping[str, float] = field(default_factory=dict)

    def json(self) -> str:
        """Return the result as one line."""
        return json.dumps({**asdict(self), "machine": machine(), "versions": versions()}, allow_nan=False)


def metric(unit: str, values: Sequence[float]) -> Metric:
    """Make the metric of runs with one value each."""
    return metric_of_samples(unit, [[value] for value in values])


def metric_of_samples(unit: str, runs: Sequence[Sequence[float]]) -> Metric:
    """Make the metric of runs with many samples each. No run may be empty."""
    medians = [median(samples) for samples in runs]
    every = sorted(sample for samples in runs for sample in samples)
    return Metric(
        median(medians), min(medians), max(medians), _quantile(every, 0.5), _quantile(every, 0.99), unit, len(runs)
    )


def paired_ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return the median of ours / theirs, pair by pair, because neighbours in time saw the same machine."""
    return median(our / their for our, their in zip(ours, theirs, strict=True))


def _quantile(ascending: Sequence[float], share: float) -> float:
    """Return the quantile by nearest rank, because that value was measured."""
    return ascending[max(0, math.ceil(share * len(ascending)) - 1)]


@cache
def machine() -> dict[str, Any]:
    """Return the machine of the figures, without the name of the host."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    cores = len(os.sched_getaffinity(0))
    return {"system": platform.system(), "processor": platform.machine(), "cores": cores, "memory_bytes": memory}


@cache
def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that matter."""
    return {"python": platform.python_version(), **{name: version(name) for name in _PACKAGES}}


def table_of(results: Sequence[Result]) -> Table:
    """Make a table for people with one row a configuration. The title has the parameters that all results share."""
    names = list(dict.fromkeys(name for result in results for name in result.configuration))
    shared = [name for name in names if len({_text(result, name) for result in results}) == 1]
    varying = [name for name in names if name not in shared]
    metrics = list(dict.fromkeys(name for result in results for name in result.metrics))
    ratios = list(dict.fromkeys(name for result in results for name in result.ratios))
    title = ", ".join(f"{name}={_text(results[0], name)}" for name in shared)
    table = Table(title=f"{results[0].benchmark}: {title}", title_justify="left", box=None)
    for name in varying:
        table.add_column(name)
    for name in (*metrics, *(f"/ {name}" for name in ratios)):
        table.add_column(name, justify="right")
    for result in results:
        figures = [_figure(result.metrics.get(name)) for name in metrics]
        compared = [f"{result.ratios[name]:.3g}" if name in result.ratios else "" for name in ratios]
        table.add_row(*(_text(result, name) for name in varying), *figures, *compared)
    return table


def _text(result: Result, name: str) -> str:
    value = result.configuration.get(name, "")
    return "off" if value is None else str(value)


def _figure(found: Metric | None) -> str:
    """Return the figure without its unit, because the names of metrics end in units."""
    if found is None:
        return ""
    if found.p99 > found.max:  # the runs have many samples each, so the tail matters
        return f"{_number(found.p50)}, p99 {_number(found.p99)}"
    if found.min == found.max:
        return _number(found.median)
    return f"{_number(found.median)} ({_number(found.min)} to {_number(found.max)})"


def _number(value: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"
