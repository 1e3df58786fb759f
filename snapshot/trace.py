"""Trace of a run, simulated or real, as its reader holds it: drawn on demand, and shown by notebooks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.drawing.diagram import Diagram
from cutline.snapshot.plan.topology import Topology
from cutline.snapshot.trace_events import Event, EventLog, in_order

#: Most events that a notebook draws of a trace, because more are not readable.
_DRAWN_EVENTS = 200


@dataclass(frozen=True, slots=True)
class Trace(EventLog):
    """Events of a run. A notebook draws them."""

    @classmethod
    def gathered(cls, topology: Topology, events: Iterable[Event], codec: Codec) -> Self:
        """Return the trace of events that several hosts recorded, each by its own clock.

        Parameters
        ----------
        events : iterable of Event
            Events of one subtask in one incarnation, and events of the run, must each be in order. Any order is
            allowed between them.
        """
        return cls(topology, in_order(events), codec)

    def diagram(self, start: int | None = None, stop: int | None = None) -> Diagram:
        """Return the diagram of ``events[start:stop]``: ``print(trace.diagram(-60))``, or ``.svg()``, ``.png()``.

        About 60 events of 8 subtasks are readable in characters, and 200 events of 20 subtasks as a picture.
        """
        return Diagram(self, start, stop)

    def _repr_html_(self) -> str:
        """Return the drawn last events, for notebooks."""
        return self.diagram(-_DRAWN_EVENTS)._repr_html_()
