"""A node that passes tokens on, of which random graphs are made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from snapshot.node import Context, Node

#: The node to which a token goes when it has made all its hops.
OUT = "out"


class Relay(Node):
    """Passes a token on with one hop less, by a way that depends on the token alone; at the last hop to `OUT`.

    Parameters
    ----------
    tokens : sequence of int
        Those that it starts with: the hops that each has to make.
    """

    def __init__(self, tokens: Sequence[int] = ()) -> None:
        self.tokens = list(tokens)
        #: tokens that came through
        self.handled = 0

    def onStart(self, context: Context) -> None:
        for token in self.tokens:
            self._pass(token, context)

    def onMessage(self, token: Any, context: Context) -> None:
        self.handled += 1
        self._pass(token, context)

    def _pass(self, token: int, context: Context) -> None:
        ways = [name for name in context.outputs if name != OUT]
        if token > 0 and ways:
            context.send(token - 1, to=ways[token % len(ways)])
        else:
            context.send(token, to=OUT)

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return self.handled

    def restoreState(self, state: Any) -> None:
        self.handled = state
