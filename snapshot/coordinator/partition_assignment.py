"""Assign the partitions of a source to its subtasks, by name (PROTOCOL 6.5, partitions).

A subtask's state holds the offsets of its partitions, so a partition stays with the subtask that has the offset. The
order in which names are listed does not matter. Nothing is random, so every coordinator assigns alike.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from cutline.snapshot.error_text import shown
from cutline.snapshot.errors import RestoreRefused
from cutline.snapshot.stored.certificate import SubtaskStatus

#: name that `submit(allow=...)` accepts
DROPPED_STATE = "droppedState"

#: partitions that each subtask reads, in the order of subtasks
Assignment = list[tuple[str, ...]]

#: names in an error text
_NAMED_MAX = 10


def assign_afresh(listed: Collection[str], parallelism: int) -> Assignment:
    """Deal the sorted names to the subtasks in turn."""
    names = sorted(listed)
    return [tuple(names[index::parallelism]) for index in range(parallelism)]


def assign_again(
    source: str, listed: Sequence[str], statuses: Sequence[SubtaskStatus], allow: Collection[str]
) -> Assignment:
    """Keep each stored name at its subtask, and give each new name to the subtask with the fewest.

    Parameters
    ----------
    source : str
        Where the error happened, and the source's name.
    listed : sequence of str
        Names as the source lists them now; empty for a source without the hook.
    statuses : sequence of SubtaskStatus
        Stored statuses of the source's subtasks, in their order.
    allow : collection of str

    Raises
    ------
    RestoreRefused
        if a stored name is not listed and this loss was not allowed, or if no subtask would ever read a new name.
    """
    stored = {name: index for index, status in enumerate(statuses) for name in status.partitions or ()}
    readers = [index for index, status in enumerate(statuses) if not status.passive]
    return _assign(source, listed, stored, readers, len(statuses), allow)


def deal_again(
    source: str, listed: Sequence[str], statuses: Sequence[SubtaskStatus], allow: Collection[str], parallelism: int
) -> Assignment:
    """Deal the stored names to `parallelism` subtasks in turn, because their number has changed. See `assign_again`.

    Raises
    ------
    RestoreRefused
        as `assign_again`, and if the snapshot holds no names.
    """
    if all(status.partitions is None for status in statuses):
        raise RestoreRefused(
            f"{source} had parallelism {len(statuses)}, now {parallelism}, and the snapshot does not say which "
            "partitions there were. A source with another parallelism needs the hook `partitions`, and a snapshot that "
            f"was taken with it. Submit it with parallelism {len(statuses)}"
        )
    names = sorted(name for status in statuses for name in status.partitions or ())
    stored = {name: place % parallelism for place, name in enumerate(names)}
    readers = [] if all(status.passive for status in statuses) else list(range(parallelism))
    return _assign(source, listed, stored, readers, parallelism, allow)


def _assign(
    source: str,
    listed: Sequence[str],
    stored: Mapping[str, int],
    readers: Sequence[int],
    parallelism: int,
    allow: Collection[str],
) -> Assignment:
    """Give each stored name to its subtask, and each new name to the one of `readers` with the fewest."""
    is_listed = dict.fromkeys(listed)
    dropped = [name for name in sorted(stored) if name not in is_listed]
    if dropped and DROPPED_STATE not in allow:
        raise RestoreRefused(
            f"{source} read the partitions {_named(dropped)}, which are no longer listed; "
            f"allow={{'{DROPPED_STATE}'}} drops them and their offsets"
        )
    assigned: list[list[str]] = [[] for _ in range(parallelism)]
    for name in sorted(is_listed):
        if name in stored:
            assigned[stored[name]].append(name)
    new = [name for name in sorted(is_listed) if name not in stored]
    if new and not readers:
        raise RestoreRefused(
            f"{source} lists the new partitions {_named(new)}, but all its subtasks have returned END and poll no "
            "more: submit the graph under another name to read them"
        )
    for name in new:
        index = min(readers, key=lambda each: (len(assigned[each]), each))
        assigned[index].append(name)
    return [tuple(sorted(names)) for names in assigned]


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED_MAX:,} more" if len(names) > _NAMED_MAX else ""
    return ", ".join(map(shown, names[:_NAMED_MAX])) + more
