"""What one configuration of a benchmark gave, with all that is needed to compare it with another.

Owns the names of the JSON line: ``benchmark configuration metrics ratios machine versions``. Must not know how any
figure was measured.
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
from typing import Any

_PACKAGES = ("cutline", "pyspark", "ray", "pyarrow", "msgpack", "numpy", "duckdb", "polars")


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure of repeated runs."""

    #: of the runs, each with the median of its samples
    median: float
    min: float
    max: float
    #: of the samples of all runs
    p50: float
    p99: float
    unit: str
    runs: int


@dataclass(frozen=True, slots=True)
class Result:
    """What one configuration gave."""

    benchmark: str
    configuration: Mapping[str, Any]
    metrics: Mapping[str, Metric]
    #: {what it is compared with: ours / theirs, measured in turn}
    ratios: Mapping[str, float] = field(default_factory=dict)

    def json(self) -> str:
        """One line."""
        return json.dumps({**asdict(self), "machine": machine(), "versions": versions()}, allow_nan=False)


def metric(unit: str, values: Sequence[float]) -> Metric:
    """Of runs that gave one value each."""
    return metric_of_samples(unit, [[value] for value in values])


def metric_of_samples(unit: str, runs: Sequence[Sequence[float]]) -> Metric:
    """Of runs that gave many samples each; a run must not be empty."""
    medians = [median(samples) for samples in runs]
    every = sorted(sample for samples in runs for sample in samples)
    return Metric(
        median(medians), min(medians), max(medians), _quantile(every, 0.5), _quantile(every, 0.99), unit, len(runs)
    )


def paired_ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The median of ours / theirs, pair by pair: neighbours in time saw the same machine."""
    return median(our / their for our, their in zip(ours, theirs, strict=True))


def _quantile(ascending: Sequence[float], share: float) -> float:
    """By nearest rank: a value that was really measured."""
    return ascending[max(0, math.ceil(share * len(ascending)) - 1)]


@cache
def machine() -> dict[str, Any]:
    """What the figures were measured on; names no host."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    cores = len(os.sched_getaffinity(0))
    return {"system": platform.system(), "processor": platform.machine(), "cores": cores, "memory_bytes": memory}


@cache
def versions() -> dict[str, str]:
    """Of Python and of the packages that matter."""
    return {"python": platform.python_version(), **{name: version(name) for name in _PACKAGES}}
