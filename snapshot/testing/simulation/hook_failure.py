"""Makes one hook of a user's node raise, once, without a trace in the node's own attributes."""

from __future__ import annotations

from typing import Any

from snapshot.node import Node


class InjectedFailure(Exception):
    """Raised by a simulation where the user's code could have raised."""


def inject_hook_failure(node: Node, hook: str) -> None:
    """Have `hook` raise when it is called next.

    The class of this one instance is exchanged until then: what `snapshotState` sees of the node stays as it is.
    """
    real: Any = type(node)

    def raise_once(self: Any, *_: Any) -> None:
        self.__class__ = real
        raise InjectedFailure(f"a simulated failure of {hook}")

    members = {hook: raise_once, "__slots__": (), "__module__": real.__module__, "__qualname__": real.__qualname__}
    node.__class__ = type(real.__name__, (real,), members)
