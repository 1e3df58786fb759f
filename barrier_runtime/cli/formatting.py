"""Output functions that all commands share: tables, JSON, times, and texts of users."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import typer
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

_MINUTE, _HOUR, _DAY = 60, 3600, 86_400


def print_all(*what: Any) -> None:
    """Print tables and texts. Texts are not wrapped to the width of the terminal."""
    console = Console(soft_wrap=True)
    for each in what:
        console.print(plain(each) if isinstance(each, str) else each, markup=False, highlight=False)


def print_json(record: Any) -> None:
    """Print one JSON document."""
    typer.echo(json.dumps(as_json(record), indent=2))


def as_json(record: Any) -> Any:
    """Return a document that JSON can represent. Numbers that are not finite become null."""
    match record:
        case Mapping():
            return {str(key): as_json(value) for key, value in record.items()}
        case list() | tuple():
            return [as_json(each) for each in record]
        case float() if not math.isfinite(record):
            return None
    return record


def plain(text: str) -> str:
    """Replace control characters, because names and reasons of foreign origin must not control the terminal."""
    return "".join(letter if letter.isprintable() or letter == "\n" else "\ufffd" for letter in text)


def cell(text: str, style: str = "") -> Text:
    """Return a cell of a table. Its text becomes a single line, which is cut to the width of the column."""
    return Text(plain(text).replace("\n", " "), style=style, no_wrap=True, overflow="ellipsis")


def plain_table(*columns: Column | str) -> Table:
    """Return an empty table that is drawn without lines."""
    return Table(*columns, box=None, header_style="bold", pad_edge=False)


def numbers(*headers: str) -> list[Column]:
    """Return right-aligned columns for numbers."""
    return [Column(header, justify="right", no_wrap=True) for header in headers]


def time_text(timestamp: float) -> str:
    """Format seconds since the epoch as local time, to the second."""
    return datetime.fromtimestamp(timestamp, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def age_text(seconds: float) -> str:
    """Format an age as ``12 s``, ``5 min``, ``3 h`` or ``17 d``."""
    for unit, length in (("d", _DAY), ("h", _HOUR), ("min", _MINUTE)):
        if seconds >= 2 * length:
            return f"{seconds // length:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def rate_text(per_second: float) -> str:
    """Format a rate as ``950``, ``12.3k`` or ``4.5M``. At most five characters up to a billion per second."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if per_second >= size:
            return f"{per_second / size:.1f}{unit}"
    return f"{per_second:.1f}" if 0 < per_second < 10 else f"{per_second:.0f}"


def verdict_lines(invariants: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Describe the invariants of a run's status that are violated, or that cannot be judged."""
    lines = (("violations", "violationCount", "does not hold in"), ("unreadable", "unreadableCount", "cannot judge"))
    return [
        f"invariant {name} {what} {_earlier(verdict[field], verdict[count])}{', '.join(map(str, verdict[field]))}"
        for name, verdict in invariants.items()
        for field, count, what in lines
        if verdict[field]
    ]


def _earlier(ids: Sequence[int], count: int) -> str:
    """Return how the list of the newest `ids` begins, of `count` snapshots in all."""
    return "the snapshots " if count == len(ids) else f"{count:,} snapshots, the last "
