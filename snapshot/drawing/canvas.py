"""Provide all drawings with colours, text sizes, places for labels, and the file. Needs matplotlib.

The colours are Okabe and Ito's, because they differ in print and for colour-blind readers. No fact is shown by colour
alone.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from io import BytesIO

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath

BLUE, GREEN, PINK, ORANGE, SKY, RED = "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#D55E00"
INK, CALM, PALE = "#222222", "#555555", "#BBBBBB"

#: sizes of text, in points
SMALL, NORMAL = 6.5, 8.0

#: resolution of a PNG, sharp on paper at the size of the drawing
_DOTS_PER_INCH = 120
#: space around a text, in heights of its type
_PADDING = 0.15
_POINTS_PER_INCH = 72.0
#: height of a line of text, in heights of its type
_LINE_HEIGHT = 1.25


def rendered(make: Callable[[], Figure], form: str) -> bytes:
    """Render the figure of `make` as a file of the form ``svg`` or ``png``. Equal drawings give equal files."""
    style = mpl.rc_context(
        {
            "svg.hashsalt": "cutline",
            "svg.fonttype": "none",
            "font.family": "DejaVu Sans",
            "font.size": NORMAL,
            "text.parse_math": False,  # because dollars in the user's text are no formula
        }
    )
    with style, warnings.catch_warnings():
        # Ignore missing glyphs, because an SVG is shown with the viewer's fonts, which may have the glyph.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        file = BytesIO()
        nameless = {"Date": None} if form == "svg" else {}
        make().savefig(file, format=form, dpi=_DOTS_PER_INCH, bbox_inches="tight", metadata=nameless)
    return file.getvalue()


def text_size(lines: Iterable[str], points: float, *, bold: bool = False) -> tuple[float, float]:
    """Return the width and height of text, in inches."""
    font = FontProperties(family="DejaVu Sans", weight="bold" if bold else "normal")
    widths = [
        TextPath((0, 0), line, size=points, prop=font).get_extents().width if line.strip() else 0 for line in lines
    ]
    height = points * len(widths) * _LINE_HEIGHT
    return (max(widths, default=0) + 2 * points * _PADDING) / _POINTS_PER_INCH, height / _POINTS_PER_INCH


class Labels:
    """Write labels on axes without overlaps, where there is room.

    Parameters
    ----------
    axes : Axes
    scale : (float, float)
        Inches of one unit of x and of y.
    """

    def __init__(self, axes: Axes, scale: tuple[float, float]) -> None:
        self._axes = axes
        self._scale = scale
        #: (left, right, low, high) in inches
        self._taken: list[tuple[float, float, float, float]] = []

    def keep_free(self, at: tuple[float, float], width: float, height: float) -> None:
        """Reserve a box without labels. Sizes are in inches."""
        self._taken.append(self._box(at, width, height))

    def write(
        self,
        text: str,
        places: Iterable[tuple[float, float]],
        colour: str,
        *,
        points: float = SMALL,
        bold: bool = False,
        optional: bool = False,
    ) -> None:
        """Write at the place with the most room, the first of equals. If `optional`, write at a free place only."""
        width, height = text_size(text.splitlines(), points, bold=bold)
        at = min(places, key=lambda each: self._taken_area(self._box(each, width, height)))
        if optional and self._taken_area(self._box(at, width, height)):
            return
        self.keep_free(at, width, height)
        self._axes.text(
            *at,
            text,
            fontsize=points,
            color=colour,
            weight="bold" if bold else "normal",
            ha="center",
            va="center",
            bbox={"boxstyle": "square,pad=0.1", "fc": "white", "ec": "none", "alpha": 0.92},
            zorder=5,
        )

    def _box(self, at: tuple[float, float], width: float, height: float) -> tuple[float, float, float, float]:
        x, y = at[0] * self._scale[0], at[1] * self._scale[1]
        return x - width / 2, x + width / 2, y - height / 2, y + height / 2

    def _taken_area(self, box: tuple[float, float, float, float]) -> float:
        """Return the square inches of a box that others cover."""
        left, right, low, high = box
        return sum(
            max(min(right, r) - max(left, lf), 0.0) * max(min(high, h) - max(low, lo), 0.0)
            for lf, r, lo, h in self._taken
        )
