"""A space-time diagram as a drawing: time runs to the right, a line a subtask. The only file that needs matplotlib.

Colours are Okabe and Ito's: told apart in print, and by the colour-blind. Styles say the same without colours: markers
are dashed, what is in flight across a cut is thick and starred.
"""

from __future__ import annotations

from io import BytesIO

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch

from snapshot.ids import Subtask
from snapshot.testing.drawing.picture import Arrow, Cargo, Picture
from snapshot.testing.history import Event, Kind

#: Inches.
_EVENT_WIDTH, _LINE_HEIGHT = 0.13, 0.42
#: Of the distance between lines.
_STUB_MAX = 0.7
#: Of all lines together, where they are few.
_LINES_HEIGHT_MIN = 1.8
_WIDTH_MIN, _WIDTH_MAX = 6.0, 60.0
#: From here on the legend has room for all of its columns.
_WIDE = 9.0
_MARGIN_HEIGHT = 0.4
#: Of the PNG: sharp on paper at the size of the drawing.
_DOTS_PER_INCH = 120

_CUT_COLOURS = ("#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_FAULT, _CALM, _PALE, _INK = "#D55E00", "#555555", "#BBBBBB", "#222222"

#: Labels of messages that are not in flight across a cut are left out when there are more arrows than this.
_LABELLED_ARROWS_MAX = 160
#: Points: a broad pale band, so that nobody takes a cut for a message.
_CUT_WIDTH = 4.0
_SMALL, _NORMAL = 6.5, 8.0
#: Characters of what is written above the lines.
_ANNOUNCEMENT_CHARACTERS = 34

#: {kind: (marker, colour, is it filled)} of events that move nothing.
_POINTS = {
    Kind.RESTORED: (">", _INK, True),
    Kind.POLL: ("o", _CALM, False),
    Kind.TIMER: ("^", _CALM, False),
    Kind.INJECT: ("v", _INK, True),
    Kind.COMMIT: ("P", "#009E73", True),
    Kind.FAILED: ("X", _FAULT, True),
    Kind.REFUSED: ("x", _FAULT, True),
}
_ANNOUNCED = {Kind.FAULT: _FAULT, Kind.FAILED: _FAULT, Kind.DEPLOYED: _INK, Kind.PUBLISHED: "#009E73"}


def plotted(picture: Picture, form: str) -> bytes:
    """The drawing as a file of the form ``svg`` or ``png``. Equal pictures give equal files."""
    with mpl.rc_context(
        {"svg.hashsalt": "cutline", "svg.fonttype": "none", "font.family": "DejaVu Sans", "font.size": _NORMAL}
    ):
        plot = _Plot(picture)
        file = BytesIO()
        nameless = {"Date": None} if form == "svg" else {}
        plot.figure.savefig(file, format=form, dpi=_DOTS_PER_INCH, bbox_inches="tight", metadata=nameless)
    return file.getvalue()


class _Plot:
    """One drawing."""

    def __init__(self, picture: Picture) -> None:
        self._picture = picture
        self._level = {subtask: number for number, subtask in enumerate(picture.subtasks)}
        self._colours = {cut.snapshot_id: _CUT_COLOURS[n % len(_CUT_COLOURS)] for n, cut in enumerate(picture.cuts)}
        width = min(max(_EVENT_WIDTH * len(picture.events), _WIDTH_MIN), _WIDTH_MAX)
        height = _MARGIN_HEIGHT + max(_LINE_HEIGHT * len(self._level), _LINES_HEIGHT_MIN)
        self.figure = Figure(figsize=(width, height))
        # Names, words above and the legend below lie outside: the file is made as large as they need.
        self._axes = self.figure.add_axes((0, 0, 1, 1))
        self._draw_frame()
        self._draw_lives()
        for arrow in picture.arrows:
            self._draw_arrow(arrow)
        for place, event in enumerate(picture.events):
            if event.subtask is None:
                self._announce(place, event)
            elif event.kind in _POINTS:
                self._draw_point(place, event, self._level[event.subtask])
        self._draw_cuts()
        self._draw_legend()

    # ---------------------------------------------------------------- around

    def _draw_frame(self) -> None:
        axes, picture = self._axes, self._picture
        count, levels = len(picture.events), len(self._level)
        axes.set_xlim(-1.5, count + 0.5)
        axes.set_ylim(levels - 0.4, -0.8)
        axes.set_yticks(range(levels), [picture.name(subtask) for subtask in self._level])
        axes.tick_params(axis="y", length=0)
        self._draw_times(axes)
        for side in ("left", "right", "top"):
            axes.spines[side].set_visible(False)

    def _draw_times(self, axes: Axes) -> None:
        """Virtual seconds, where they change, as far as there is room."""
        places: list[int] = []
        events = self._picture.events
        for place, event in enumerate(events):
            is_new = place == 0 or event.at != events[place - 1].at
            if is_new and (not places or place - places[-1] >= 6):
                places.append(place)
        axes.set_xticks(places, [f"{events[place].at:.3g} s" for place in places], fontsize=_SMALL, color=_CALM)

    def _draw_lives(self) -> None:
        """A line from each restore to the subtask's last event in that life; dotted where nothing is alive."""
        ends: dict[Subtask, list[tuple[int, int]]] = {subtask: [(-1, -1)] for subtask in self._level}
        for place, event in enumerate(self._picture.events):
            if event.subtask is None:
                continue
            lives = ends[event.subtask]
            if event.kind is Kind.RESTORED:
                lives.append((place, place))
            else:
                lives[-1] = (lives[-1][0], place)
        right = len(self._picture.events)
        for subtask, lives in ends.items():
            level = self._level[subtask]
            self._axes.plot([-1, right], [level, level], color=_PALE, lw=0.6, ls=":", zorder=1)
            lives[-1] = (lives[-1][0], right)
            for start, end in lives:
                self._axes.plot([start, end], [level, level], color=_CALM, lw=1.0, zorder=1.5)

    def _announce(self, place: int, event: Event) -> None:
        """An event of the run: a thin line through all subtasks, and words above."""
        colour = _ANNOUNCED.get(event.kind, _CALM)
        is_loud = event.kind in _ANNOUNCED
        style = "-" if event.kind is Kind.DEPLOYED else ":"
        if is_loud:
            self._axes.axvline(place, color=colour, lw=0.8, ls=style, alpha=0.7, zorder=0.5)
        text = self._picture.announcement(event)[:_ANNOUNCEMENT_CHARACTERS]
        self._axes.text(place, -0.9, text, rotation=60, ha="left", va="bottom", fontsize=_SMALL, color=colour)

    def _draw_point(self, place: int, event: Event, level: int) -> None:
        shape, colour, is_filled = _POINTS[event.kind]
        if self._picture.is_stale(place):
            colour = _PALE
        face = colour if is_filled else "white"
        self._axes.plot(place, level, marker=shape, ms=4.5, mec=colour, mfc=face, mew=0.8, ls="", zorder=4)

    # ---------------------------------------------------------------- arrows

    def _draw_arrow(self, arrow: Arrow) -> None:
        source, target = (float(self._level[end]) for end in arrow.channel)
        tail, head = self._ends(arrow)
        colour, width, style = self._look(arrow)
        if arrow.end is None:
            # Nobody took it in the slice: the beginning of its way, as far as there is room between two lines.
            target = source + min(max(0.3 * (target - source), -_STUB_MAX), _STUB_MAX)
        patch = FancyArrowPatch(
            (tail, source),
            (head, target),
            arrowstyle="-|>" if arrow.end is not None else "-",
            connectionstyle="arc3,rad=-0.6" if arrow.channel.source == arrow.channel.target else "arc3",
            mutation_scale=5 + 2 * width,
            shrinkA=0,
            shrinkB=1,
            color=colour,
            lw=width,
            ls=style,
            zorder=3 if arrow.crosses else 2,
        )
        self._axes.add_patch(patch)
        if arrow.start is not None:
            shape = "D" if arrow.cargo is Cargo.MARKER else "."
            self._axes.plot(tail, source, marker=shape, ms=3, color=colour, ls="", zorder=3)
        if arrow.crosses or len(self._picture.arrows) <= _LABELLED_ARROWS_MAX:
            # All that was restored comes from one point: its labels have room at the heads only.
            share = 1.0 if arrow.end is None else 0.75 if arrow.is_restored else 0.3
            self._write(arrow, tail + share * (head - tail), source + share * (target - source), colour)

    def _ends(self, arrow: Arrow) -> tuple[float, float]:
        """Places of tail and head, also where one of them is not in the slice."""
        head = float(arrow.end) if arrow.end is not None else (arrow.start or 0) + 1.5
        if arrow.start is not None:
            return float(arrow.start), head
        return self._restored_at(arrow), head

    def _restored_at(self, arrow: Arrow) -> float:
        """Where the life began into which it was restored; the left margin, if it was sent before the slice."""
        life = (Kind.RESTORED, arrow.incarnation, arrow.channel.source)
        for place, event in enumerate(self._picture.events):
            if (event.kind, event.incarnation, event.subtask) == life:
                return float(place)
        return -1.0

    def _look(self, arrow: Arrow) -> tuple[str, float, str]:
        """Colour, width and style."""
        place = arrow.end if arrow.end is not None else arrow.start
        if place is not None and self._picture.is_stale(place):
            return _PALE, 0.7, "-"
        if arrow.cargo is Cargo.MARKER:
            return self._colours.get(arrow.snapshot_id, _CALM), 0.8, "--"
        if arrow.crosses:
            return self._colours[arrow.crosses[0]], 1.8, "-"
        return _CALM, 0.7, ":" if arrow.is_restored else "-"

    def _write(self, arrow: Arrow, at: float, level: float, colour: str) -> None:
        if arrow.cargo is Cargo.MARKER:
            return  # its dashes and colour say all; its number is at the cut
        text = f"{'*' if arrow.crosses else ''}{arrow.number}{' end' if arrow.cargo is Cargo.END else ''}"
        box = {"boxstyle": "square,pad=0.1", "fc": "white", "ec": "none", "alpha": 0.8}
        weight = "bold" if arrow.crosses else "normal"
        self._axes.text(
            at, level, text, fontsize=_SMALL, color=colour, weight=weight, ha="center", va="center", bbox=box, zorder=5
        )

    # ---------------------------------------------------------------- cuts

    def _draw_cuts(self) -> None:
        for cut in self._picture.cuts:
            colour = self._colours[cut.snapshot_id]
            places = [place for place, _ in cut.points]
            levels = [self._level[subtask] for _, subtask in cut.points]
            style = "-" if cut.is_published else (0, (1, 1))
            # A little beyond the first and the last line, so that the cut is seen to end there.
            xs, ys = [places[0], *places, places[-1]], [levels[0] - 0.45, *levels, levels[-1] + 0.3]
            self._axes.plot(xs, ys, color=colour, lw=_CUT_WIDTH, ls=style, alpha=0.4, zorder=1.8)
            self._axes.plot(places, levels, marker="s", ms=5, color=colour, ls="", zorder=4)
            label = f"cut {self._picture.label(cut.snapshot_id)}"
            self._axes.text(
                xs[0], ys[0], label, fontsize=_NORMAL, color=colour, weight="bold", ha="center", va="bottom"
            )

    def _draw_legend(self) -> None:
        cut = _CUT_COLOURS[0]
        samples = [
            Line2D([], [], color=_CALM, lw=0.8, marker=">", ms=4, label="message (no head: not received here)"),
            Line2D([], [], color=cut, lw=1.8, marker=">", ms=5, label="* in flight across the cut of its colour"),
            Line2D([], [], color=_CALM, lw=0.8, ls=":", marker=">", ms=4, label="restored message"),
            Line2D([], [], color=cut, lw=0.8, ls="--", marker="D", ms=3, label="marker"),
            Line2D([], [], color=cut, lw=_CUT_WIDTH, alpha=0.4, marker="s", ms=5, label="cut (dotted: not published)"),
            Line2D([], [], color=_INK, ls="", marker=">", ms=5, label="start or restore"),
            Line2D([], [], color=_CALM, ls="", marker="o", mfc="white", ms=4, label="poll"),
            Line2D([], [], color="#009E73", ls="", marker="P", ms=5, label="commit"),
            Line2D([], [], color=_FAULT, ls=":", lw=0.8, marker="X", ms=5, label="fault, failure"),
            Line2D([], [], color=_PALE, lw=1.2, label="left over from an older incarnation"),
        ]
        self._axes.legend(
            handles=samples,
            title=self._picture.title,
            alignment="left",
            loc="upper left",
            bbox_to_anchor=(0, 0),
            borderaxespad=4,
            ncols=5 if self.figure.get_figwidth() > _WIDE else 2,
            fontsize=_SMALL,
            frameon=False,
        )
