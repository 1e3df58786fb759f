"""Space-time diagrams of simulated runs: processes, messages, markers, cuts, what is in flight across them.

``print(Diagram(history, -60))`` for terminals and failing tests; in a notebook a diagram shows itself.
"""

from __future__ import annotations

from snapshot.testing.drawing.picture import Picture
from snapshot.testing.drawing.text import text_of
from snapshot.testing.history import History


class Diagram:
    """A slice of a history, drawn. Nothing is drawn before it is asked for.

    Parameters
    ----------
    history : History
    start, stop : int, optional
        Which events, as in ``history.events[start:stop]``: ``Diagram(history, -60)`` shows the last 60. In characters
        60 events of 8 subtasks are easily read, as a picture 200 of 20.
    """

    def __init__(self, history: History, start: int | None = None, stop: int | None = None) -> None:
        self._picture = Picture(history, start, stop)

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
        return self.svg()

    def _drawn(self, form: str) -> bytes:
        try:
            from snapshot.testing.drawing.plot import plotted
        except ImportError as error:
            raise ImportError('a drawing needs matplotlib: pip install "cutline[testing]", or take text()') from error
        return plotted(self._picture, form)
