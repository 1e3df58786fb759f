"""Plot a graph: boxes for nodes, arrows for edges, both with text. Needs matplotlib.

Sources and sinks differ by shape and by colour: a source points to the right, a sink has a wall at its right.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Patch, Polygon, Rectangle
from matplotlib.path import Path

from cutline.snapshot.drawing.canvas import CALM, INK, NORMAL, RED, SMALL, Labels, rendered, text_size
from cutline.snapshot.drawing.layout import Point, layout
from cutline.snapshot.plan.topology import EdgeSpec, NodeSpec, Topology

#: inches around the text of a box, between boxes, and around the drawing
_PADDING, _GAP_WIDTH, _GAP_HEIGHT, _MARGIN = 0.12, 0.55, 0.6, 0.15
_BOX_WIDTH_MIN = 0.9
#: inches of a source's point, a sink's wall, and a loop above its box
_POINT, _WALL, _LOOP = 0.14, 0.06, 0.42
#: fill colours of sources, sinks and other nodes
_SOURCE, _SINK, _OTHER = "#DCEFE8", "#FBE6D6", "#F2F2F2"
#: bends of edges, in edge lengths; an edge takes the first bend that avoids all boxes. Opposite edges bend apart
_BENDS, _BENDS_APART = (0.0, 0.2, -0.2, 0.4, -0.4), (0.2, 0.4)
#: edges; above this number, labels without room are omitted
_LABELLED_EDGES_MAX = 12
#: shares of an edge's length where crossings with boxes are checked, and where the label may stand
_STEPS = tuple(number / 20 for number in range(1, 20))
_SHARES = tuple(0.5 + side * number * 0.03 for number in range(11) for side in (1, -1))


@dataclass(frozen=True, slots=True)
class EdgeNote:
    """Text on an edge."""

    lines: Sequence[str]
    is_loud: bool  #: messages are in flight; the edge is thick and red


def graph_plotted(
    topology: Topology,
    nodes: Mapping[str, Sequence[str]],
    edges: Mapping[tuple[str, str], EdgeNote],
    caption: str,
    form: str,
) -> bytes:
    """Return the drawing as a file of the form ``svg`` or ``png``.

    Parameters
    ----------
    nodes : mapping of str to sequence of str
        Text in each node, below the node's name.
    edges : mapping of (str, str) to EdgeNote
        Text on each edge, by the names of source and target.
    caption : str
        Text below the drawing.
    """
    return rendered(lambda: _Plot(topology, nodes, edges, caption).figure, form)


class _Plot:
    """One drawing."""

    def __init__(
        self,
        topology: Topology,
        nodes: Mapping[str, Sequence[str]],
        edges: Mapping[tuple[str, str], EdgeNote],
        caption: str,
    ) -> None:
        self._topology = topology
        self._notes, self._edges = nodes, edges
        self._box = self._box_size()
        width, height = self._unit_size()
        # y is negated, because y grows upwards in matplotlib and downwards in a layout.
        self._centres = {node: Point(x * width, -y * height) for node, (x, y) in layout(topology).points.items()}
        self._bends = {(e.source, e.target): self._bend(e) for e in topology.edges if e.source != e.target}
        left, right, low, high = self._bounds()
        self.figure = Figure(figsize=(right - left, high - low))
        # The axes fill the figure, because the saved file grows to include labels and the caption outside the axes.
        self._axes = self.figure.add_axes((0, 0, 1, 1))
        self._axes.set_xlim(left, right)
        self._axes.set_ylim(low, high)
        self._axes.axis("off")
        self._labels = Labels(self._axes, (1.0, 1.0))
        self._shapes = {node.name: self._shape(node) for node in topology.nodes}
        for node in topology.nodes:
            self._draw_node(node)
        for edge in topology.edges:
            self._draw_edge(edge)
        self._axes.text(left + _MARGIN, low - _MARGIN / 2, caption, fontsize=SMALL, color=CALM, va="top")

    # ---------------------------------------------------------------- sizes, in inches

    def _box_size(self) -> tuple[float, float]:
        """Return the size of all boxes, so that the widest text fits."""
        names = [text_size([node.name], NORMAL, bold=True) for node in self._topology.nodes]
        notes = [text_size(self._notes[node.name], SMALL) for node in self._topology.nodes]
        width = max(size[0] for size in names + notes) + 2 * _PADDING
        height = max(size[1] for size in names) + max(size[1] for size in notes) + 2 * _PADDING
        return max(width, _BOX_WIDTH_MIN), height

    def _unit_size(self) -> tuple[float, float]:
        """Return the distance between two places: a box, and room for the text between two boxes."""
        labels = [text_size(note.lines, SMALL, bold=note.is_loud) for note in self._edges.values() if note.lines]
        label_width = max((width for width, _ in labels), default=0.0)
        label_height = max((height for _, height in labels), default=0.0)
        loops = any(edge.source == edge.target for edge in self._topology.edges)
        height = self._box[1] + label_height + _GAP_HEIGHT + (_LOOP if loops else 0.0)
        return self._box[0] + label_width + _GAP_WIDTH, height

    def _bounds(self) -> tuple[float, float, float, float]:
        """Return left, right, low and high of all boxes and edges."""
        aside, up = (side / 2 + _MARGIN for side in self._box)
        points = [
            (at.x + x, at.y + y) for at in self._centres.values() for x in (-aside, aside + _POINT) for y in (-up, up)
        ]
        for edge in self._topology.edges:
            if edge.source == edge.target:
                points += self._loop(edge.source)[1]
            else:
                points += self._along(edge, _STEPS)
        xs, ys = [x for x, _ in points], [y for _, y in points]
        return min(xs), max(xs), min(ys), max(ys)

    # ---------------------------------------------------------------- nodes

    def _draw_node(self, node: NodeSpec) -> None:
        (x, y), (width, height) = self._centres[node.name], self._box
        self._axes.add_patch(self._shapes[node.name])
        if node.is_sink:
            corner = (x + width / 2 - _WALL, y - height / 2)
            self._axes.add_patch(Rectangle(corner, _WALL, height, fc=INK, ec=INK, lw=0.8, zorder=5))
        self._labels.keep_free((x, y), width, height)
        top = y + height / 2 - _PADDING
        self._axes.text(x, top, node.name, fontsize=NORMAL, weight="bold", color=INK, ha="center", va="top", zorder=6)
        below = top - text_size([node.name], NORMAL)[1]
        notes = "\n".join(self._notes[node.name])
        self._axes.text(x, below, notes, fontsize=SMALL, color=CALM, ha="center", va="top", linespacing=1.25, zorder=6)

    def _shape(self, node: NodeSpec) -> Patch:
        (x, y), (width, height) = self._centres[node.name], self._box
        left, right, low, high = x - width / 2, x + width / 2, y - height / 2, y + height / 2
        if node.is_source:
            corners = [(left, low), (right, low), (right + _POINT, y), (right, high), (left, high)]
            return Polygon(corners, fc=_SOURCE, ec=INK, lw=0.8, zorder=4)
        if node.is_sink:
            return Rectangle((left, low), width, height, fc=_SINK, ec=INK, lw=0.8, zorder=4)
        style = "round,pad=0,rounding_size=0.12"
        return FancyBboxPatch((left, low), width, height, boxstyle=style, fc=_OTHER, ec=INK, lw=0.8, zorder=4)

    # ---------------------------------------------------------------- edges

    def _draw_edge(self, edge: EdgeSpec) -> None:
        note = self._edges[edge.source, edge.target]
        colour, width = (RED, 1.8) if note.is_loud else (CALM, 0.9)
        if edge.source == edge.target:
            way, places = self._loop(edge.source)
            arrow = FancyArrowPatch(path=way)
        else:
            bend = self._bends[edge.source, edge.target]
            places = list(self._along(edge, _SHARES))
            ends = self._centres[edge.source], self._centres[edge.target]
            shapes = self._shapes[edge.source], self._shapes[edge.target]
            arrow = FancyArrowPatch(*ends, connectionstyle=f"arc3,rad={bend}", patchA=shapes[0], patchB=shapes[1])
        arrow.set(arrowstyle="-|>", mutation_scale=7 + 2 * width, color=colour, linewidth=width, zorder=3)
        self._axes.add_patch(arrow)
        if note.lines:
            is_optional = not note.is_loud and len(self._edges) > _LABELLED_EDGES_MAX
            text = "\n".join(note.lines)
            self._labels.write(text, places, colour, bold=note.is_loud, optional=is_optional)

    def _loop(self, node: str) -> tuple[Path, list[tuple[float, float]]]:
        """Return the path of an edge from a node to itself, and the places of its label."""
        (x, y), (width, height) = self._centres[node], self._box
        # Draw over the left half, because most edges leave to the right.
        middle, top, aside = x - width / 5, y + height / 2, width / 6
        turns = [(middle + share * aside, top + up) for share, up in ((-1, 0), (-2, _LOOP), (2, _LOOP), (1, 0))]
        return Path(turns, [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4]), [(middle, top + _LOOP)]

    def _bend(self, edge: EdgeSpec) -> float:
        others = [at for node, at in self._centres.items() if node not in (edge.source, edge.target)]
        meets = any((other.source, other.target) == (edge.target, edge.source) for other in self._topology.edges)
        bends = _BENDS_APART if meets else _BENDS
        half_width, half_height = (side / 2 + _PADDING for side in self._box)
        for bend in bends:
            way = list(_parabola(self._centres[edge.source], self._centres[edge.target], bend, _STEPS))
            if not any(abs(x - at.x) < half_width and abs(y - at.y) < half_height for at in others for x, y in way):
                return bend
        return bends[0]

    def _along(self, edge: EdgeSpec, shares: Sequence[float]) -> Iterator[tuple[float, float]]:
        bend = self._bends[edge.source, edge.target]
        return _parabola(self._centres[edge.source], self._centres[edge.target], bend, shares)


def _parabola(start: Point, stop: Point, bend: float, shares: Sequence[float]) -> Iterator[tuple[float, float]]:
    """Return points of an edge, in the shape of matplotlib's ``arc3``."""
    turn_x = (start.x + stop.x) / 2 + bend * (stop.y - start.y)
    turn_y = (start.y + stop.y) / 2 - bend * (stop.x - start.x)
    for share in shares:
        near, mid, far = (1 - share) ** 2, 2 * share * (1 - share), share**2
        yield near * start.x + mid * turn_x + far * stop.x, near * start.y + mid * turn_y + far * stop.y
