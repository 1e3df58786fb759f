"""What a drawing consists of, as lines that do not depend on fonts: ``python -m tests.snapshot.drawing.shapes``.

The program writes `EXPECTED` anew. Look at the pictures before you keep what it wrote, because it says how they look,
not whether they are right.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch, Patch
from matplotlib.text import Text

from cutline import Graph, Node
from cutline.snapshot.drawing import graph_plot, plot
from cutline.snapshot.drawing.graph_plot import EdgeNote
from cutline.snapshot.drawing.picture import Picture
from cutline.snapshot.drawing.snapshot_card import card_of_snapshot
from cutline.snapshot.plan.compiled_graph import build
from cutline.snapshot.stored.snapshot import Snapshot
from cutline.snapshot.testing.history import History
from cutline.testing import ListSink, ListSource
from tests.snapshot import sample
from tests.snapshot.drawing.histories import every_kind, rounds
from tests.snapshot.testing.scribe import sample_history

EXPECTED = Path(__file__).with_name("shapes.txt")

#: Inches and places of events are compared to this many decimals. Widths of texts differ a little between fonts.
_DECIMALS = 1


class Passing(Node):
    """Passes on what comes."""

    def onMessage(self, message: object, context: object) -> None:
        """Nothing is run here."""


def lines() -> list[str]:
    """All pictures, a line a shape."""
    return [line for name, picture in PICTURES.items() for line in (f"== {name}", *picture())]


def _graph() -> list[str]:
    graph = Graph("shapes").add("in", ListSource(1)).add("out", ListSink())
    for name in ("left", "right", "loop"):
        graph.add(name, Passing(), parallelism=2)
    graph.connect("in", "left").connect("in", "right", key="k").connect("left", "loop").connect("right", "loop")
    graph.connect("loop", "loop").connect("loop", "left").connect("loop", "out")
    topology = build(graph, "unaligned").topology
    edges = {(e.source, e.target): EdgeNote(["3 in flight"], is_loud=e.target == "loop") for e in topology.edges}
    notes = {node.name: ["a state", "1 sent"] for node in topology.nodes}
    return list(_of(graph_plot._Plot(topology, notes, edges, "caption").figure))


def _tree() -> list[str]:
    graph = Graph("tree")
    for name in "abcdefg":
        graph.add(name, Passing())
    for source, target in ("ab", "ac", "bd", "be", "cf", "fg", "ag"):
        graph.connect(source, target)
    topology = build(graph, "unaligned").topology
    edges = {(edge.source, edge.target): EdgeNote([], is_loud=False) for edge in topology.edges}
    return list(_of(graph_plot._Plot(topology, {name: [] for name in "abcdefg"}, edges, "").figure))


def _diagram(history: History) -> list[str]:
    return list(_of(plot._Plot(Picture(history.trace, None, None)).figure))


def _card() -> list[str]:
    snapshot = Snapshot(sample.manifest(), lambda handle: handle.inline or b"", sample.CODEC)
    html = re.sub("<svg.*?</svg>", "<svg/>", card_of_snapshot(snapshot), flags=re.DOTALL)
    html = re.sub("<t[hd] style='[^']*'", "<cell", html)
    return re.sub("(<[a-z/])", r"\n\1", html).strip().splitlines()


PICTURES: dict[str, Callable[[], list[str]]] = {
    "graph": _graph,
    "tree": _tree,
    "rollback": lambda: _diagram(sample_history(rolled_back=True)),
    "every kind": lambda: _diagram(every_kind()),
    "ring": lambda: _diagram(rounds(4, 9)),
    "card": _card,
}


def _of(figure: Figure) -> Iterator[str]:
    [axes] = figure.axes
    for artist in axes.get_children():
        if artist.axes is not None and isinstance(artist, Text | Line2D | Patch):
            yield f"{type(artist).__name__} {' '.join(map(str, _facts(artist)))}".rstrip()
    legend: Any = axes.get_legend()
    if legend is not None:
        yield from (f"legend {text.get_text()!r}" for text in (legend.get_title(), *legend.get_texts()))


def _facts(artist: Text | Line2D | Patch) -> Iterator[object]:
    match artist:
        case Text():
            yield from (repr(artist.get_text()), _round(artist.get_position()), artist.get_rotation())
            yield artist.get_fontweight()
        case Line2D():
            yield from (_round(artist.get_xydata()), artist.get_linestyle(), repr(artist.get_marker()))
            yield to_hex(artist.get_color())
        case FancyArrowPatch():
            known: Any = artist  # matplotlib has no words for what it was given
            ends = known._path_original.vertices if known._posA_posB is None else known._posA_posB
            bend = vars(known._connector).get("rad") if known._posA_posB else None
            yield from (
                _round(ends),
                bend,
                artist.get_linestyle(),
                to_hex(artist.get_edgecolor()),
                artist.get_linewidth(),
            )
        case Patch():
            assert artist.axes is not None
            extents = artist.get_extents().transformed(artist.axes.transData.inverted())
            yield from (_round(extents.get_points()), to_hex(artist.get_facecolor()))


def _round(numbers: Any) -> Any:
    if isinstance(numbers, int | float):
        return round(float(numbers), _DECIMALS) + 0.0
    return [_round(number) for number in (numbers.tolist() if hasattr(numbers, "tolist") else numbers)]


if __name__ == "__main__":
    EXPECTED.write_text("\n".join(lines()) + "\n")
