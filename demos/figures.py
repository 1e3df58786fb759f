"""Charts of the notebooks, as drawings with a text for readers who do not see them."""

from __future__ import annotations

from io import StringIO
from typing import TYPE_CHECKING

from cutline.snapshot.drawing.html import picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Chart:
    """A figure of matplotlib that a notebook shows as the last value of a cell.

    Parameters
    ----------
    figure : Figure
    label : str
        What the figure shows.
    """

    def __init__(self, figure: Figure, label: str) -> None:
        file = StringIO()
        figure.savefig(file, format="svg", bbox_inches="tight")
        self._html = picture(file.getvalue(), label)

    def _repr_html_(self) -> str:
        return self._html
