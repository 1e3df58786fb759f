"""Name the usual mistakes in nodes, from observations of the nodes in a failed run.

::

    state kept outside snapshotState            the state changes while the node runs, and no restore brings it back
    mutable state shared with the snapshot      the restored state is not the recorded state, which went on changing
    state lost in restoreState                  snapshotState returned it, and restoreState did not adopt it
    sends in the constructor or in open         sent again after every restore
    non-determinism where replay needs ...      the same state and the same inputs, and another message

A diagnosis names the place to check first. Only runs in which a checker found a failure are diagnosed in full. Of sound
runs, `unsaved_attributes` names suspicious attributes.
Non-determinism is found by comparing a node's events with those of an incarnation that it repeats.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from cutline.snapshot.drawing.labels import format_event, shown
from cutline.snapshot.ids import Subtask
from cutline.snapshot.testing.checking.values import same
from cutline.snapshot.testing.diagnosis.node_attributes import SHARED_KINDS, Spot
from cutline.snapshot.testing.diagnosis.probe import Probe, Recorded, WatchedSubtask
from cutline.snapshot.testing.history import History
from cutline.snapshot.testing.payload import pack, unpack
from cutline.snapshot.testing.steps import short_name
from cutline.snapshot.trace_events import Event, Kind

#: kinds of events that are inputs of a node, and that are its outputs
_INPUTS = (Kind.POLL, Kind.TIMER, Kind.INJECT, Kind.RECEIVE, Kind.END_RECEIVED)
_OUTPUTS = (Kind.SEND, Kind.END_SENT)


class Stretch(NamedTuple):
    """An incarnation of a subtask, from its beginning or from its cut of a snapshot."""

    history: History
    subtask: Subtask
    incarnation: int
    behind: int | None = None

    def acts(self) -> Iterator[Event]:
        """Yield the inputs and outputs of the stretch."""
        lived = (self.incarnation, self.subtask)
        events = (event for event in self.history.events if (event.incarnation, event.subtask) == lived)
        if self.behind is not None:
            for event in events:
                if event.kind is Kind.CUT and event.snapshot_id == self.behind:
                    break
        return (event for event in events if event.kind in _INPUTS or event.kind in _OUTPUTS)


def repeated_by(stretch: Stretch, reference: History) -> Stretch:
    """Return what an incarnation repeats: after its snapshot, else its run's first, else the run without faults."""
    history, subtask, incarnation, _ = stretch
    origin, first = history.origins[incarnation], min(history.origins)
    if origin is not None:
        return Stretch(history, subtask, *origin)
    return (
        Stretch(reference, subtask, min(reference.origins))
        if incarnation == first
        else stretch._replace(incarnation=first)
    )


def first_divergence(one: Stretch, other: Stretch) -> tuple[Event, Event] | None:
    """Return the first difference, if the node's outputs differ. Return None for no difference, or different inputs."""
    for first, second in zip(one.acts(), other.acts(), strict=False):
        is_same = (first.kind, first.channel) == (second.kind, second.channel)
        if not is_same or not same(first.payload, second.payload, one.history.codec):
            acts = first.kind in _OUTPUTS or second.kind in _OUTPUTS
            return (first, second) if acts else None
    return None


class Mistake(Enum):
    """A mistake of a node."""

    KEPT_OUTSIDE = "state kept outside snapshotState"
    SHARED = "mutable state shared with the snapshot"
    LOST = "state lost in restoreState"
    SENT_AT_START = "sends in the constructor or in open"
    NOT_REPEATED = "non-determinism where replay needs determinism"


