"""Lists of parts: keyed state and own state as a subtask's record lists them, and the rules that each list obeys.

Owns PROTOCOL 2.1 to 2.4. Must not know what the parts hold. Each rule is a pure function that yields the faults by
name. `list_problems` is checked before a snapshot is published, and again when the snapshot is read.
`list_problems_since` is checked only before a snapshot is published, because it compares with the snapshot before.

A list is a *restored part*, and then an *own part*. The own part was made by the subtask itself, in the incarnation of
the snapshot. Own entries are numbered by generations 1, 2, and so on. A base begins with generation 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise, takewhile
from typing import NamedTuple

from cutline.snapshot.ids import Subtask
from cutline.snapshot.keyed.versions import LocalVersion as LocalVersion  # a field of a list, too
from cutline.snapshot.stored.part import Handle, PartKind


@dataclass(frozen=True, slots=True)
class ListEntry:
    """A piece of keyed state, and the key groups for which a list reads the piece: a clip."""

    handle: Handle  #: of a ROWS part
    lo: int  #: first key group to read
    hi: int  #: first key group after those to read


class StepBase(NamedTuple):
    """The last snapshot with the state of all nodes, after which a log of steps goes on."""

    snapshot_id: int
    incarnation: int  #: incarnation in which that snapshot was taken
    generation: int  #: newest generation of the subtask's log at that cut
    sent: tuple[int, ...]  #: numbers of the last messages sent at that cut, by output channel
    processed: tuple[int, ...]  #: numbers of the last messages processed at that cut, by input channel


class Lists(NamedTuple):
    """The lists of one subtask, as published or as restored."""

    groups: tuple[int, int] | None  #: key groups [lo, hi) of the subtask; None without keyed state
    rows: tuple[ListEntry, ...]  #: keyed state, in the order of application
    own: tuple[Handle, ...]  #: own state in deltas, in the order of application
    steps: tuple[Handle, ...] = ()  #: log of the steps after the state, in the order of the steps
    base: StepBase | None = None  #: snapshot that has the state; None: the log begins with the run
    version: LocalVersion | None = None  #: keyed state on a local disk; None: no such

    @property
    def row_handles(self) -> tuple[Handle, ...]:
        """Handles of the keyed state."""
        return tuple(entry.handle for entry in self.rows)


class Made(NamedTuple):
    """Run and incarnation in which a snapshot was made."""

    run: str
    incarnation: int

    def restored_count(self, handles: Iterable[Handle]) -> int:
        """Return the length of a list's restored part. All after it is the own part."""
        return sum(1 for _ in takewhile(lambda handle: (handle.run, handle.incarnation) != self, handles))


# ---------------------------------------------------------------- one snapshot


def list_problems(
    lists: Mapping[Subtask, Lists], made: Made, key_groups: int, former_names: Mapping[str, str] = {}
) -> Iterator[str]:
    """Yield the faults of all lists of one snapshot, which has `key_groups` key groups.

    `former_names` is {node: its former name}, of nodes that have taken over the lists of a node of another name.
    """
    yield from _tiling_problems(lists, key_groups)
    for subtask, each in lists.items():
        yield from _clip_problems(subtask, each)
        nodes = (subtask.node, former_names.get(subtask.node, subtask.node))
        for what, kind, handles in (
            ("rows", PartKind.ROWS, each.row_handles),
            ("own state", PartKind.OWN, each.own),
            ("steps", PartKind.STEPS, each.steps),
        ):
            yield from _kind_problems(f"{subtask}: its list of {what}", kind, handles)
            yield from _origin_problems(f"{subtask}: its list of {what}", subtask, nodes, handles, made)
        count = made.restored_count(each.row_handles)
        yield from _generation_problems(subtask, each.rows[count:], has_restored=count > 0)
        yield from _delta_problems(subtask, each.own)
        yield from _step_problems(subtask, each.steps, each.base)
        yield from _version_problems(subtask, each, made)
    yield from _base_problems(lists)


def _tiling_problems(lists: Mapping[Subtask, Lists], key_groups: int) -> Iterator[str]:
    """PROTOCOL 2.1: the key groups of a node's subtasks, in the order of indexes, cover all key groups once."""
    nodes: dict[str, dict[Subtask, Lists]] = {}
    for subtask in sorted(lists):
        nodes.setdefault(subtask.node, {})[subtask] = lists[subtask]
    for node, of_node in nodes.items():
        ranges = [each.groups for each in of_node.values() if each.groups is not None]
        if not ranges:
            continue
        for subtask, each in of_node.items():
            if each.groups is None:
                yield f"{subtask}: has no key groups, but other subtasks of {node} have"
        for before, after in pairwise([(0, 0), *ranges, (key_groups, key_groups)]):
            if before[1] != after[0] or after[0] > after[1]:
                yield f"{node}: its key groups end before {before[1]} and go on with {after[0]}, up to {after[1]}"


