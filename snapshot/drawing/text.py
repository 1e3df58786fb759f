"""A space-time diagram in characters, with time downwards, a column for each subtask and a row for each event.

::

    event   time  P              Q
        3  0.000  ●1→Q           │              'one'
        4  0.000  ├──1──────────>●              'one'
        5  0.500 ═╡1╞═           │
        6  0.500  ◇1→Q           │
        7  0.500  ├┄┄1┄┄┄┄┄┄┄┄┄┄>◆
        8  0.600  ✗ Crash('Q') ─────────────

A ``*`` marks a message in flight across a cut. A graph with too many subtasks for columns is shown as a table.
"""

from __future__ import annotations

from collections.abc import Iterator

from cutline.snapshot.drawing.labels import format_event
from cutline.snapshot.drawing.picture import Arrow, Cargo, Picture
from cutline.snapshot.ids import Subtask
from cutline.snapshot.trace_events import Event, Kind

#: columns at most, because more columns do not fit a terminal of 160 characters
_COLUMNS_MAX = 8
#: least and largest width of a column in characters: room for an arrow with its number, but not for every long name
_COLUMN_MIN, _COLUMN_MAX = 12, 18
#: characters left of the first line, with room for half a cut
_INDENT = 5
#: symbols of a subtask's events that move no message
_SYMBOLS = {
    Kind.RESTORED: "╤",
    Kind.POLL: "○ poll",
    Kind.TIMER: "○ timer",
    Kind.INJECT: "● injected",
    Kind.COMMIT: "✓",
    Kind.FAILED: "✗ failed",
    Kind.REFUSED: "✗ refused",
}
#: symbols of events of the run
_ANNOUNCED = {Kind.FAULT: "✗", Kind.FAILED: "✗", Kind.DEPLOYED: "▶", Kind.PUBLISHED: "✓", Kind.ABORTED: "✗"}


def text_of(picture: Picture) -> str:
    """Return the whole diagram as text."""
    rows = _table(picture) if len(picture.subtasks) > _COLUMNS_MAX else _Columns(picture).rows()
    return "\n".join(row.rstrip() for row in (picture.title, *rows, *_flying(picture)))


def _prefix(picture: Picture, place: int) -> str:
    return f"{picture.first + place + 1:6} {picture.time(place):8.3f} "


def _star(arrow: Arrow | None) -> str:
    return "*" if arrow is not None and arrow.crosses else ""


def _flying(picture: Picture) -> Iterator[str]:
    """Yield a line for each cut: the messages of its channel states that the slice shows. Stars mark these messages."""
    for cut in picture.cuts:
        numbers: dict[str, list[int]] = {}
        for arrow in picture.arrows:
            if cut.snapshot_id in arrow.crosses:
                name = "→".join(picture.name(end) for end in arrow.channel)
                numbers.setdefault(name, []).append(arrow.number)
        shown_numbers = (f"{name} {', '.join(map(str, sorted(held)))}" for name, held in numbers.items())
        fate = "published" if cut.is_published else "not published"
        yield f"cut {picture.label(cut.snapshot_id)} ({fate}): in flight {'; '.join(shown_numbers) or 'nothing'}"


def _table(picture: Picture) -> Iterator[str]:
    width = max(len(picture.name(subtask)) for subtask in picture.subtasks)
    yield f" event     time  {'subtask':{width}}  what"
    for place, event in enumerate(picture.events):
        if event.subtask is None:
            yield f"{_prefix(picture, place)} {_banner(picture, event)}"
            continue
        cut = f" {picture.label(event.snapshot_id)}" if event.snapshot_id else ""
        stale = f" (incarnation {event.incarnation})" if picture.is_stale(place) else ""
        what = f"{format_event(event, picture.trace.codec)}{cut}{stale}"
        star = _star(picture.arrow_at.get(place)) or " "
        yield f"{_prefix(picture, place)}{star}{picture.name(event.subtask):{width}}  {what}"


def _banner(picture: Picture, event: Event) -> str:
    return f"{_ANNOUNCED.get(event.kind, '✗')} {picture.announcement(event)} "


