"""Checker 7 for graphs whose sources send numbered records: what a record is, and how a sink's rows are counted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from snapshot.drawing.labels import shortened
from snapshot.testing.checking.verdict import Verdict, verdict_of

#: Knuth's multiplicative hash: neighbouring numbers get headers that have nothing in common.
_MIX = 0x9E3779B97F4A7C15
_HEADER_MASK = 0xFFFFFFFFFFFFFFFF

#: Number, header, payload.
Record = tuple[int, int, bytes]


def numberedRecord(number: int) -> Record:
    """A record: a header that is a function of its number, and payload bytes that are a function of both."""
    header = number * _MIX & _HEADER_MASK
    return number, header, header.to_bytes(8, "big") * (number % 5)


def numberedDelivery(rows: Iterable[object], numbers: Sequence[int]) -> Verdict:
    """Of records that were sent in the order of `numbers`, a sink got all, once, in this order, unchanged.

    Parameters
    ----------
    rows : iterable
        What a sink got, as in ``history.output(sink)``. Where records of one channel go separate ways, ask for each
        way alone.
    numbers : sequence of int
        Of the records that were sent.

    Returns
    -------
    Verdict
        A problem names the record.
    """
    place = {number: index for index, number in enumerate(numbers)}
    missing = dict.fromkeys(numbers)
    problems: list[str] = []
    last = -1
    for row in rows:
        number = row[0] if isinstance(row, tuple) and row else None
        if not isinstance(number, int) or number not in place or row != numberedRecord(number):
            problems.append(f"corrupt: {shortened(repr(row))}")
            continue
        if number not in missing:
            problems.append(f"record {number} came twice")
            continue
        del missing[number]
        if place[number] < last:
            problems.append(f"record {number} came behind {numbers[last]}")
        last = max(last, place[number])
    problems += [f"record {number} was lost" for number in missing]
    return verdict_of("delivery", problems, f"{len(numbers)} records came once each, in order, unchanged")