def _clip_problems(subtask: Subtask, lists: Lists) -> Iterator[str]:
    """PROTOCOL 2.1: a clip lies in the key groups of its subtask, and in those of its piece."""
    for entry in lists.rows:
        for lo, hi in (lists.groups or (0, 0), entry.handle.groups or (0, 0)):
            if not lo <= entry.lo < entry.hi <= hi:
                clip = f"key groups {entry.lo} to {entry.hi - 1} of {entry.handle.name}"
                yield f"{subtask}: reads {clip}, where only {lo} to {hi - 1} are to read"


def _kind_problems(what: str, kind: PartKind, handles: Iterable[Handle]) -> Iterator[str]:
    for handle in handles:
        if handle.kind is not kind:
            yield f"{what} has a part of another kind: {handle.name}"


def _origin_problems(
    what: str, subtask: Subtask, nodes: Sequence[str], handles: Sequence[Handle], made: Made
) -> Iterator[str]:
    """PROTOCOL 2.1 and 10.2: a part is listed by who made it in this incarnation, or by who restored it.

    `nodes` are the name of the node, and its former name.
    """
    count = made.restored_count(handles)
    for place, handle in enumerate(handles):
        if handle.run != made.run:  # because retention of the other run knows nothing of this list
            yield f"{what} has a part of run {handle.run!r}: {handle.name}"
        if handle.subtask.node not in nodes:
            yield f"{what} has a part of another node: {handle.name}"
        if handle.incarnation > made.incarnation:
            yield f"{what} has a part of the later incarnation {handle.incarnation}: {handle.name}"
        if place >= count and handle.incarnation != made.incarnation:
            yield f"{what} has a restored part behind an own part: {handle.name}"
        elif place >= count and handle.subtask != subtask:
            yield f"{what} has a part that {handle.subtask} made in this incarnation: {handle.name}"


def _generation_problems(subtask: Subtask, own: Sequence[ListEntry], *, has_restored: bool) -> Iterator[str]:
    """PROTOCOL 2.2 and 2.3: own generations abut from 1, or from a base, which replaces the restored part."""
    if not own:
        return
    due = own[0].handle.first
    if due > 1:
        yield f"{subtask}: its own generations begin with {due}, not with 1 or a base"
    if due == 0 and has_restored:
        yield f"{subtask}: lists a base, and still what was restored"
    for (first, last), pieces in groupby(own, key=lambda entry: (entry.handle.first, entry.handle.last)):
        if first != due:
            yield f"{subtask}: generations {first} to {last} are listed where {due} was due"
        yield from _piece_problems(subtask, list(pieces))
        due = last + 1


def _piece_problems(subtask: Subtask, pieces: Sequence[ListEntry]) -> Iterator[str]:
    """PROTOCOL 2.2: pieces of one segment are listed whole, and share no key group, but for a single key group."""
    for entry in pieces:
        if (entry.lo, entry.hi) != entry.handle.groups:
            yield f"{subtask}: reads key groups {entry.lo} to {entry.hi - 1} only of its own {entry.handle.name}"
    for before, after in pairwise(sorted(pieces, key=lambda entry: (entry.lo, entry.hi))):
        is_split_group = (before.lo, before.hi) == (after.lo, after.hi) == (before.lo, before.lo + 1)
        if after.lo < before.hi and not is_split_group:
            yield f"{subtask}: two pieces have key group {after.lo}: {before.handle.name}, {after.handle.name}"
    if len(dict.fromkeys(entry.handle.checksum for entry in pieces)) != len(pieces):
        yield f"{subtask}: lists a piece twice, of generations {pieces[0].handle.first} to {pieces[0].handle.last}"


def _delta_problems(subtask: Subtask, own: Sequence[Handle]) -> Iterator[str]:
    """PROTOCOL 2.4: a list of own state begins with the whole state, and each delta follows the part before it."""
    return _abutting_problems(subtask, own, 0)


def _step_problems(subtask: Subtask, steps: Sequence[Handle], base: StepBase | None) -> Iterator[str]:
    """PROTOCOL 12.7: a log begins with its first step, or at the latest right after its base. Parts abut."""
    if not steps or base is None:
        return _abutting_problems(subtask, steps, 0)
    first = steps[0]
    is_of_base = (first.incarnation, first.subtask) == (base.incarnation, subtask)
    return _abutting_problems(subtask, steps, min(first.first, base.generation + 1) if is_of_base else first.first)


