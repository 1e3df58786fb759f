"""A space-time diagram as a drawing, with time to the right and a line for each subtask. Needs matplotlib.

Styles carry the same facts as colours. Markers are dashed, messages in flight across a cut are thick and starred, and
the points of each cut have a shape of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import floor, log10
from textwrap import wrap

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch

from cutline.snapshot.drawing.canvas import (
    BLUE,
    CALM,
    GREEN,
    INK,
    NORMAL,
    ORANGE,
    PALE,
    PINK,
    RED,
    SKY,
    SMALL,
    Labels,
    rendered,
)
from cutline.snapshot.drawing.labels import shortened
from cutline.snapshot.drawing.picture import Arrow, Cargo, CutLine, Picture
from cutline.snapshot.ids import Subtask
from cutline.snapshot.trace_events import Event, Kind

#: inches: least and largest width of an event, width of a page that few events may fill, height of a line
_EVENT_WIDTH, _EVENT_WIDTH_MAX, _PAGE_WIDTH, _LINE_HEIGHT = 0.13, 0.26, 8.3, 0.42
#: size of an arrow with only one end in the slice: width in distances of events, largest height in distances of lines
_STUB_WIDTH, _STUB_MAX = 1.5, 0.7
#: least height in inches of all lines together
_LINES_HEIGHT_MIN = 1.8
#: least and largest width of the drawing, in inches
_WIDTH_MIN, _WIDTH_MAX = 6.0, 60.0
#: width in inches above which the legend has all of its columns
_WIDE = 9.0
#: height of the margin, in inches
_MARGIN_HEIGHT = 0.4
#: space above the first line and below the last line, in distances of lines
_ABOVE, _BELOW = 0.8, 0.6
#: events between two labels of the time axis
_TIME_STEP = 6
#: decimals of a time, because more decimals would show the inaccuracy of the clock
_TIME_DECIMALS_MAX = 6

#: (colour, shape) of cuts, used in turn
_CUTS = ((BLUE, "s"), (GREEN, "p"), (PINK, "h"), (ORANGE, "8"), (SKY, "d"))

#: largest number of arrows at which messages that are not in flight across a cut get labels
_LABELLED_ARROWS_MAX = 160
#: places of an arrow's label, as shares of the arrow, for arrows without a receipt, restored arrows, and all others
_AT_END, _NEAR_HEAD, _NEAR_TAIL = (1.0, 0.5, 1.4), (0.75, 0.85, 0.6, 0.45), (0.3, 0.45, 0.6, 0.15, 0.75)
#: width of a cut in points: a broad pale band, because a thin line could be mistaken for a message
_CUT_WIDTH = 4.0
#: characters of the text for an event of the run, above the lines; a longer text is repeated in whole in the legend
_ANNOUNCEMENT_CHARACTERS = 34
#: characters of the legend's title in an inch
_CHARACTERS_PER_INCH = 15

#: (marker, colour, whether filled) of events that move no message, by kind
_POINTS = {
    Kind.RESTORED: (">", INK, True),
    Kind.POLL: ("o", CALM, False),
    Kind.TIMER: ("^", CALM, False),
    Kind.INJECT: ("v", INK, True),
    Kind.COMMIT: ("P", GREEN, True),
    Kind.FAILED: ("X", RED, True),
    Kind.REFUSED: ("x", RED, True),
}
_ANNOUNCED = {Kind.FAULT: RED, Kind.FAILED: RED, Kind.DEPLOYED: INK, Kind.PUBLISHED: GREEN}


def plotted(picture: Picture, form: str) -> bytes:
    """Return the drawing as the bytes of a file in the format `form`, ``svg`` or ``png``."""
    return rendered(lambda: _Plot(picture).figure, form)


class _Plot:
    """The drawing of a picture."""

    def __init__(self, picture: Picture) -> None:
        self._picture = picture
        self._level = {subtask: number for number, subtask in enumerate(picture.subtasks)}
        self._styles = {cut.snapshot_id: _CUTS[n % len(_CUTS)] for n, cut in enumerate(picture.cuts)}
        count, levels = len(picture.events), len(self._level)
        wished = max(_EVENT_WIDTH * count, min(_EVENT_WIDTH_MAX * count, _PAGE_WIDTH))
        width = min(max(wished, _WIDTH_MIN), _WIDTH_MAX)
        height = _MARGIN_HEIGHT + max(_LINE_HEIGHT * levels, _LINES_HEIGHT_MIN)
        self.figure = Figure(figsize=(width, height))
        # The names, the texts above and the legend below lie outside of the axes. `rendered` enlarges the file to fit.
        self._axes = self.figure.add_axes((0, 0, 1, 1))
        self._labels = Labels(self._axes, (width / (count + 2), height / (levels - 1 + _ABOVE + _BELOW)))
        #: announcements that have no room above the lines
        self._cut_short: list[str] = []
        self._draw_frame()
        self._draw_incarnations()
        self._draw_cuts()
        # Arrows across a cut come first, so that their labels take the best places.
        for arrow in sorted(picture.arrows, key=lambda arrow: not arrow.crosses):
            self._draw_arrow(arrow)
        for place, event in enumerate(picture.events):
            if event.subtask is None:
                self._announce(place, event)
            elif event.kind in _POINTS:
                self._draw_point(place, event, self._level[event.subtask])
        self._draw_legend()

    # ---------------------------------------------------------------- around

    def _draw_frame(self) -> None:
        axes, picture = self._axes, self._picture
        count, levels = len(picture.events), len(self._level)
        axes.set_xlim(-1.5, count + 0.5)
        axes.set_ylim(levels - 1 + _BELOW, -_ABOVE)
        axes.set_yticks(range(levels), [picture.name(subtask) for subtask in self._level])
        axes.tick_params(axis="y", length=0)
        self._draw_times(axes)
        for side in ("left", "right", "top"):
            axes.spines[side].set_visible(False)

    def _draw_times(self, axes: Axes) -> None:
        """Label the time axis with seconds from the first event, where the time changes and a label has room."""
        places: list[int] = []
        events = self._picture.events
        for place, event in enumerate(events):
            is_new = place == 0 or event.at != events[place - 1].at
            if is_new and (not places or place - places[-1] >= _TIME_STEP):
                places.append(place)
        times = [self._picture.time(place) for place in places]
        step = (max(times) - min(times)) / len(times) if times else 0.0
        decimals = min(max(1 - floor(log10(step)), 0), _TIME_DECIMALS_MAX) if step > 0 else 3
        axes.set_xticks(places, [f"{round(time, decimals):.12g} s" for time in times], fontsize=SMALL, color=CALM)

    def _draw_incarnations(self) -> None:
        """Draw each subtask's line: solid from a restore to the last event of that incarnation, dotted elsewhere."""
        ends: dict[Subtask, list[tuple[int, int]]] = {subtask: [(-1, -1)] for subtask in self._level}
        for place, event in enumerate(self._picture.events):
            if event.subtask is None:
                continue
            incarnations = ends[event.subtask]
            if event.kind is Kind.RESTORED:
                incarnations.append((place, place))
            else:
                incarnations[-1] = (incarnations[-1][0], place)
        right = len(self._picture.events)
        for subtask, incarnations in ends.items():
            level = self._level[subtask]
            self._axes.plot([-1, right], [level, level], color=PALE, lw=0.6, ls=":", zorder=1)
            incarnations[-1] = (incarnations[-1][0], right)
            for start, end in incarnations:
                self._axes.plot([start, end], [level, level], color=CALM, lw=1.0, zorder=1.5)

    def _announce(self, place: int, event: Event) -> None:
        """Draw an event of the run as a text above the lines. Draw a thin line through all subtasks for some kinds."""
        colour = _ANNOUNCED.get(event.kind, CALM)
        is_loud = event.kind in _ANNOUNCED
        style = "-" if event.kind is Kind.DEPLOYED else ":"
        if is_loud:
            self._axes.axvline(place, color=colour, lw=0.8, ls=style, alpha=0.7, zorder=0.5)
        whole = " ".join(self._picture.announcement(event).split())
        text = shortened(whole, _ANNOUNCEMENT_CHARACTERS)
        if text != whole:
            self._cut_short.append(f"At {self._picture.time(place):.3f} s: {whole}")
        self._axes.text(place, -0.9, text, rotation=60, ha="left", va="bottom", fontsize=SMALL, color=colour)

    def _draw_point(self, place: int, event: Event, level: int) -> None:
        shape, colour, is_filled = _POINTS[event.kind]
        if self._picture.is_stale(place):
            colour = PALE
        face = colour if is_filled else "white"
        self._axes.plot(place, level, marker=shape, ms=4.5, mec=colour, mfc=face, mew=0.8, ls="", zorder=4)

    # ---------------------------------------------------------------- arrows

    def _draw_arrow(self, arrow: Arrow) -> None:
        (tail, source), (head, target) = self._ends(arrow)
        colour, width, style = self._style_of(arrow)
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
        if arrow.cargo is Cargo.MARKER:
            return  # no label, because the name of the cut has the snapshot id
        if arrow.crosses or len(self._picture.arrows) <= _LABELLED_ARROWS_MAX:
            # Restored messages all start at one point, so their labels have room only near the heads.
            shares = _AT_END if arrow.end is None else _NEAR_HEAD if arrow.is_restored else _NEAR_TAIL
            places = [(tail + share * (head - tail), source + share * (target - source)) for share in shares]
            text = f"{'*' if arrow.crosses else ''}{arrow.number}{' end' if arrow.cargo is Cargo.END else ''}"
            self._labels.write(text, places, colour, bold=bool(arrow.crosses), optional=not arrow.crosses)

    def _ends(self, arrow: Arrow) -> tuple[tuple[float, float], tuple[float, float]]:
        """Return the tail and the head of an arrow. An arrow that was sent before the slice, or is not received in the
        slice, is cut short to the room between two lines.
        """
        source, target = (float(self._level[end]) for end in arrow.channel)
        way = min(max(0.3 * (target - source), -_STUB_MAX), _STUB_MAX)
        tail = arrow.start if arrow.start is not None else self._restored_at(arrow)
        if arrow.end is None:
            assert tail is not None, "an arrow has an end in the slice"
            return (tail, source), (tail + _STUB_WIDTH, source + way)
        if tail is None:
            return (arrow.end - _STUB_WIDTH, target - way), (arrow.end, target)
        return (tail, source), (arrow.end, target)

    def _restored_at(self, arrow: Arrow) -> float | None:
        """Return the place where the message was restored, or None when it was sent or restored before the slice."""
        restored = (Kind.RESTORED, arrow.incarnation, arrow.channel.source)
        for place, event in enumerate(self._picture.events if arrow.is_restored else ()):
            if (event.kind, event.incarnation, event.subtask) == restored:
                return float(place)
        return None

    def _style_of(self, arrow: Arrow) -> tuple[str, float, str]:
        """Return the colour, the width in points and the style of an arrow."""
        place = arrow.end if arrow.end is not None else arrow.start
        if place is not None and self._picture.is_stale(place):
            return PALE, 0.7, "-"
        if arrow.cargo is Cargo.MARKER:
            return self._styles.get(arrow.snapshot_id, (CALM,))[0], 0.8, "--"
        if arrow.crosses:
            return self._styles[arrow.crosses[0]][0], 1.8, "-"
        return CALM, 0.7, ":" if arrow.is_restored else "-"

    # ---------------------------------------------------------------- cuts

    def _draw_cuts(self) -> None:
        for cut in self._picture.cuts:
            colour, shape = self._styles[cut.snapshot_id]
            places = [place for place, _ in cut.points]
            levels = [self._level[subtask] for _, subtask in cut.points]
            style = "-" if cut.is_published else (0, (1, 1))
            # Drawn a little beyond the first and the last line, so that a reader sees where the cut ends.
            xs, ys = [places[0], *places, places[-1]], [levels[0] - 0.4, *levels, levels[-1] + 0.3]
            self._axes.plot(xs, ys, color=colour, lw=_CUT_WIDTH, ls=style, alpha=0.4, zorder=1.8)
            self._axes.plot(places, levels, marker=shape, ms=5, color=colour, ls="", zorder=4)
            name = f"cut {self._picture.label(cut.snapshot_id)}"
            self._labels.write(name, self._beyond(cut), colour, points=NORMAL, bold=True)

    def _beyond(self, cut: CutLine) -> Iterator[tuple[float, float]]:
        """Yield places for a cut's name: above its first point and below its last point, then a little aside."""
        (first, top), (last, bottom) = cut.points[0], cut.points[-1]
        for aside in (0.0, 2.0, -2.0, 4.0, -4.0):
            yield first + aside, self._level[top] - 0.55
            yield last + aside, self._level[bottom] + 0.45

    def _draw_legend(self) -> None:
        """Draw the legend, below the title and the texts that had no room above the lines."""
        width = int(self.figure.get_figwidth() * _CHARACTERS_PER_INCH)
        title = [self._picture.title, *(line for text in self._cut_short for line in wrap(text, width))]
        cut = BLUE
        samples = [
            Line2D([], [], color=CALM, lw=0.8, marker=">", ms=4, label="message (no head, no tail: outside)"),
            Line2D([], [], color=cut, lw=1.8, marker=">", ms=5, label="* in flight across the cut of its colour"),
            Line2D([], [], color=CALM, lw=0.8, ls=":", marker=">", ms=4, label="restored message"),
            Line2D([], [], color=cut, lw=0.8, ls="--", marker="D", ms=3, label="marker"),
            Line2D([], [], color=cut, lw=_CUT_WIDTH, alpha=0.4, marker="s", ms=5, label="cut (dotted: not published)"),
            Line2D([], [], color=INK, ls="", marker=">", ms=5, label="start or restore"),
            Line2D([], [], color=CALM, ls="", marker="o", mfc="white", ms=4, label="poll"),
            Line2D([], [], color=GREEN, ls="", marker="P", ms=5, label="commit"),
            Line2D([], [], color=RED, ls=":", lw=0.8, marker="X", ms=5, label="fault, failure"),
            Line2D([], [], color=PALE, lw=1.2, label="left over from an older incarnation"),
        ]
        self._axes.legend(
            handles=samples,
            title="\n".join(title),
            alignment="left",
            loc="upper left",
            bbox_to_anchor=(0, 0),
            borderaxespad=4,
            ncols=5 if self.figure.get_figwidth() > _WIDE else 2,
            fontsize=SMALL,
            frameon=False,
        )
