"""Draw two processes that throw coloured balls at each other: their balls, the balls in flight, and the records.

Owns the pictures of notebook 01. The events of a simulated run give the pictures, whatever its nodes are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cutline.demos.figures import Chart
from cutline.snapshot.testing.payload import unpack
from cutline.testing import Event, History, Kind

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARKER = "marker"

#: Fill and letters of a ball. The colours differ in brightness too, and each ball shows its name.
_COLOURS = {
    "red": ("#C8102E", "white"),
    "green": ("#2E8B57", "white"),
    "blue": ("#1F4FA3", "white"),
    "orange": ("#F5A623", "black"),
    "brown": ("#6B4226", "white"),
    "pink": ("#F7B6D2", "black"),
}
_INK, _CALM, _PAPER, _NOTE = "#222222", "#777777", "#F4F4F4", "#FFF6D9"

#: Sizes of a picture, in units: its width, half the width of a ball, the boxes as (left, right), and heights.
_WIDTH, _RADIUS = 12.4, 0.42
_BOXES = {"P": (0.2, 3.4), "Q": (9.0, 12.2)}
_NOTES: dict[str | tuple[str, str], tuple[float, float]] = {
    "P": (0.2, 3.4),
    ("P", "Q"): (3.7, 6.1),
    ("Q", "P"): (6.3, 8.7),
    "Q": (9.0, 12.2),
}
_PROCESS, _RECORD, _TITLE, _LEGEND = (2.4, 4.6), (0.5, 1.9), 5.0, 0.05
_WAYS = {("P", "Q"): 4.0, ("Q", "P"): 2.9}
#: units between two rows of a comparison
_ROW = 1.0
#: inches of a unit
_SCALE = 0.62

Channel = tuple[str, str]


@dataclass(slots=True)
class Scene:
    """The places of all balls at one moment, and the records until then."""

    held: dict[str, list[str]]
    #: {channel: its balls in the order of sending, with a marker among them}
    under_way: dict[Channel, list[str]] = field(default_factory=lambda: {("P", "Q"): [], ("Q", "P"): []})
    states: dict[str, list[str]] = field(default_factory=dict)
    channels: dict[Channel, list[str]] = field(default_factory=dict)
    #: channels that have delivered their marker
    closed: list[Channel] = field(default_factory=list)


def scene_of(history: History, start: Mapping[str, Sequence[str]]) -> Scene:
    """Return the scene after all events, when each process holds its balls of `start` at the beginning."""
    scene = Scene({name: list(balls) for name, balls in start.items()})
    for event in history.events:
        _apply(scene, event, history)
    return scene


def _apply(scene: Scene, event: Event, history: History) -> None:
    """Apply the rules of Chandy and Lamport, as an observer of all processes sees them."""
    name = event.subtask.node if event.subtask else ""
    channel = (event.channel.source.node, event.channel.target.node) if event.channel else ("", "")
    ball = unpack(event.payload, history.codec) if event.kind in (Kind.SEND, Kind.RECEIVE) else MARKER
    match event.kind:
        case Kind.SEND:
            scene.held[name].remove(ball)
            scene.under_way[channel].append(ball)
        case Kind.RECEIVE:
            scene.under_way[channel].remove(ball)
            scene.held[name].append(ball)
            if name in scene.states and channel not in scene.closed:
                scene.channels[channel].append(ball)
        case Kind.CUT if name not in scene.states:
            scene.states[name] = list(scene.held[name])
            scene.channels |= {other: [] for other in scene.under_way if other[1] == name}
        case Kind.MARKER_SENT if channel not in scene.closed:
            scene.under_way[channel].append(MARKER)
        case Kind.MARKER if channel not in scene.closed:
            scene.under_way[channel].remove(MARKER)
            scene.closed.append(channel)
        case _:
            pass


def draw(scene: Scene, title: str) -> Chart:
    """Draw one moment: the processes and channels above, and their records below."""
    from matplotlib.figure import Figure

    figure = Figure()
    axes = _axes(figure, _TITLE + 0.3)
    _words(axes, 0.2, _TITLE, title, 10, bold=True)
    _marker(axes, 0.4, _LEGEND)  # the legend; a ball needs no explanation
    _words(axes, 0.75, _LEGEND, "a marker          solid: a process          dashed: what it has recorded", 8)
    for name, (left, right) in _BOXES.items():
        _box(axes, left, right, _PROCESS, name, is_note=False)
        _balls(axes, scene.held[name], (left + right) / 2, 3.3)
    for channel, height in _WAYS.items():
        _way(axes, channel, height, scene.under_way[channel])
    for place, (left, right) in _NOTES.items():
        label = f"{place} recorded" if isinstance(place, str) else f"channel {place[0]} to {place[1]}"
        _box(axes, left, right, _RECORD, label, is_note=True)
        _recorded(axes, scene, place, (left + right) / 2)
    held = "; ".join(f"{name} holds {_listed(balls)}" for name, balls in scene.held.items())
    return Chart(figure, f"{title}. {held}")


def compare(records: Mapping[str, Mapping[str, Sequence[str]]], balls: Iterable[str]) -> Chart:
    """Draw several records of the same `balls`, beside each other, and the fault of each record.

    Parameters
    ----------
    records : mapping of str to mapping
        ``{title: {place: balls that were found there}}``
    balls : iterable of str
        All balls.
    """
    from matplotlib.figure import Figure

    everything = list(balls)
    rows = max(len(record) for record in records.values())
    figure = Figure()
    axes = _axes(figure, (rows + 2) * _ROW)
    for number, (title, record) in enumerate(records.items()):
        left = 0.2 + number * _WIDTH / len(records)
        _words(axes, left, (rows + 1.5) * _ROW, title, 10, bold=True)
        for row, (place, found) in enumerate(record.items()):
            height = (rows + 0.5 - row) * _ROW
            _words(axes, left, height, place if found else f"{place}: nothing", 8)
            _balls(axes, found, left + 3.6, height)
        _words(axes, left, 0.5 * _ROW, _fault(record, everything), 9, bold=True)
    return Chart(figure, "; ".join(f"{title}: {_fault(record, everything)}" for title, record in records.items()))


def _listed(balls: Sequence[str]) -> str:
    return ", ".join(balls) or "nothing"


def _fault(record: Mapping[str, Sequence[str]], everything: Sequence[str]) -> str:
    found = [ball for place in record.values() for ball in place]
    twice = [f"{ball} is there twice" for ball in everything if found.count(ball) > 1]
    lost = [f"{ball} is nowhere" for ball in everything if ball not in found]
    return ", ".join(twice + lost) if twice or lost else f"each of the {len(everything)} balls is there once"


# ---------------------------------------------------------------- pieces


def _axes(figure: Figure, height: float) -> Axes:
    """Make axes of the full width and of `height`, from a little below 0."""
    below = 0.3
    figure.set_size_inches(_WIDTH * _SCALE, (height + below) * _SCALE)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, _WIDTH), ylim=(-below, height))
    axes.axis("off")
    return axes


def _words(axes: Axes, x: float, y: float, text: str, points: float, *, bold: bool = False) -> None:
    axes.text(x, y, text, fontsize=points, weight="bold" if bold else "normal", color=_INK, va="center")


def _box(axes: Axes, left: float, right: float, span: tuple[float, float], label: str, *, is_note: bool) -> None:
    from matplotlib.patches import FancyBboxPatch

    style = "round,pad=0,rounding_size=0.15"
    fill, line = (_NOTE, "--") if is_note else (_PAPER, "-")
    box = FancyBboxPatch((left, span[0]), right - left, span[1] - span[0], boxstyle=style, fc=fill, ec=_INK, ls=line)
    axes.add_patch(box)
    _words(axes, left + 0.15, span[1] - 0.3, label, 8 if is_note else 11, bold=not is_note)


def _way(axes: Axes, channel: Channel, height: float, things: Sequence[str]) -> None:
    left, right = _BOXES["P"][1], _BOXES["Q"][0]
    start, stop = (left, right) if channel == ("P", "Q") else (right, left)
    arrow = {"arrowstyle": "-|>", "color": _CALM, "lw": 1.4, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", (stop, height), (start, height), arrowprops=arrow, zorder=1)
    step = 1.1 if stop > start else -1.1
    for number, thing in enumerate(things):  # the first thing sent is ahead
        at = stop - step * (number + 0.85)
        _marker(axes, at, height) if thing == MARKER else _ball(axes, thing, at, height)


def _recorded(axes: Axes, scene: Scene, place: str | Channel, middle: float) -> None:
    balls = scene.states.get(place) if isinstance(place, str) else scene.channels.get(place)
    if balls:
        _balls(axes, balls, middle, _RECORD[0] + 0.55)
        return
    is_over = isinstance(place, str) or place in scene.closed
    words = "not yet" if balls is None else "empty" if is_over else "recording"
    axes.text(middle, _RECORD[0] + 0.55, words, fontsize=8, color=_CALM, ha="center", va="center")


def _balls(axes: Axes, names: Sequence[str], middle: float, height: float) -> None:
    for number, name in enumerate(names):
        _ball(axes, name, middle + (number - (len(names) - 1) / 2) * 2.3 * _RADIUS, height)


def _ball(axes: Axes, name: str, x: float, y: float) -> None:
    from matplotlib.patches import Circle

    fill, letters = _COLOURS[name]
    axes.add_patch(Circle((x, y), _RADIUS, fc=fill, ec=_INK, lw=0.8, zorder=3))
    axes.text(x, y, name, fontsize=6.5, color=letters, ha="center", va="center", zorder=4)


def _marker(axes: Axes, x: float, y: float) -> None:
    from matplotlib.patches import Polygon

    corners = [(x, y - 0.26), (x + 0.18, y), (x, y + 0.26), (x - 0.18, y)]
    axes.add_patch(Polygon(corners, fc="white", ec=_INK, lw=1.4, zorder=3))
