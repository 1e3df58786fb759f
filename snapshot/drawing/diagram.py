"""Draw space-time diagrams of simulated or real runs: subtasks, messages, markers, cuts, messages in flight.

In terminals and failing tests, use ``print(trace.diagram(-60))``. A notebook shows a diagram as a drawing.
"""

from __future__ import annotations

from cutline.snapshot.drawing.html import drawn_or_text, needs_matplotlib, picture
from cutline.snapshot.drawing.picture import Picture
from cutline.snapshot.drawing.text import text_of
from cutline.snapshot.trace_events import EventLog


class Diagram:
    """The diagram of a slice of a trace. Drawing happens on demand.

    Parameters
    ----------
    trace : EventLog
    start, stop : int, optional
        Slice of the events, as in ``trace.events[start:stop]``.
    """

    def __init__(self, trace: EventLog, start: int | None = None, stop: int | None = None) -> None:
        self._picture = Picture(trace, start, stop)

    def text(self) -> str:
        """Return the diagram in characters: time runs downwards, a column a subtask; above 8 subtasks, a table."""
        return text_of(self._picture)

    def svg(self) -> str:
        """Return the diagram as SVG: time runs to the right, a line a subtask. Equal diagrams give equal SVG.

        Raises
        ------
        ImportError
            if matplotlib is missing.
        """
        return self._drawn("svg").decode()

    def png(self) -> bytes:
        """Return the drawing as a PNG image.

        Raises
        ------
        ImportError
            if matplotlib is missing.
        """
        return self._drawn("png")

    def __str__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        return picture(drawn_or_text(self.svg), f"Space-time diagram of {self._picture.title}")

    def _drawn(self, form: str) -> bytes:
        with needs_matplotlib():
            from cutline.snapshot.drawing.plot import plotted
        return plotted(self._picture, form)
