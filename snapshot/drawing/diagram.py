"""Space-time diagrams of runs, simulated or real: subtasks, messages, markers, cuts, what is in flight across them.

``print(trace.diagram(-60))`` for terminals and failing tests; in a notebook a diagram shows itself.
"""

from __future__ import annotations

from snapshot.drawing.html import drawn_or_text, needs_matplotlib
from snapshot.drawing.picture import Picture
from snapshot.drawing.text import text_of
from snapshot.trace_events import EventLog


class Diagram:
    """A slice of a trace, drawn. Nothing is drawn before it is asked for.

    Parameters
    ----------
    trace : EventLog
    start, stop : int, optional
        Which events, as in ``trace.events[start:stop]``.
    """

    def __init__(self, trace: EventLog, start: int | None = None, stop: int | None = None) -> None:
        self._picture = Picture(trace, start, stop)

    def text(self) -> str:
        """In characters: time runs downwards, a column a subtask; more than 8 subtasks are told in a table."""
        return text_of(self._picture)

    def svg(self) -> str:
        """As a drawing: time runs to the right, a line a subtask. Equal diagrams are equal texts.

        Raises
        ------
        ImportError
            where matplotlib is missing.
        """
        return self._drawn("svg").decode()

    def png(self) -> bytes:
        """The same as an image.

        Raises
        ------
        ImportError
            where matplotlib is missing.
        """
        return self._drawn("png")

    def __str__(self) -> str:
        return self.text()

    def _repr_svg_(self) -> str:
        return drawn_or_text(self.svg)

    def _drawn(self, form: str) -> bytes:
        with needs_matplotlib():
            from snapshot.drawing.plot import plotted
        return plotted(self._picture, form)
