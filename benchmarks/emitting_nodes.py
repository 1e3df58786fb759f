"""The nodes of the peers benchmark: a keyed sum that sends one result for each record to a further node.

The module has few imports, because forked workers import it.
"""

from __future__ import annotations

import time
from typing import Any, Literal, NamedTuple

from benchmarks.keyed_nodes import Messages, RunningSum
from cutline import Context, Sink

#: One message a call; the source sends lists; or the source sends lists, and nodes get lists in `onMessages`.
Send = Literal["one", "list", "hook"]
SENDS: tuple[Send, ...] = ("one", "list", "hook")


class FreshMessages(Messages):
    """Sends bursts of (key, value) with new tuples, because a real source makes its records."""

    def send_round(self, context: Context) -> None:
        burst = self.bursts[self.rounds % len(self.bursts)]
        if self.is_single:
            for key, value in burst:
                context.send((key, value))
        else:
            context.sendAll([(key, value) for key, value in burst])


class EmittingSum(RunningSum):
    """Sends (key, sum so far) for each message."""

    def onMessage(self, message: Any, context: Context) -> None:
        key, value = message
        self.sums[key] = total = self.sums.get(key, 0) + value
        context.send((key, total))


class ListEmittingSum(RunningSum):
    """Sends (key, sum so far) for each message, and gets and sends lists."""

    def onMessages(self, messages: list[Any], context: Context) -> None:
        sums, results = self.sums, []
        for key, value in messages:
            sums[key] = total = sums.get(key, 0) + value
            results.append((key, total))
        context.sendAll(results)


class _Counter(Sink):
    """Counts results. State: when the last result arrived, and the count."""

    def __init__(self) -> None:
        self.ended_at = 0.0
        self.count = 0

    def onEnd(self, context: Context) -> None:
        self.ended_at = time.monotonic()

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return self.ended_at, self.count

    def restoreState(self, state: Any) -> None:
        self.ended_at, self.count = state


class Counted(_Counter):
    """Counts results one by one."""

    def onMessage(self, message: Any, context: Context) -> None:
        self.count += 1


class CountedLists(_Counter):
    """Counts results list by list."""

    def onMessages(self, messages: list[Any], context: Context) -> None:
        self.count += len(messages)


class Nodes(NamedTuple):
    """The nodes of one job."""

    source: FreshMessages
    sums: EmittingSum | ListEmittingSum
    results: Counted | CountedLists


def nodes_of(send: Send, seconds: float) -> Nodes:
    """Make the nodes of a job whose source sends for `seconds`."""
    source = FreshMessages(seconds, is_single=send == "one")
    return (
        Nodes(source, ListEmittingSum(), CountedLists()) if send == "hook" else Nodes(source, EmittingSum(), Counted())
    )
