"""One figure of a benchmark with all that is needed to compare it with another: what, on what, with which versions."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from statistics import median
from typing import Any

_PACKAGES = ("cutline", "pyspark", "ray", "pyarrow", "msgpack")


@dataclass(frozen=True)
class Result:
    """What one configuration of a benchmark gave."""

    benchmark: str
    configuration: dict[str, Any]
    metrics: dict[str, float]

    def json(self) -> str:
        """One line."""
        return json.dumps({**vars(self), "machine": machine(), "versions": versions()})

    def text(self) -> str:
        """One line for people."""
        configuration = ", ".join(f"{name}={value}" for name, value in self.configuration.items())
        metrics = "  ".join(f"{name} {value:.6g}" for name, value in self.metrics.items())
        return f"{self.benchmark:<14}{configuration:<68}  {metrics}"


def spread_of(name: str, values: list[float]) -> dict[str, float]:
    """Median, smallest and largest of repeated measurements."""
    return {f"{name}_median": median(values), f"{name}_min": min(values), f"{name}_max": max(values)}


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
