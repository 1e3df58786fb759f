"""A checkpoint: copies of a run's claims, bases and aborted ids in one record, so that a start reads few records.

Owns the record, and the rule how copies are used (PROTOCOL 7.7, checkpoint). Must not know how records are stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from cutline.snapshot.stored.history import Base, Claim

Record = TypeVar("Record", Claim, Base)

#: Claims after which a start writes the next checkpoint. A start reads about as many claims, and as many bases, one by
#: one; a checkpoint costs a write, and some 60 bytes for each claim that the run ever had.
CLAIMS_PER_CHECKPOINT = 8


@dataclass(frozen=True, slots=True)
class ClaimDigest:
    """Write-once record: copies of records that never change. It need not hold all of them, of any claim."""

    claim: int  #: number of the claim whose holder wrote the checkpoint; 0 for the empty checkpoint
    claims: tuple[Claim, ...]
    bases: tuple[Base, ...]
    aborted: tuple[int, ...]  #: ids of snapshots in whose manifest's place an aborted record stands


#: The checkpoint of a run that has none.
EMPTY = ClaimDigest(0, (), (), ())


def records(listed: Iterable[int], copies: Mapping[int, Record], read: Callable[[int], Record | None]) -> list[Record]:
    """PROTOCOL 7.7: return the listed records, each as its copy, or read if there is no copy.

    The list alone decides which records there are, so a checkpoint can hide no record and add none.

    Parameters
    ----------
    listed
        Numbers of the claims whose records are in the store now.
    copies
        ``{number of a claim: the copy of its record}``.
    read
        Reads the record of a number. None if the store lost the record since it was listed.
    """
    found = (copies[number] if number in copies else read(number) for number in listed)
    return [record for record in found if record is not None]
