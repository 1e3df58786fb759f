"""All values of a node that are visible from outside: its attributes, those of its class, and the variables it uses.

Values are packed, so that they do not change with the node. Values that cannot be packed, such as a connection, are
left out.
"""

from __future__ import annotations

import dis
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

from cutline.snapshot.channel.pickles import NotSerialisable
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.node import Node, Sink, Source
from cutline.snapshot.testing.payload import pack

#: Instructions that name a variable of the module.
_GLOBAL_INSTRUCTIONS = ("LOAD_GLOBAL", "STORE_GLOBAL", "LOAD_NAME")
#: Hooks that decide the content of a snapshot.
_SNAPSHOT_HOOKS = ("snapshotState", "restoreState")
#: Classes without values of the user.
_OURS = (Node, Source, Sink, object)


#: kinds of places that all instances of a class share
SHARED_KINDS = ("class attribute", "module variable")


class Spot(NamedTuple):
    """The place of a value of a node."""

    kind: str  #: "attribute", "class attribute" or "module variable"
    name: str

    @property
    def is_shared(self) -> bool:
        """Whether all instances share the value, and so all incarnations of a subtask."""
        return self.kind != "attribute"

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r}"


#: {place: packed value} of a node
NodeAttributes = dict[Spot, bytes]


def node_attributes(node: Node, codec: Codec) -> NodeAttributes:
    """Return the values of a node now, packed."""
    attributes: NodeAttributes = {}
    for spot, value in _values(node):
        try:
            attributes[spot] = pack(value, codec)
        except NotSerialisable:
            continue
    return attributes


def names_in_hooks(node: Node) -> list[str]:
    """Return the variables and attributes that `snapshotState` and `restoreState` name."""
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
    # A change that a sink makes outside of itself is its output.
    if not isinstance(node, Sink):
        yield from _variables(node)


def _variables(node: Node) -> Iterator[tuple[Spot, Any]]:
    """Yield the module variables that the hooks name."""
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
    """Return whether the value is a function, a class, a property or a module, which hold no state."""
    return callable(value) or hasattr(type(value), "__get__") or isinstance(value, ModuleType)


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield the code of a function, and of the functions inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _globals_in(code: CodeType) -> list[str]:
    found = (each.argval for each in dis.get_instructions(code) if each.opname in _GLOBAL_INSTRUCTIONS)
    return list(dict.fromkeys(found))
