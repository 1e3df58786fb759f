"""What a subtask restores from a snapshot, besides its channels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cutline.snapshot.keyed.segment import Segment
from cutline.snapshot.stored.list_rules import LocalVersion
from cutline.snapshot.subtask.inheritance import Donors


@dataclass(frozen=True, slots=True)
class Restored:
    """The contents of the parts of one subtask. Without `state` its node starts fresh."""

    #: encoded state part; donors give theirs where the parallelism of the node has changed
    state: bytes | memoryview | Donors | None = None
    #: rows of keyed state, oldest first, clipped to the key groups of the subtask
    rows: Sequence[Segment] = ()
    #: changes of the node's own state, as `OwnState.restore` takes them
    own: Sequence[tuple[bool, memoryview]] = ()
    #: the restored snapshot, or 0
    snapshot_id: int = 0
    #: whether the next snapshot lists only new parts of own state, as in a fork
    needs_base: bool = False
    #: steps of the log after the state, encoded, oldest first. They are repeated after the start
    steps: Sequence[memoryview] = ()
    #: snapshot that has the state of all subtasks, or None where the replay begins with the run
    base: int | None = None
    #: version of the local database that has the rows, in place of `rows`
    version: LocalVersion | None = None
    #: whether the node has lists of rows in the snapshot. This subtask may have none
    lists_rows: bool = False


#: What a subtask of a fresh run restores.
FRESH: Final = Restored()
