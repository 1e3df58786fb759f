"""Checker 7 for graphs whose sources send numbered records: the records, and the check of a sink's rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cutline.snapshot.drawing.labels import shortened
from cutline.snapshot.testing.checking.verdict import Verdict, verdict_of

#: Knuth's multiplicative hash: neighbouring numbers get headers that have nothing in common.
_MIX = 0x9E3779B97F4A7C15
_HEADER_MASK = 0xFFFFFFFFFFFFFFFF

#: Number, header, payload.
Record = tuple[int, int, bytes]


def numberedRecord(number: int) -> Record:
    """Make a record: a header computed from its number, and payload bytes computed from number and header."""
    header = number * _MIX & _HEADER_MASK
    return number, header, header.to_bytes(8, "big") * (number % 5)


def numberedDelivery(rows: Iterable[object], numbers: Sequence[int]) -> Verdict:
    """Check that a sink received all records once, in the order of `numbers`, unchanged.

    Parameters
    ----------
    rows : iterable
        Rows of a sink, as in ``history.output(sink)``. Where records of one channel go separate ways, check each way
        alone.
    numbers : sequence of int
        Numbers of the sent records, in the order of sending.

    Returns
    -------
    Verdict
        Problems name the record.
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
