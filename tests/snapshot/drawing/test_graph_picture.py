"""Graphs, drawn: where nodes stand, and what is written on them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations, permutations
from xml.etree import ElementTree

import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from cutline import Graph, Node
from cutline.snapshot.drawing import graph_plot
from cutline.snapshot.drawing.canvas import rendered
from cutline.snapshot.drawing.graph_plot import EdgeNote
from cutline.snapshot.drawing.layout import layout, positions
from cutline.snapshot.plan.compiled_graph import build
from cutline.testing import ListSink, ListSource

SVG = "{http://www.w3.org/2000/svg}"


class Passing(Node):
    """Passes on what comes."""

    def onMessage(self, message: object, context: object) -> None:
        """Nothing is run here."""


def words(svg: str) -> list[str]:
    """All that is written in a drawing."""
    return [element.text or "" for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def graph(*edges: str) -> Graph:
    """Nodes of one letter, and edges between them."""
    made = Graph("letters")
    for name in dict.fromkeys("".join(edges)):
        made.add(name, Passing())
    for edge in edges:
        made.connect(edge[0], edge[1])
    return made


LETTERS = "abcdefghijklmnopqrst"
SHAPES = {
    "one": ["aa"],
    "pair": ["ab", "ba"],
    "chain": ["ab", "bc", "cd", "ad", "bd"],
    "tree": ["ab", "ac", "ad", "be", "bf", "cg", "dh", "di"],
    "ring": [a + b for a, b in zip(LETTERS, LETTERS[1:] + "a", strict=True)],
    "mesh": [a + b for a in LETTERS[:6] for b in LETTERS[:6] if a != b],
    "loop": ["ab", "bc", "cd", "db", "de", "ae", "ee"],
    "two loops": ["ab", "ba", "bc", "cd", "dc", "ec"],
}


@pytest.mark.parametrize("edges", SHAPES.values(), ids=SHAPES)
def test_nodes_have_room(edges: list[str]) -> None:
    """No two stand on each other, and all stand in the drawing."""
    placed = layout(build(graph(*edges), "unaligned").topology)
    for one, other in combinations(placed.points.values(), 2):
        assert max(abs(one.x - other.x), abs(one.y - other.y)) > 0.7
    for x, y in positions(build(graph(*edges), "unaligned").topology).values():
        assert 0 < x < 1
        assert 0 < y < 1


def test_messages_go_to_the_right() -> None:
    """Where no cycle prevents it; in the middle where a layer has one node; a ring begins at its left."""
    at = positions(build(graph("ab", "bc", "cd", "db", "de", "ae"), "unaligned").topology)
    assert at["a"][0] < at["b"][0] < min(at["c"][0], at["d"][0])
    assert max(at["c"][0], at["d"][0]) < at["e"][0]
    line = positions(build(graph("ab", "bc"), "unaligned").topology)
    assert [round(y, 6) for _, y in line.values()] == [0.5, 0.5, 0.5]


def test_edges_need_less_height_than_nodes() -> None:
    """An edge has room beside a node that it passes, and edges between neighbouring layers need none."""
    assert layout(build(graph("ab", "bc", "ac"), "unaligned").topology).height == 1.6
    assert layout(build(graph("ac", "ad", "bc", "bd"), "unaligned").topology).height == 2.0


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Axes]:
    """The axes of all graphs that are drawn, in inches."""
    kept: list[Axes] = []

    def kept_and_rendered(make: Callable[[], Figure], form: str) -> bytes:
        figure = make()
        kept.extend(figure.axes)
        return rendered(lambda: figure, form)

    monkeypatch.setattr(graph_plot, "rendered", kept_and_rendered)
    return kept


def outlines(axes: Axes, count: int) -> list[Bbox]:
    """Where the first shapes of a drawing are."""
    return [patch.get_path().get_extents(patch.get_patch_transform()) for patch in axes.patches[:count]]


def test_names_stand_in_their_boxes(drawn: list[Axes]) -> None:
    """A source, a node and a sink have boxes of one height around their names; a sink's wall is its right end."""
    made = Graph("kinds")
    for name, node in {"in": ListSource("a"), "on": Passing(), "out": ListSink()}.items():
        made.add(name, node)
    made.connect("in", "on").connect("on", "out")._repr_html_()
    [axes] = drawn
    *boxes, wall = outlines(axes, 4)
    at = {text.get_text(): text.get_position() for text in axes.texts}
    assert [box.height for box in (*boxes, wall)] == pytest.approx([boxes[0].height] * 4)
    for name, box in zip(("in", "on", "out"), boxes, strict=True):
        assert box.contains(*at[name])
    assert (wall.x1, wall.y0) == pytest.approx((boxes[2].x1, boxes[2].y0))
    assert wall.x0 > at["out"][0]