class _Columns:
    """The diagram with a column for each subtask."""

    def __init__(self, picture: Picture) -> None:
        self._picture = picture
        names = [picture.name(subtask) for subtask in picture.subtasks]
        # 7 more characters than the longest name give room for "●*123→" before the name, and for a gap.
        self._width = min(max([_COLUMN_MIN, *(len(name) + 7 for name in names)]), _COLUMN_MAX)
        self._line = {subtask: _INDENT + number * self._width for number, subtask in enumerate(picture.subtasks)}
        self._all = _INDENT + len(names) * self._width

    def rows(self) -> Iterator[str]:
        """Yield the heading and a row for each event."""
        heads = (self._picture.name(subtask)[: self._width - 1] for subtask in self._picture.subtasks)
        yield f" event     time {' ' * _INDENT}" + "".join(f"{head:{self._width}}" for head in heads)
        for place, event in enumerate(self._picture.events):
            yield f"{_prefix(self._picture, place)}{self._row(place, event)}"

    def _row(self, place: int, event: Event) -> str:
        if event.subtask is None:
            return f"  {_banner(self._picture, event)}".ljust(self._all, "─")
        cells = list(" " * self._all)
        for line in self._line.values():
            cells[line] = "│"
        arrow = self._picture.arrow_at.get(place)
        if arrow is None:
            self._draw_point(cells, event, event.subtask)
        elif arrow.end == place:
            self._draw_arrow(cells, arrow)
        else:
            self._draw_start(cells, arrow)
        stale = f"(incarnation {event.incarnation})" if self._picture.is_stale(place) else ""
        restored = "(restored)" if arrow is not None and arrow.is_restored else ""
        notes = (self._picture.value(event), event.text, restored, stale)
        return f"{''.join(cells)} {' '.join(note for note in notes if note)}"

    def _draw_point(self, cells: list[str], event: Event, subtask: Subtask) -> None:
        label = self._picture.label(event.snapshot_id) if event.snapshot_id else ""
        line = self._line[subtask]
        if event.kind is Kind.CUT:
            text = f"═╡{label}╞═"
            _put(cells, line - len(text) // 2, text)
            return
        text = f"{_SYMBOLS[event.kind]} {label}".rstrip()
        if event.kind is Kind.RESTORED:
            text = f"╤ from {label}" if label else "╤ start"
        _put(cells, line, text[: self._width - 1])

    def _draw_start(self, cells: list[str], arrow: Arrow) -> None:
        """Draw a sending, whose receipt follows later or never."""
        symbol = "◇" if arrow.cargo is Cargo.MARKER else "●"
        text = f"{symbol}{self._label(arrow)}→{self._picture.name(arrow.channel.target)}"
        _put(cells, self._line[arrow.channel.source], text[: self._width - 1])

    def _draw_arrow(self, cells: list[str], arrow: Arrow) -> None:
        """Draw a receipt, as an arrow over the whole way from the sender."""
        source, target = (self._line[end] for end in arrow.channel)
        is_marker = arrow.cargo is Cargo.MARKER
        head = "◆" if is_marker else "●"
        if source == target:
            _put(cells, target, f"{head}<{self._label(arrow)} itself"[: self._width - 1])
            return
        low, high = sorted((source, target))
        for at in range(low + 1, high):
            crossing, plain = ("┆", "┄") if is_marker else ("┼", "─")
            cells[at] = crossing if cells[at] == "│" else plain
        to_the_right = source < target
        cells[source] = "├" if to_the_right else "┤"
        _put(cells, target - 1 if to_the_right else target, f">{head}" if to_the_right else f"{head}<")
        label = self._label(arrow)
        _put(cells, source + 3 if to_the_right else source - 2 - len(label), label)

    def _label(self, arrow: Arrow) -> str:
        if arrow.cargo is Cargo.MARKER:
            return self._picture.label(arrow.snapshot_id)
        return f"{_star(arrow)}{arrow.number}{' end' if arrow.cargo is Cargo.END else ''}"


def _put(cells: list[str], at: int, text: str) -> None:
    cells[at : at + len(text)] = text
