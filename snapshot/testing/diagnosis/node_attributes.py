"""All values of a node that can be seen from outside: its attributes, those of its class, the variables it uses.

Values are packed, so that a portrait does not change with the node. What cannot be packed, such as a connection, is
left out.
"""

from __future__ import annotations

import dis
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

from snapshot.channel.extensions import NotSerialisable
from snapshot.channel.serialization import Codec
from snapshot.node import Node, Sink, Source
from snapshot.testing.payload import pack

#: Instructions that name a variable of the module.
_GLOBAL_INSTRUCTIONS = ("LOAD_GLOBAL", "STORE_GLOBAL", "LOAD_NAME")
#: Hooks that say what is in a snapshot.
_SNAPSHOT_HOOKS = ("snapshotState", "restoreState")
#: Classes that hold nothing of the user's.
_OURS = (Node, Source, Sink, object)


class Spot(NamedTuple):
    """Where a value of a node is kept."""

    kind: str  #: "attribute", "class attribute" or "module variable"
    name: str

    @property
    def is_shared(self) -> bool:
        """All instances have it in common, and so do all lives of a subtask."""
        return self.kind != "attribute"

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r}"


#: What a node keeps, packed.
NodeAttributes = dict[Spot, bytes]


def node_attributes(node: Node, codec: Codec) -> NodeAttributes:
    """What a node keeps now."""
    attributes: NodeAttributes = {}
    for spot, value in _values(node):
        try:
            attributes[spot] = pack(value, codec)
        except NotSerialisable:
            continue
    return attributes


def names_in_hooks(node: Node) -> list[str]:
    """The variables and attributes that `snapshotState` and `restoreState` name."""
    found: list[str] = []
    for function in _functions(node):
        if function.__name__ in _SNAPSHOT_HOOKS:
            found += [name for code in _codes(function.__code__) for name in code.co_names]
    return found


def _values(node: Node) -> Iterator[tuple[Spot, Any]]:
    own = vars(node)
    for name, value in own.items():
        yield Spot("attribute", name), value
    for cls in _classes(node):
        for name, value in vars(cls).items():
            if not name.startswith("__") and name not in own and not _is_code(value):
                yield Spot("class attribute", name), value
    # What a sink changes outside of itself is its output.
    if not isinstance(node, Sink):
        yield from _variables(node)


def _variables(node: Node) -> Iterator[tuple[Spot, Any]]:
    """Variables of the modules around the hooks, which these name."""
    for function in _functions(node):
        for code in _codes(function.__code__):
            for name in _globals_in(code):
                value = function.__globals__.get(name)
                if value is not None and not _is_code(value):
                    yield Spot("module variable", name), value


def _classes(node: Node) -> list[type]:
    return [cls for cls in type(node).__mro__ if cls not in _OURS]


def _functions(node: Node) -> list[FunctionType]:
    return [value for cls in _classes(node) for value in vars(cls).values() if isinstance(value, FunctionType)]


def _is_code(value: object) -> bool:
    """It is a function, a class, a property, a module: nothing that holds state."""
    return callable(value) or hasattr(type(value), "__get__") or isinstance(value, ModuleType)


def _codes(code: CodeType) -> Iterator[CodeType]:
    """A function's code and that of the functions inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _globals_in(code: CodeType) -> list[str]:
    found = (each.argval for each in dis.get_instructions(code) if each.opname in _GLOBAL_INSTRUCTIONS)
    return list(dict.fromkeys(found))