def test_opposite_edges_are_told_apart(drawn: list[Axes]) -> None:
    """The labels of two edges there and back stand on both sides of the middle, equally far from it."""
    graph("ab", "ba")._repr_html_()
    at = [(text.get_text(), text.get_position()) for text in drawn[0].texts]
    low, high = sorted((place for text, place in at if "unaligned" in text), key=lambda place: place[1])
    a, b = outlines(drawn[0], 2)
    middle = (a.x0 + b.x1) / 2, (a.y0 + b.y1) / 2
    assert low[0] == pytest.approx(middle[0])
    assert high[0] == pytest.approx(middle[0])
    assert middle[1] - low[1] == pytest.approx(high[1] - middle[1])
    assert low[1] < middle[1]


def test_a_single_node_is_drawn() -> None:
    """Alone, and with an edge to itself, whose label has one place only."""
    alone = Graph("alone")
    alone.add("one", ListSource("a"))
    assert {"one", "alone: 1 subtasks, 0 channels"} <= set(words(alone._repr_html_()))
    assert {"a", "unaligned"} <= set(words(graph("aa")._repr_html_()))


def test_a_graph_shows_itself() -> None:
    """Names, classes, parts, parallelism, spread and alignment; the same graph is the same text."""
    made = Graph("count")
    made.add("words", ListSource("a"), parallelism=2)
    made.add("sum", Passing(), parallelism=3)
    made.add("out", ListSink())
    made.connect("words", "sum", key="word", alignment="aligned").connect("sum", "out", partitioning="rebalance")
    written = words(made._repr_html_())
    for word in ("words", "ListSource", "source, 2 subtasks", "node, 3 subtasks", "sink, 1 subtask", "hash by word"):
        assert word in written
    assert {"aligned", "rebalance", "unaligned", "count: 6 subtasks, 9 channels"} <= set(written)
    assert made._repr_html_() == made._repr_html_()
    assert 'role="img" aria-label="Graph count: words to sum, sum to out"' in made._repr_html_()


@pytest.mark.parametrize("shape", ["pair", "loop", "two loops", "triangle", "square"])
def test_labels_have_room(shape: str) -> None:
    """The texts of messages in flight on all edges at one time do not overlap each other, or a node."""
    full = {"triangle": "abc", "square": "abcd"}
    edges = SHAPES.get(shape) or [a + b for a, b in permutations(full[shape], 2)]
    topology = build(graph(*edges), "unaligned").topology
    notes = {(edge.source, edge.target): EdgeNote(["10 in flight", "60, 76, 45, ..."], True) for edge in topology.edges}
    below = {node.name: ["{'balance': 722, 'until...", "16 processed, 26 sent"] for node in topology.nodes}
    boxes = graph_plot._Plot(topology, below, notes, "all in flight")._labels._taken
    assert len(boxes) == len(topology.nodes) + len(topology.edges)
    for (left, right, low, high), (lf, r, lo, h) in combinations(boxes, 2):
        assert min(right, r) <= max(left, lf) or min(high, h) <= max(low, lo)


def test_edges_of_a_kind_are_told_once() -> None:
    """A mesh of equal edges has no room for a label on each."""
    written = words(graph(*SHAPES["mesh"])._repr_html_())
    assert "unaligned" not in written
    assert "letters: 6 subtasks, 30 channels; all edges forward, unaligned" in written


def test_a_wrong_graph_shows_why() -> None:
    """All problems, as text, whatever is in the names."""
    written = words(graph("ab").connect("a", "<nowhere & $beyond$>").connect("c", "b")._repr_html_())
    assert "problems" in written[0]
    assert any("<nowhere & $beyond$>" in line for line in written)
    assert any("'c'" in line for line in written)


def test_without_matplotlib_it_says_what_to_do(no_matplotlib: None) -> None:
    """As text in the place of the drawing."""
    assert 'pip install "cutline[pictures]"' in words(graph("ab")._repr_html_())[0]
