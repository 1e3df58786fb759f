"""Programs whose values are stored by one and read by another: the source of their classes, and their codecs.

Each program is a main module of its own, run beside the others in one process. No program can import the classes of
another, and the bytes alone pass from one to the next, as from one process to another.
"""

from __future__ import annotations

from textwrap import dedent
from typing import Any

from cutline import Graph
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.plan.compiled_graph import build

_HEAD = """
import enum, functools, typing
from collections import namedtuple
from dataclasses import dataclass, field
from cutline import Node, Source
"""

#: The node refers to everything that stands in the source before it.
_TAIL = """
class Keeper(Node):
    def open(self, context): self.known = [{names}]
"""


class Program:
    """A main module with classes, and a graph whose node refers to them.

    Parameters
    ----------
    source : str
        Source of the classes and functions.
    names : str
        Names that the node refers to, separated by commas.
    aliases : dict
        ``{stored name: expression of what it stands for}``.
    """

    def __init__(self, source: str, names: str, **aliases: str) -> None:
        self.names: dict[str, Any] = {"__name__": "__main__"}
        text = _HEAD + dedent(source) + _TAIL.format(names=names)
        exec(compile(text, "<program>", "exec", dont_inherit=True), self.names)
        self.graph = Graph("g").add("keeper", self.names["Keeper"]())
        for stored, now in aliases.items():
            self.graph.alias(stored, self.value(now))
        self.codec = Codec(names=build(self.graph, "unaligned").program_names())

    def value(self, expression: str) -> Any:
        """Return the value of an expression in the program."""
        return eval(expression, self.names)
