"""The results of one benchmark as a table for people. Knows no benchmark: columns are what the results hold."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from benchmarks.result import Metric, Result


def table_of(results: Sequence[Result]) -> Table:
    """One row a configuration; what is the same in all of them is said once, in the title."""
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


def _figure(metric: Metric | None) -> str:
    """Units are in the names of the metrics."""
    if metric is None:
        return ""
    if metric.p99 > metric.max:  # of many samples in each run the tail is what matters
        return f"{_number(metric.p50)}, p99 {_number(metric.p99)}"
    if metric.min == metric.max:
        return _number(metric.median)
    return f"{_number(metric.median)} ({_number(metric.min)} to {_number(metric.max)})"


def _number(value: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"
