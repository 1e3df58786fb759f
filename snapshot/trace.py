"""A trace of a run, simulated or real, as its reader holds it: drawn on demand, and shown by notebooks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from snapshot.channel.serialization import Codec
from snapshot.drawing.diagram import Diagram
from snapshot.plan.topology import Topology
from snapshot.trace_events import Event, EventLog, in_order

#: Events that a notebook shows of a trace: what is readable.
_DRAWN_EVENTS = 200


@dataclass(frozen=True, slots=True)
class Trace(EventLog):
    """The events of a run. A trace shows itself in notebooks."""

    @classmethod
    def gathered(cls, topology: Topology, events: Iterable[Event], codec: Codec) -> Self:
        """The trace of what several hosts wrote down, of which each has a clock of its own.

        Parameters
        ----------
        events : iterable of Event
            Those of one subtask in one incarnation, and those of the run, each in their order; otherwise in any order.
        """
        return cls(topology, in_order(events), codec)

    def diagram(self, start: int | None = None, stop: int | None = None) -> Diagram:
        """The space-time diagram of ``events[start:stop]``: ``print(trace.diagram(-60))``, or ``.svg()``, ``.png()``.

        In characters 60 events of 8 subtasks are easily read, as a picture 200 of 20.
        """
        return Diagram(self, start, stop)

    def _repr_svg_(self) -> str:
        """The last events, drawn, for notebooks."""
        return self.diagram(-_DRAWN_EVENTS)._repr_svg_()