_ADVICE = {
    Mistake.KEPT_OUTSIDE: "Return it from snapshotState, and take it over in restoreState.",
    Mistake.SHARED: "Return the value itself from snapshotState, not what leads to it, and keep it in the instance.",
    Mistake.LOST: "Take over in restoreState all that snapshotState returns.",
    Mistake.SENT_AT_START: "Send in onStart, which is called once in a node's life.",
    Mistake.NOT_REPEATED: "Let it depend on state and inputs only: context.random goes on as in the snapshot; the "
    "clock, uuid, the random module, and a queue or file that has gone on do not.",
}


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A probable mistake, and its place."""

    mistake: Mistake
    subtask: Subtask
    #: the attribute or hook; "" where none can be named
    where: str
    #: the observation
    text: str

    def __str__(self) -> str:
        return f"{short_name(self.subtask)}: {self.mistake.value}: {self.text}"

    @property
    def advice(self) -> str:
        """The advice against the mistake."""
        return _ADVICE[self.mistake]


def diagnose(history: History, probe: Probe, reference: History, reference_probe: Probe) -> list[Diagnosis]:
    """Return the probable mistakes of the nodes of a run.

    Parameters
    ----------
    history, probe
        The failed run, and the observations of its nodes.
    reference, reference_probe
        A run of the same graph without faults, and the observations of its nodes.

    Returns
    -------
    list of Diagnosis
        Each mistake once for each node and place. Replays are compared only where no state is suspected.
    """
    found: dict[tuple[Mistake, str, str], Diagnosis] = {}
    for subtask in history.topology.subtasks:
        watched_subtasks = [
            watched for watched in probe.subtasks.values() if watched.subtask == subtask and watched.begun is not None
        ]
        seen = [diagnosis for watched in watched_subtasks for diagnosis in _of_restored(history, probe, watched)]
        seen = seen or [
            diagnosis for watched in watched_subtasks for diagnosis in _of_fresh(history, reference_probe, watched)
        ]
        for diagnosis in seen or _of_replays(history, reference, watched_subtasks):
            # The subtasks of a node have the same code.
            found.setdefault((diagnosis.mistake, subtask.node, diagnosis.where), diagnosis)
    return list(found.values())


def unsaved_attributes(history: History, probe: Probe) -> list[Diagnosis]:
    """Return the attributes that changed and that no restore of the run brought back, each once for each node.

    The run may be sound, because an attribute may be a cache, or may matter only later.
    """
    found: dict[tuple[str, str], Diagnosis] = {}
    for watched in probe.subtasks.values():
        for diagnosis in () if watched.begun is None else _of_restored(history, probe, watched):
            shared = (Spot(kind, diagnosis.where) for kind in SHARED_KINDS)
            is_unsaved = diagnosis.mistake in (Mistake.KEPT_OUTSIDE, Mistake.LOST)
            if is_unsaved and not any(spot in (watched.begun or ()) for spot in shared):
                found.setdefault((watched.subtask.node, diagnosis.where), diagnosis)
    return list(found.values())


# ---- state


def _of_restored(history: History, probe: Probe, watched: WatchedSubtask) -> Iterator[Diagnosis]:
    """Yield differences between a restored node and its cut, and messages that the restore sent."""
    origin = history.origins[watched.incarnation]
    if origin is None:
        return
    incarnation, snapshot_id = origin
    if watched.sent_in_open:
        text = (
            f"what open sends was sent again ({watched.sent_in_open}) in incarnation {watched.incarnation}, "
            "after a restore"
        )
        yield Diagnosis(Mistake.SENT_AT_START, watched.subtask, "open", text)
    assert watched.begun is not None
    recorded, codec = probe.subtasks[incarnation, watched.subtask].cuts[snapshot_id], history.codec
    for spot, was in recorded.node.items():
        now = watched.begun.get(spot)
        if now is not None and same(was, now, codec):
            continue
        mistake = _mistake(history, probe, watched, recorded, spot)
        if mistake is not None:
            is_now = "is gone" if now is None else f"is {shown(now, codec)}"
            text = f"{spot} was {shown(was, codec)} when snapshot {snapshot_id} was recorded, and {is_now} after the "
            yield Diagnosis(mistake, watched.subtask, spot.name, text + "restore from it")


def _of_fresh(history: History, reference: Probe, watched: WatchedSubtask) -> Iterator[Diagnosis]:
    """Yield values in a fresh node that are left of an earlier incarnation, or of another run."""
    first = reference.first(watched.subtask)
    if history.origins[watched.incarnation] is not None or first is None or first.begun is None:
        return
    assert watched.begun is not None
    for spot, value in watched.begun.items():
        due = first.begun.get(spot)
        if spot.is_shared and due is not None and not same(value, due, history.codec):
            was, now = shown(due, history.codec), shown(value, history.codec)
            text = f"{spot} is {now} in a fresh node, and was {was} in the first one: all instances share it"
            yield Diagnosis(_shared_mistake(watched, spot), watched.subtask, spot.name, text)


def _mistake(history: History, probe: Probe, watched: WatchedSubtask, recorded: Recorded, spot: Spot) -> Mistake | None:
    """Return why a value differs after a restore, or None for a value that `open` makes anew each time."""
    codec = history.codec
    if spot.is_shared:
        leads_to = _leads_to(unpack(recorded.state, codec), unpack(recorded.node[spot], codec))
        return Mistake.SHARED if leads_to else _shared_mistake(watched, spot)
    if same(recorded.copy.get(spot), recorded.node[spot], codec):
        return Mistake.SHARED
    if recorded.again is not None and not same(recorded.again, recorded.state, codec):
        return Mistake.LOST
    made = watched.made.get(spot)
    if made is not None and not watched.is_source and _were_sent(history, watched.subtask, made):
        return Mistake.SENT_AT_START
    return Mistake.KEPT_OUTSIDE if _is_as_new(history, probe, watched, spot) else None


def _is_as_new(history: History, probe: Probe, watched: WatchedSubtask, spot: Spot) -> bool:
    """Return whether the value is that of the constructor, or that of the first `open`."""
    assert watched.begun is not None
    now, first = watched.begun.get(spot), probe.first(watched.subtask)
    opened = None if first is None or first.begun is None else first.begun.get(spot)
    return now is None or any(same(now, new, history.codec) for new in (watched.made.get(spot), opened))


def _shared_mistake(watched: WatchedSubtask, spot: Spot) -> Mistake:
    return Mistake.SHARED if spot.name in watched.snapshot_names else Mistake.KEPT_OUTSIDE


def _leads_to(state: object, value: object) -> bool:
    """Return whether a state holds the key of a dictionary in which the changed value is stored."""
    parts = state if isinstance(state, list | tuple) else [state]
    return isinstance(value, dict) and any(part in list(value) for part in parts)


def _were_sent(history: History, subtask: Subtask, made: bytes) -> bool:
    """Return whether the node sent all messages that the constructor put into a value."""
    value = unpack(made, history.codec)
    if not isinstance(value, list | tuple) or not value:
        return False
    sent = [event.payload for event in history.events if event.kind is Kind.SEND and event.subtask == subtask]
    return all(pack(each, history.codec) in sent for each in value)


# ---- replay


def _of_replays(history: History, reference: History, watched_subtasks: list[WatchedSubtask]) -> Iterator[Diagnosis]:
    """Yield a diagnosis if a node's outputs differ from an earlier incarnation with the same state and inputs."""
    for watched in [*watched_subtasks[1:], *watched_subtasks[:1]]:  # the first incarnation repeats nothing of this run
        this = Stretch(history, watched.subtask, watched.incarnation)
        earlier = repeated_by(this, reference)
        parted = first_divergence(earlier, this)
        if parted is not None:
            first, second = (format_event(event, history.codec) for event in parted)
            when = (
                f"in incarnation {earlier.incarnation}" if earlier.history is history else "in the run without faults"
            )
            text = f"in the same state and with the same inputs, its next event was {first} {when}, and {second} in "
            yield Diagnosis(Mistake.NOT_REPEATED, watched.subtask, "", f"{text}incarnation {watched.incarnation}")
            return
