"""Nodes and graphs for replays: whatever a node reads shows in its output, so a replay that differs breaks a chain."""

from __future__ import annotations

from ast import literal_eval
from collections import defaultdict
from collections.abc import Iterable
from hashlib import blake2b
from itertools import pairwise
from typing import Any

import pyarrow as pa

from cutline import END, Context, Graph, Node, ReplayableSource, keyGroup
from cutline.snapshot.modes.steps.determinants import decode_step
from cutline.snapshot.stored.own_changes import decode_changes
from cutline.snapshot.stored.part import decode_part
from cutline.snapshot.testing.history import History
from cutline.testing import ListSink

SCHEMA = pa.schema({"word": pa.string(), "number": pa.int64()})


class Slices(ReplayableSource):
    """Sends the numbered words of each partition, some at a time, as rows or in batches."""

    def __init__(
        self, sizes: dict[str, int], most: int = 2, *, as_batches: bool = False, endless: bool = False
    ) -> None:
        self.sizes = sizes
        self.most = most
        self.as_batches = as_batches
        self.endless = endless

    def partitions(self) -> list[str]:
        return sorted(self.sizes)

    def first(self, partition: str) -> int:
        return 0

    def available(self, partition: str, start: int) -> Any:
        end = self.sizes[partition]
        if start == end:
            return None if self.endless else END
        return min(start + self.most, end)

    def read(self, partition: str, start: int, stop: int, context: Context) -> None:
        rows = [{"word": f"{partition}{number % 3}", "number": number} for number in range(start, stop)]
        if self.as_batches:
            context.send(pa.RecordBatch.from_pylist(rows, SCHEMA))
        else:
            context.sendAll([(row["word"], row["number"]) for row in rows])


def digest(before: str, what: str, now: float, chance: float) -> str:
    """A link of the chain."""
    return blake2b(f"{before}|{what}|{now}|{chance}".encode(), digest_size=8).hexdigest()


class Chained(Node):
    """Sends, for each call of a hook, a link that depends on all calls before. Its attributes are stored nowhere."""

    deterministic = True

    def __init__(self) -> None:
        self.count = 0
        self.link = ""

    def open(self, context: Context) -> None:
        self.last = context.getValueState("last", ttl=0.4)
        self.seen = context.getReducingState("seen", "count")

    def note(self, what: object, context: Context, messages: int = 0) -> None:
        """Send the next link, which stands for so many messages."""
        chance, before = context.random.random(), self.link
        self.count += 1
        self.link = digest(before, repr(what), context.now, chance)
        context.send((str(context.subtask), self.count, repr(what), context.now, chance, self.link, messages))


class Each(Chained):
    """Takes messages one by one, sets timers, and reads states of its keys."""

    def open(self, context: Context) -> None:
        super().open(context)
        self.context = context

    def onStart(self, context: Context) -> None:
        self.note("start", context)

    def onMessage(self, message: tuple[str, int], context: Context) -> None:
        self.seen.add(1)
        context.registerTimer(context.now + 0.05 * (message[1] % 3))
        self.note((message, self.last.get(), self.seen.get(), str(context.sender)), context, 1)
        self.last.update(message[1])

    def onTimer(self, at: float, context: Context) -> None:
        self.note(("timer", at, context.key, self.seen.get()), context)

    def onEnd(self, context: Context) -> None:
        self.note(("end", context.inputs), context)

    def onPublished(self, snapshotId: int) -> None:
        if self.context.inputs:  # an ended node must not send
            self.note("published", self.context)


class Lists(Chained):
    """Takes messages in lists."""

    def onMessages(self, messages: list[tuple[str, int]], context: Context) -> None:
        self.note((messages, context.keys), context, len(messages))


class Batches(Chained):
    """Takes messages in batches."""

    def onBatch(self, batch: pa.RecordBatch, context: Context) -> None:
        self.note(batch.to_pylist(), context, batch.num_rows)


class Keyed(Node):
    """Sends a chain for each key, from keyed state; sets timers of the key."""

    deterministic = True

    def open(self, context: Context) -> None:
        self.chain = context.getValueState("chain")
        self.last = context.getValueState("last", ttl=0.4)

    def note(self, what: object, context: Context, messages: int = 0) -> None:
        """Send the next link of the key."""
        count, before = self.chain.get() or (0, "")
        chance = context.random.random()
        link = digest(before, repr(what), context.now, chance)
        self.chain.update((count + 1, link))
        context.send((str(context.key), count + 1, repr(what), context.now, chance, link, messages))

    def onMessage(self, message: tuple[str, int], context: Context) -> None:
        context.registerTimer(context.now + 0.05 * (message[1] % 3))
        self.note((message, self.last.get(), str(context.sender)), context, 1)
        self.last.update(message[1])

    def onTimer(self, at: float, context: Context) -> None:
        self.note(("timer", at, self.last.get()), context)


