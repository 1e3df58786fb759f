"""Whether a node does the same when the same happens to it again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from snapshot.channel.serialization import Codec
from snapshot.ids import Subtask
from snapshot.testing.checking.values import same
from snapshot.testing.history import Event, History, Kind

#: What happens to a node, and what it does.
_INPUTS = (Kind.POLL, Kind.TIMER, Kind.INJECT, Kind.RECEIVE, Kind.END_RECEIVED)
_OUTPUTS = (Kind.SEND, Kind.END_SENT)


class Replay(NamedTuple):
    """Where two lives of a subtask part, though both began alike and had the same inputs until then."""

    first: Event
    second: Event


def replayed(history: History, subtask: Subtask, incarnation: int) -> Replay | None:
    """Compare a life that was restored with the one that it repeats."""
    origin = history.origins[incarnation]
    if origin is None:
        return None
    earlier = _acts(history, subtask, origin[0], behind=origin[1])
    return _parting(earlier, _acts(history, subtask, incarnation), history.codec)


def repeated(history: History, reference: History, subtask: Subtask) -> Replay | None:
    """Compare the first lives of a subtask in two runs."""
    one, other = (_acts(each, subtask, min(each.origins, default=0)) for each in (reference, history))
    return _parting(one, other, history.codec)


def _acts(history: History, subtask: Subtask, incarnation: int, behind: int | None = None) -> Iterator[Event]:
    """Inputs and outputs of one life: all of them, or those behind the cut of a snapshot."""
    events = (event for event in history.events if event.incarnation == incarnation and event.subtask == subtask)
    if behind is not None:
        for event in events:
            if event.kind is Kind.CUT and event.snapshot_id == behind:
                break
    return (event for event in events if event.kind in _INPUTS or event.kind in _OUTPUTS)


def _parting(first: Iterator[Event], second: Iterator[Event], codec: Codec) -> Replay | None:
    """The first difference, if it is one in what the node does; None: there is none, or its inputs differ."""
    for one, other in zip(first, second, strict=False):
        if (one.kind, one.channel) == (other.kind, other.channel) and same(one.payload, other.payload, codec):
            continue
        acts = one.kind in _OUTPUTS or other.kind in _OUTPUTS
        return Replay(one, other) if acts else None
    return None
