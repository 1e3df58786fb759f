"""How long a snapshot takes when all channels are full and the sink takes a millisecond a message."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from benchmarks.result import Result
from benchmarks.session import live
from tests.system.pressure import MESSAGE_BYTES, MESSAGE_SECONDS
from tests.system.pressure import measure as pressure

_ALIGNMENTS: tuple[Literal["unaligned", "aligned"], ...] = ("unaligned", "aligned")


def measure() -> Iterator[Result]:
    """One figure for each alignment."""
    with live() as there:
        for alignment in _ALIGNMENTS:
            found = pressure(there, alignment)
            yield Result(
                "backpressure",
                {"alignment": alignment, "message_seconds": MESSAGE_SECONDS, "message_bytes": MESSAGE_BYTES},
                {
                    "snapshot_seconds": found.seconds,
                    "messages_in_flight": found.messages_in_flight,
                    "snapshot_bytes": found.snapshot_bytes,
                },
            )
