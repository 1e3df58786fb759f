"""Jobs that are restored with one parallelism after another, in the simulator, and what must hold at their end.

::

    keyed    records ─by key─> first ─by key, some by name─> second ─rebalance─> out
    mixed    records ─forward─> relay ─rebalance─> named ─directed─> spin ─by key─> echo ─by key─> spin
             spin ─forward─> out
    copied   records ─broadcast─> probes ─rebalance or forward─> alarms ─rebalance─> out

Every record is numbered within its key. `first` and `second` keep the last number of each key as keyed state, and so
see each record that is lost, doubled or overtaken. In `mixed` messages go round a cycle. In `copied` each subtask of
`probes` sees each record once for each of its key groups.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from msgpack import packb, unpackb

from cutline import END, Context, Graph, Node, Sink, Source, Subtask
from cutline.snapshot.node import End
from cutline.snapshot.plan.topology import KEY_GROUPS

#: Parallelism of all nodes, or of each.
Levels = int | Mapping[str, int]


class Record(NamedTuple):
    """A message: its key and its number within the key."""

    key: str
    number: int


class Records(Source):
    """Sends `count` records of each key. A partition has two keys."""

    guarantee = "exactly_once"

    def __init__(self, partitions: int = 3, count: int = 10) -> None:
        self.names = [f"part{each}" for each in range(partitions)]
        self.count = count
        self.offsets: dict[str, int] = {}

    def partitions(self) -> list[str]:
        return self.names

    def restoreState(self, state: dict[str, int]) -> None:
        self.offsets = dict(state)

    def poll(self, context: Context) -> float | End | None:
        for name in context.partitions:
            at = self.offsets.get(name, 0)
            if at < 2 * self.count:
                self.offsets[name] = at + 1
                context.send((f"{name}/{at % 2}", at // 2))
                return None
        return END

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return dict(self.offsets)


class InOrder(Node):
    """Passes records on, with a complaint about each that is not the next of its key.

    Parameters
    ----------
    target : str, optional
        Node whose last subtask, by its name, gets a word about some records, along the edge that is divided by key.
    parallelism : int, optional
        Parallelism of `target`.
    """

    def __init__(self, target: str = "", parallelism: int = 1) -> None:
        self.target = target
        self.parallelism = parallelism

    def open(self, context: Context) -> None:
        self.last = context.getValueState("last")

    def onMessage(self, message: Any, context: Context) -> None:
        key, number = message[0], message[1]
        due = (self.last.get() or 0) if self.last.exists() else 0
        wrong = () if number == due else (f"{context.subtask}: {key} {number} came, {due} was due",)
        self.last.update(number + 1)
        context.send((*message, *wrong))
        if self.target and number % NAMED_EVERY == NAMED_EVERY - 1:
            context.send((key, number, NAMED), Subtask(self.target, self.parallelism - 1))


#: Mark of a message that was sent to a named subtask, and how many records of a key have one.
NAMED, NAMED_EVERY = "named", 3

#: Mark of a message that a timer sent; seconds between two timers of a key, and a time to live.
RANG, TICK, TTL = "rang", 0.02, 0.05


class Timed(InOrder):
    """As `InOrder`, with a timer for each record, and a value that is absent after a while.

    A message to a named subtask touches no state, because its key may belong to another subtask.
    """

    def open(self, context: Context) -> None:
        super().open(context)
        self.written = context.getValueState("written")
        self.fresh = context.getValueState("fresh", ttl=TTL)

    def onMessage(self, message: Any, context: Context) -> None:
        if message[-1] == NAMED:
            context.send(message)
            return
        super().onMessage(message, context)
        written, fresh = self.written.get(), self.fresh.get()
        is_due = written is not None and context.now - written < TTL
        if (fresh is not None) != is_due or (fresh is not None and fresh != message[1] - 1):
            context.send((*message, f"{context.subtask}: {fresh} of {written} at {context.now}"))
        self.written.update(context.now)
        self.fresh.update(message[1])
        context.registerTimer(TICK * (message[1] + 1))

    def onTimer(self, at: float, context: Context) -> None:
        context.send((context.key, round(at / TICK) - 1, RANG))


class Out(Sink):
    """Gathers records. What was committed is in `COMMITTED`, by token, because a commit may be repeated."""

    def __init__(self, run: str) -> None:
        self.run = run
        self.rows: list[Any] = []

    def open(self, context: Context) -> None:
        self.token = f"{context.subtask}/{context.incarnation}"

    def onMessage(self, message: Any, context: Context) -> None:
        self.rows.append(message)

    def prepareCommit(self, snapshotId: int) -> Any:
        rows, self.rows = self.rows, []
        return [f"{self.token}/{snapshotId}", rows] if rows else None

    def commit(self, snapshotId: int, prepared: Any) -> None:
        token, rows = prepared
        assert COMMITTED.setdefault(self.run, {}).setdefault(token, rows) == rows, token


#: {run: {token: rows}}, outside the nodes, because several simulations make one run
COMMITTED: dict[str, dict[str, list[Any]]] = {}


def committed(run: str) -> Counter[tuple[Any, ...]]:
    """The rows that a run has committed."""
    return Counter(tuple(row) for rows in COMMITTED.get(run, {}).values() for row in rows)


def _level(levels: Levels, node: str) -> int:
    return levels if isinstance(levels, int) else levels[node]


def keyed(levels: Levels, *, run: str = "keyed", partitions: int = 3, count: int = 10) -> Graph:
    """Keyed state and timers behind keyed edges, and messages to named subtasks on one of these."""
    graph = Graph(run).add("records", Records(partitions, count), parallelism=_level(levels, "records"))
    graph.add("first", InOrder("second", _level(levels, "second")), parallelism=_level(levels, "first"))
    graph.add("second", Timed(), parallelism=_level(levels, "second"))
    graph.add("out", Out(run), parallelism=_level(levels, "out"))
    graph.connect("records", "first", key=first_field).connect("first", "second", key=first_field)
    return graph.connect("second", "out", partitioning="rebalance")


class Relay(Node):
    """Passes messages on."""

    def onMessage(self, message: Any, context: Context) -> None:
        context.send(message)


class Named(Node):
    """Names the subtask that is to get a message, by its number."""

    def __init__(self, parallelism: int) -> None:
        self.parallelism = parallelism

    def onMessage(self, message: Any, context: Context) -> None:
        context.send(message, Subtask("spin", message[1] % self.parallelism))


class Spin(Node):
    """Sends each message round the cycle twice, and then out."""

    def onMessage(self, message: Any, context: Context) -> None:
        rounds = message[2] if len(message) > 2 else 0
        if rounds == 2:
            context.send(message[:2], "out")
        else:
            context.send((*message[:2], rounds + 1), "echo")


def mixed(levels: Levels, *, run: str = "mixed", partitions: int = 3, count: int = 10) -> Graph:
    """Edges of other partitionings, and a cycle."""
    graph = Graph(run).add("records", Records(partitions, count), parallelism=_level(levels, "records"))
    spin = _level(levels, "spin")
    nodes = {"relay": Relay(), "named": Named(spin), "spin": Spin(), "echo": Relay(), "out": Out(run)}
    for name, node in nodes.items():
        graph.add(name, node, parallelism=_level(levels, name))
    graph.connect("records", "relay", partitioning="forward").connect("relay", "named", partitioning="rebalance")
    graph.connect("named", "spin", partitioning="directed").connect("spin", "echo", key=first_field)
    graph.connect("echo", "spin", key=first_field)
    return graph.connect("spin", "out", partitioning="forward")


#: Key groups at which `Probes` look, as a key would have them.
PROBED = tuple(range(0, KEY_GROUPS, KEY_GROUPS // 4))


class Probes(Node):
    """Sends each copy of a record on, once for each probed key group of the subtask, with a complaint as `InOrder`.

    Numbers are kept for each probed group and key, as own state by partitions.
    """

    partitioned = True

    def __init__(self) -> None:
        self.last: dict[int, dict[str, int]] = {}

    def open(self, context: Context) -> None:
        self.groups = [group for group in PROBED if group in context.keyGroups]

    def onMessage(self, message: Any, context: Context) -> None:
        key, number = message
        for group in self.groups:
            last = self.last.setdefault(group, {})
            due = last.get(key, 0)
            wrong = () if number == due else (f"{context.subtask}: {key} {number} came, {due} was due",)
            last[key] = number + 1
            context.send((key, number, group, *wrong))

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return [(group, packb(last)) for group, last in self.last.items()]

    def restoreState(self, state: Sequence[tuple[int, bytes]]) -> None:
        self.last = {group: unpackb(body) for group, body in state or ()}


class Alarms(Node):
    """Sends each message when its timer fires, which belongs to no key; counts in a state of its own."""

    partitioned = True

    def __init__(self) -> None:
        self.count = 0

    def onMessage(self, message: Any, context: Context) -> None:
        self.count += 1
        context.send(message)
        key, number, group = message[:3]
        place = int(key[4]) * 2 + int(key[6])
        # Each message has a time of its own, because a subtask has one timer for a time.
        context.registerTimer((number + 1) * TICK + place / 1024 + PROBED.index(group) / 16384)

    def onTimer(self, at: float, context: Context) -> None:
        context.send((RANG, round(at * 16384)))

    def onEnd(self, context: Context) -> None:
        context.send((COUNTED, self.count))

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return [(self.groups.start, packb(self.count))]

    def open(self, context: Context) -> None:
        self.groups = context.keyGroups

    def restoreState(self, state: Sequence[tuple[int, bytes]]) -> None:
        self.count = sum(unpackb(body) for _, body in state or ())


#: Mark of a row that counts messages; the counts of all subtasks make a sum.
COUNTED = "counted"


def copied(
    levels: Levels, *, run: str = "copied", partitions: int = 3, count: int = 10, is_forward: bool = False
) -> Graph:
    """Copies for all subtasks, own state by key groups, and timers without a key."""
    graph = Graph(run).add("records", Records(partitions, count), parallelism=_level(levels, "records"))
    for name, node in {"probes": Probes(), "alarms": Alarms(), "out": Out(run)}.items():
        graph.add(name, node, parallelism=_level(levels, name))
    graph.connect("records", "probes", partitioning="broadcast")
    graph.connect("probes", "alarms", partitioning="forward" if is_forward else "rebalance")
    return graph.connect("alarms", "out", partitioning="rebalance")


def due(partitions: int = 3, count: int = 10) -> Counter[tuple[Any, ...]]:
    """The records of a job, each once."""
    return Counter((f"part{p}/{k}", n) for p in range(partitions) for k in range(2) for n in range(count))


def due_keyed(partitions: int, count: int) -> Counter[tuple[Any, ...]]:
    """What `keyed` commits."""
    records = due(partitions, count)
    rang = Counter((*record, RANG) for record in records)
    return records + rang + Counter((*record, NAMED) for record in records if record[1] % NAMED_EVERY == 2)


def due_copied(partitions: int, count: int) -> Counter[tuple[Any, ...]]:
    """What `copied` commits."""
    rows = Counter((*record, group) for record in due(partitions, count) for group in PROBED)
    return rows + Counter((RANG, _alarm(*row)) for row in rows) + Counter({(COUNTED, len(rows)): 1})


def _alarm(key: str, number: int, group: int) -> int:
    place = int(key[4]) * 2 + int(key[6])
    return round(((number + 1) * TICK + place / 1024 + PROBED.index(group) / 16384) * 16384)


def summed(rows: Counter[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    """Rows with one sum in the place of the counts of all subtasks."""
    total = sum(row[1] * times for row, times in rows.items() if row[0] == COUNTED)
    found = Counter({row: times for row, times in rows.items() if row[0] != COUNTED})
    return found + Counter({(COUNTED, total): 1}) if total else found


class Job(NamedTuple):
    """A job of the campaign."""

    graph: Callable[..., Graph]
    due: Callable[[int, int], Counter[tuple[Any, ...]]]
    #: names of the nodes; those of one tuple have one parallelism, because forward edges join them
    nodes: tuple[tuple[str, ...], ...]


JOBS = {
    "keyed": Job(keyed, due_keyed, (("records",), ("first",), ("second",), ("out",))),
    "mixed": Job(mixed, due, (("records", "relay"), ("named",), ("echo",), ("spin", "out"))),
    "copied": Job(copied, due_copied, (("records",), ("probes", "alarms"), ("out",))),
}


def first_field(message: Any) -> Any:
    """The key of a record."""
    return message[0]