def _version_problems(subtask: Subtask, lists: Lists, made: Made) -> Iterator[str]:
    """PROTOCOL 12.17: a version is the subtask's own, made at the cut of the base."""
    version = lists.version
    if version is None:
        return
    base = None if lists.base is None else lists.base.snapshot_id
    if (version.run, version.subtask, version.snapshot_id) != (made.run, subtask, base):
        owner = f"run {version.run!r}, {version.subtask}, snapshot {version.snapshot_id}"
        yield f"{subtask}: lists the local version of {owner}, where that of its own in snapshot {base} was due"


def _base_problems(lists: Mapping[Subtask, Lists]) -> Iterator[str]:
    """PROTOCOL 12.11: the logs of all subtasks begin after one snapshot."""
    bases = {subtask: 0 if each.base is None else each.base.snapshot_id for subtask, each in lists.items()}
    if len(dict.fromkeys(bases.values())) > 1:
        some = ", ".join(f"{subtask} {base}" for subtask, base in list(bases.items())[:4])
        yield f"the logs of steps begin behind different snapshots: {some}"


def _abutting_problems(subtask: Subtask, handles: Sequence[Handle], first: int) -> Iterator[str]:
    before: Handle | None = None
    for handle in handles:
        if before is None:
            due = first
        elif (before.incarnation, before.subtask) == (handle.incarnation, handle.subtask):
            due = before.last + 1
        else:
            due = 1
        if handle.first != due:
            yield f"{subtask}: {handle.name} is listed where generation {due} was due"
        before = handle


# ---------------------------------------------------------------- a snapshot, and the snapshot before


def list_problems_since(before: Mapping[Subtask, Lists], now: Mapping[Subtask, Lists], made: Made) -> Iterator[str]:
    """Yield the faults of a snapshot's lists against the lists before (PROTOCOL 2.3, bases).

    Parameters
    ----------
    before : mapping of Subtask to Lists
        Lists of the newest snapshot that was published in this incarnation, or what the incarnation restored.
        Subtasks without lists may be left out.
    now : mapping of Subtask to Lists
        Lists of the snapshot to publish.
    made : Made
        Run and incarnation of the snapshot to publish.
    """
    for subtask, newer in now.items():
        older = before.get(subtask, Lists(None, (), ()))
        yield from _since(f"{subtask}: its list of rows", older.rows, newer.rows, made)
        yield from _base_problems_since(subtask, older.base, newer.base)
        own = ("own state", older.own, newer.own)
        steps = ("steps", older.steps, newer.steps)
        for what, before_it, after_it in (own, steps) if older.base == newer.base else (own,):
            whole_before, whole_after = tuple(map(_whole, before_it)), tuple(map(_whole, after_it))
            yield from _since(f"{subtask}: its list of {what}", whole_before, whole_after, made)


def _base_problems_since(subtask: Subtask, older: StepBase | None, newer: StepBase | None) -> Iterator[str]:
    """PROTOCOL 12.11: a log never goes back beyond an older base, because parts before it may be gone."""
    if older is not None and (newer is None or newer.snapshot_id < older.snapshot_id):
        found = "the beginning" if newer is None else str(newer.snapshot_id)
        yield f"{subtask}: its log of steps begins behind {found}, but {older.snapshot_id} was published"


def _since(what: str, older: Sequence[ListEntry], newer: Sequence[ListEntry], made: Made) -> Iterator[str]:
    restored_before, own_before = _split(older, made)
    restored_now, own_now = _split(newer, made)
    if _has_base(own_before) and not _has_base(own_now):
        yield f"{what} has lost its base"
    if restored_before != restored_now and not _has_base(own_now):
        counts = f"{len(restored_now)} entries instead of {len(restored_before)}"
        yield f"{what} has lost or changed what was restored: {counts}"
    reached, due = (own[-1].last if own else 0 for own in (own_now, own_before))
    if reached < due:
        yield f"{what} ends with generation {reached}, but {due} was published"


def _split(entries: Sequence[ListEntry], made: Made) -> tuple[list[ListEntry], list[Handle]]:
    """Return the restored part, and the handles of the own part."""
    handles = [entry.handle for entry in entries]
    count = made.restored_count(handles)
    return list(entries[:count]), handles[count:]


def _whole(handle: Handle) -> ListEntry:
    """Return own state as an entry without a clip."""
    return ListEntry(handle, 0, 0)


def _has_base(own: Sequence[Handle]) -> bool:
    return bool(own) and own[0].first == 0