class KeyedLists(Node):
    """Sends a chain for each key, from keyed state; takes messages in lists, so that a call changes many rows."""

    deterministic = True

    def open(self, context: Context) -> None:
        self.chain = context.getValueState("chain")

    def onMessages(self, messages: list[tuple[str, int]], context: Context) -> None:
        for key, number in messages:
            [before] = self.chain.getAll([key])
            count, link = before or (0, "")
            chance = context.random.random()
            link = digest(link, repr(number), context.now, chance)
            self.chain.updateAll([key], [(count + 1, link)])
            self.chain.updateAll([f"{key}/{number % 7}", f"{key}+{number % 5}"], [number, number])
            context.send((key, count + 1, repr(number), context.now, chance, link, 1))


class Divided(Node):
    """Sends a chain for each key, from own state in deltas by partitions."""

    deterministic = True
    partitioned = True

    def __init__(self) -> None:
        self.chains: dict[str, tuple[int, str]] = {}
        self.changed: dict[str, None] = {}

    def onMessage(self, message: tuple[str, int], context: Context) -> None:
        key = message[0]
        count, before = self.chains.get(key, (0, ""))
        chance = context.random.random()
        link = digest(before, repr(message), context.now, chance)
        self.chains[key] = (count + 1, link)
        self.changed[key] = None
        context.send((key, count + 1, repr(message), context.now, chance, link, 1))

    def _pairs(self, keys: Iterable[str]) -> list[tuple[int, bytes]]:
        return [(keyGroup(key), repr((key, *self.chains[key])).encode()) for key in keys]

    def snapshotState(self, snapshotId: int, timestamp: float) -> list[tuple[int, bytes]]:
        self.changed = {}
        return self._pairs(self.chains)

    def restoreState(self, state: list[tuple[int, bytes]] | None) -> None:
        self.chains = {}
        self.applyDelta(state or [])

    def snapshotDelta(self, sinceSnapshotId: int) -> list[tuple[int, bytes]] | None:
        changed, self.changed = self.changed, {}
        return self._pairs(changed) or None

    def applyDelta(self, delta: list[tuple[int, bytes]]) -> None:
        for _, stored in delta:
            key, count, link = literal_eval(stored.decode())
            self.chains[key] = (count, link)


class Relay(Node):
    """Passes messages on."""

    deterministic = True

    def onMessage(self, message: Any, context: Context) -> None:
        context.send(message)


def word_of(message: tuple[str, int]) -> str:
    """The key of a message."""
    return message[0]


def chained(node: Node, sizes: dict[str, int], *, as_batches: bool = False, endless: bool = False) -> Graph:
    """A diamond: slices, two relays, and a node that takes what comes from both."""
    graph = Graph("chained").add("slices", Slices(sizes, as_batches=as_batches, endless=endless), parallelism=2)
    graph.add("node", node, parallelism=2).add("out", ListSink())
    if as_batches:
        return graph.connect("slices", "node", key="word", schema=SCHEMA).connect("node", "out")
    graph.add("left", Relay(), parallelism=2).add("right", Relay())
    graph.connect("slices", "left").connect("slices", "right")
    graph.connect("left", "node", key=word_of).connect("right", "node", key=word_of)
    return graph.connect("node", "out")


#: Subtask, number of the link, what was noted, time, chance, link, number of messages.
Link = tuple[str, int, str, float, float, str, int]


def chain_problems(rows: Iterable[Link]) -> list[str]:
    """What is wrong with the links that came out: lost, doubled, or of two different histories."""
    chains: dict[str, list[Link]] = defaultdict(list)
    for row in rows:
        chains[row[0]].append(row)
    problems = []
    for subtask, links in chains.items():
        links.sort(key=lambda link: link[1])
        numbers = [link[1] for link in links]
        if numbers != list(range(1, len(numbers) + 1)):
            problems.append(f"{subtask}: links {numbers}")
            continue
        for before, (_, number, what, now, chance, link, _) in pairwise([("", 0, "", 0.0, 0.0, "", 0), *links]):
            if digest(before[5], what, now, chance) != link:
                problems.append(f"{subtask}: link {number} does not follow the link before it")
                break
    return problems


def steps_of(history: History) -> list[list[Any]]:
    """The determinants in the newest snapshot, step by step."""
    handles = [
        handle
        for snapshot in history.snapshots[-1:]
        for record in snapshot.manifest.records
        for handle in record.steps or ()
    ]
    bodies = [decode_part(handle, handle.inline or b"") for handle in handles]  # small, so inside the manifest
    return [decode_step(step, "") for body in bodies for _, step in decode_changes(body, "")]
