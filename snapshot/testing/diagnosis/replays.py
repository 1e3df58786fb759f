"""Whether a node does the same when the same happens to it again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from snapshot.ids import Subtask
from snapshot.testing.checking.values import same
from snapshot.testing.history import History
from snapshot.trace import Event, Kind

#: What happens to a node, and what it does.
_INPUTS = (Kind.POLL, Kind.TIMER, Kind.INJECT, Kind.RECEIVE, Kind.END_RECEIVED)
_OUTPUTS = (Kind.SEND, Kind.END_SENT)


class Stretch(NamedTuple):
    """One life of a subtask, from its beginning or from its cut of a snapshot."""

    history: History
    subtask: Subtask
    incarnation: int
    behind: int | None = None

    def acts(self) -> Iterator[Event]:
        """Its inputs and outputs."""
        lived = (self.incarnation, self.subtask)
        events = (event for event in self.history.events if (event.incarnation, event.subtask) == lived)
        if self.behind is not None:
            for event in events:
                if event.kind is Kind.CUT and event.snapshot_id == self.behind:
                    break
        return (event for event in events if event.kind in _INPUTS or event.kind in _OUTPUTS)


def repeated_by(stretch: Stretch, reference: History) -> Stretch:
    """What a life repeats: the one behind its snapshot, the first one of its run, or that of the run without faults."""
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
    """The first difference, if it is in what the node does; None: there is none, or its inputs differ."""
    for first, second in zip(one.acts(), other.acts(), strict=False):
        is_same = (first.kind, first.channel) == (second.kind, second.channel)
        if not is_same or not same(first.payload, second.payload, one.history.codec):
            acts = first.kind in _OUTPUTS or second.kind in _OUTPUTS
            return (first, second) if acts else None
    return None
