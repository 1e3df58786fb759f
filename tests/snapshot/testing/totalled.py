"""Graphs whose totals lie in stores, and a judge who knows which items count at each moment.

The monoid keeps the items themselves. So the judge sees at each commit whether the totals are those of all items below
one vector of offsets, in all keys, subtasks and stores at once.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa
import pytest

from cutline import END, Context, Graph, MemoryStore, Node, ReplayableSource
from cutline.snapshot.coordinator.restart_policy import RestartPolicy
from cutline.snapshot.errors import Fenced
from cutline.snapshot.modes.totals.ledger import TotalsLedger, TotalsTask
from cutline.snapshot.operators.aggregate_store import StoreClaim
from cutline.snapshot.operators.monoid import Monoid
from cutline.snapshot.operators.persistent_aggregate import PersistentAggregate
from cutline.snapshot.plan.modes import MARKERS, ModeWish
from cutline.snapshot.subtask.machine import SubtaskMachine
from cutline.snapshot.subtask.strand import DifferenceCaptured
from cutline.snapshot.testing.checking.verdict import CheckFailed
from cutline.snapshot.testing.history import History
from cutline.snapshot.testing.simulation.kept_totals import KeptTotals
from cutline.snapshot.testing.simulation.totals import SimulatedStore, StoreConnection
from cutline.snapshot.testing.simulator import Mutation
from cutline.snapshot.testing.steps import Step
from cutline.testing import Odds, Simulator

#: A partition and the number of an item in it; or the name of a node and 0, for what it sends at an end.
Item = tuple[str, int]

SCHEMA = pa.schema({"partition": pa.string(), "number": pa.int64()})
_ENDS = "end of "

#: Even, so that messages share frames.
_SEED = 2


class Multiset(Monoid):
    """Keeps all values, with how often each came."""

    def zero(self) -> tuple[Any, ...]:
        return ()

    def unit(self, value: Item) -> tuple[Any, ...]:
        return ((value, 1),)

    def plus(self, a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(sorted((Counter(dict(a)) + Counter(dict(b))).items()))


def fanned_out(item: Item) -> list[tuple[str, Item]]:
    """Return the messages of an item to the aggregates: several keys, so that several subtasks."""
    partition, number = item
    return [(key, item) for key in (partition, f"mod {number % 3}", f"mod {(number + 1) % 3}")]


class Items(ReplayableSource):
    """Sends the numbered items of each partition, some at a time. A partition may be idle for some polls."""

    def __init__(self, sizes: Mapping[str, int], most: int = 2, idle: Mapping[str, int] | None = None) -> None:
        self.sizes = dict(sizes)
        self.most = most
        #: {partition: polls that find nothing, before the last item}
        self.idle = dict(idle or {})

    def partitions(self) -> list[str]:
        return sorted(self.sizes)

    def first(self, partition: str) -> int:
        return 0

    def available(self, partition: str, start: int) -> Any:
        end = self.sizes[partition]
        if start == end:
            return END
        if start == end - 1 and self.idle.get(partition, 0) > 0:
            self.idle[partition] -= 1
            return None
        return min(start + self.most, max(end - 1, start + 1))

    def read(self, partition: str, start: int, stop: int, context: Context) -> None:
        self.pass_on([(partition, number) for number in range(start, stop)], context)

    def pass_on(self, items: list[Item], context: Context) -> None:
        """Send items to relays."""
        context.sendAll(items)


class FannedItems(Items):
    """Sends to the aggregates, without relays."""

    def pass_on(self, items: list[Item], context: Context) -> None:
        for item in items:
            for message in fanned_out(item):
                context.send(message)


class Relay(Node):
    """Passes items on, one by one."""

    def onMessage(self, item: Item, context: Context) -> None:
        context.send(item)


class ListRelay(Node):
    """Passes lists on."""

    def onMessages(self, items: Any, context: Context) -> None:
        context.sendAll(list(items))


class BatchRelay(Node):
    """Passes batches on."""

    def onBatch(self, batch: pa.RecordBatch, context: Context) -> None:
        context.send(batch)


class Rows(Items):
    """Sends rows, which the schema of an edge makes batches of."""

    def pass_on(self, items: list[Item], context: Context) -> None:
        context.sendAll([dict(zip(SCHEMA.names, item, strict=True)) for item in items])


class FanOut(Node):
    """Sends each item to the aggregates, by several keys. At the end of an edge it sends its own name, once."""

    def onMessage(self, item: Any, context: Context) -> None:
        context.sendAll(fanned_out(tuple(item.values()) if isinstance(item, dict) else item))

    def onEnd(self, context: Context) -> None:
        assert context.sender is not None
        context.send(("ends", (f"{_ENDS}{context.sender.node} at {context.subtask}", 0)))


def first(message: tuple[str, Item]) -> str:
    """Return the key of a message."""
    return message[0]


def second(message: tuple[str, Item]) -> Item:
    """Return the value of a message."""
    return message[1]


@dataclass(frozen=True)
class Shape:
    """What a graph with totals is made of."""

    #: {source: its partitions and their sizes}
    sources: Mapping[str, Mapping[str, int]]
    relays: tuple[type[Node], ...] = ()
    #: aggregates, and the parallelism of each
    aggregates: Mapping[str, int] = field(default_factory=lambda: {"sums": 2})
    parallelism: int = 1
    most: int = 2
    idle: Mapping[str, int] = field(default_factory=dict)
    relay_parallelism: int | None = None  #: None: as that of the sources
    #: whether each aggregate has sources of its own; without relays
    is_apart: bool = False

    def graph(self, name: str = "totalled") -> Graph:
        """Build the graph."""
        graph = Graph(name)
        kind = Rows if BatchRelay in self.relays else Items if self.relays else FannedItems
        schema = SCHEMA if kind is Rows else None
        for source, sizes in self.sources.items():
            graph.add(source, kind(sizes, self.most, self.idle), parallelism=min(len(sizes), self.parallelism))
        before = list(self.sources)
        for number, relay in enumerate(self.relays):
            graph.add(f"relay{number}", relay(), parallelism=self._of_relays)
            for each in before:
                graph.connect(each, f"relay{number}", partitioning="rebalance", schema=schema)
            before = [f"relay{number}"]
        for aggregate, parallelism in self.aggregates.items():
            graph.add(aggregate, PersistentAggregate(Multiset(), MemoryStore(), second), parallelism=parallelism)
            for each in self.sources_of(aggregate) if self.is_apart else before:
                graph.connect(each, aggregate, key=first)
        return graph

    def sources_of(self, aggregate: str) -> list[str]:
        """Return the sources whose items an aggregate gets."""
        every = len(self.aggregates) if self.is_apart else 1
        return list(self.sources)[list(self.aggregates).index(aggregate) % every :: every]

    def partitions_of(self, aggregate: str) -> list[str]:
        """Return the partitions whose items an aggregate gets."""
        return [partition for source in self.sources_of(aggregate) for partition in self.sources[source]]

    @property
    def _of_relays(self) -> int:
        return self.relay_parallelism or self.parallelism

    @property
    def sizes(self) -> dict[str, int]:
        """Number of items by partition."""
        return {partition: size for sizes in self.sources.values() for partition, size in sizes.items()}

    def totals(self, aggregate: str) -> list[tuple[str, Any]]:
        """Return the totals of an aggregate at the end."""
        found: defaultdict[str, Counter[Item]] = defaultdict(Counter)
        for partition in self.partitions_of(aggregate):
            for number in range(self.sizes[partition]):
                for key, item in fanned_out((partition, number)):
                    found[key][item] += 1
        if self.relays:
            before = [f"relay{len(self.relays) - 2}"] if len(self.relays) > 1 else list(self.sources)
            last = f"relay{len(self.relays) - 1}"
            subtasks = [f"{last}[{index}]" for index in range(self._of_relays)]
            found["ends"] = Counter((f"{_ENDS}{source} at {at}", 0) for source in before for at in subtasks)
        return sorted(((key, tuple(sorted(items.items()))) for key, items in found.items()), key=repr)


#: Offsets by partition, and which ends were sent.
Clock = tuple[tuple[str, int], ...]


def clock_of(totals: Mapping[str, Any]) -> Clock:
    """Return the offsets below which all items count, and no others.

    Raises
    ------
    CheckFailed
        if an item counts in some of its keys only, or twice, or behind one that does not count.
    """
    counts: Counter[tuple[str, Item]] = Counter()
    for key, state in totals.items():
        counts.update({(key, item): count for item, count in state})
    items = {item: None for _, item in counts if not item[0].startswith(_ENDS)}
    due = Counter(message for item in items for message in fanned_out(item))
    found = Counter({at: count for at, count in counts.items() if not at[1][0].startswith(_ENDS)})
    if found != due or any(count > 1 for count in counts.values()):
        raise CheckFailed("clock", f"{due - found} do not count, and {found - due} count too much")
    offsets = {partition: 1 + max(n for p, n in items if p == partition) for partition, _ in items}
    gaps = [(p, n) for p, end in offsets.items() for n in range(end) if (p, n) not in items]
    if gaps:
        raise CheckFailed("clock", f"{gaps} do not count, but later ones do")
    return tuple(sorted(offsets.items()))


class Judge:
    """What counted in each store of one run, at each change of its committed id.

    Parameters
    ----------
    seen : Counter
        Counts the situations of which a campaign must see each.
    is_exact : bool
        Whether a snapshot has no messages in flight, so that the totals have a clock.
    """

    def __init__(self, seen: Counter[str], *, is_exact: bool = True) -> None:
        self.seen = seen
        self._is_exact = is_exact
        self._stores: dict[int, _Judged] = {}

    def connect(self, store: SimulatedStore) -> KeptTotals:
        """Return a connection whose calls are judged."""
        judged = self._stores.setdefault(id(store), _Judged(store, is_exact=self._is_exact))
        return _Connection(store, judged, self.seen)

    def machine(self, parts: Any) -> SubtaskMachine:
        """Return a subtask that notes which differences a cut leaves."""
        return _Noting(parts, self.seen)

    def mutation(self) -> Mutation:
        """Return the classes of a judged run."""
        return Mutation(store_connection=self.connect, machine=self.machine)

    def demand(self, history: History, shape: Shape | None = None) -> None:
        """Compare the clocks of all stores, and the offsets of sources in the snapshots that were published.

        Stores of aggregates that have sources of their own (`shape`) have the offsets of these only.

        Raises
        ------
        CheckFailed
            if they differ.
        """
        published = {each.id: _offsets(history, each) for each in history.snapshots}
        clocks = [judged.clocks for judged in self._stores.values()]
        groups = [] if shape is None or not shape.is_apart else [shape.partitions_of(each) for each in shape.aggregates]
        for snapshot_id, clock in (item for each in clocks for item in each.items()):
            if snapshot_id == 0:
                continue  # the store has begun
            has = published.get(snapshot_id)
            due = {tuple(each for each in has if each[0] in group) for group in groups} if has and groups else {has}
            if clock not in due:
                raise CheckFailed("clock", f"snapshot {snapshot_id}: {clock} counts, and it has {has}")


def _offsets(history: History, snapshot: Any) -> Clock:
    subtasks = [each for each in history.topology.subtasks if history.topology.node(each.node).is_source]
    states = [snapshot.node(each).state or {} for each in subtasks]
    return tuple(sorted((partition, end) for state in states for partition, end in state.items() if end))


class _Judged:
    def __init__(self, store: SimulatedStore, *, is_exact: bool) -> None:
        self._cells = store.cells
        self._is_exact = is_exact
        self._committed, self._totals = -1, {}  # type: tuple[int, dict[Any, Any]]
        #: {committed id: clock}
        self.clocks: dict[int, Clock] = {}

    def check(self) -> None:
        """Check what counts now."""
        totals = KeptTotals(self._cells).totals()
        if self._cells.committed != self._committed:
            self._committed, self._totals = self._cells.committed, totals
            if self._is_exact:
                self.clocks[self._committed] = clock_of(totals)
        elif totals != self._totals:
            raise CheckFailed("clock", f"{totals} counts instead of {self._totals}, without a commit")


class _Connection(StoreConnection):
    def __init__(self, store: SimulatedStore, judged: _Judged, seen: Counter[str]) -> None:
        super().__init__(store)
        self._judged = judged
        self._seen = seen

    def write(self, claim: StoreClaim, snapshotId: int, items: Any) -> None:
        try:
            super().write(claim, snapshotId, items)
        except Fenced:
            self._seen["an old claim's write was refused"] += 1
            raise

    def _failing(self, call: Callable[[], Any]) -> Any:
        try:
            return super()._failing(call)
        finally:
            self._judged.check()


class _Noting(SubtaskMachine):
    def __init__(self, parts: Any, seen: Counter[str]) -> None:
        super().__init__(parts)
        self._seen = seen

    def _capture(self, snapshot_id: int) -> Any:
        if isinstance(self.node, PersistentAggregate) and any(each >= snapshot_id for each in self.node.differences):
            self._seen["B was not empty at a cut"] += 1
        return super()._capture(snapshot_id)


def problems(history: History, shape: Shape) -> Iterator[str]:
    """Yield the aggregates whose totals are not those of all items."""
    for name in shape.aggregates:
        found, due = history.output(name), shape.totals(name)
        if found != due:
            yield f"{name}: {_difference(found, due)}"


def _difference(found: Iterable[tuple[str, Any]], due: Iterable[tuple[str, Any]]) -> str:
    counts, wanted = (Counter({(k, i): n for k, state in each for i, n in state}) for each in (found, due))
    return f"lost {dict(wanted - counts)}, too many {dict(counts - wanted)}"


def note_differences(patch: pytest.MonkeyPatch, seen: Counter[str]) -> None:
    """Note the differences of aborted snapshots that join the next, and differences that wait for a decision."""
    captured = TotalsLedger.captured

    def noting(self: TotalsLedger, cut: int | None, change: DifferenceCaptured) -> list[TotalsTask]:
        seen["an aborted difference joined"] += self._carried is not None
        tasks = captured(self, cut, change)
        seen["a difference waited"] += self._waiting is not None
        return tasks

    patch.setattr(TotalsLedger, "captured", noting)


@dataclass
class TotalledWorld:
    """A small graph with totals, for faults at every step."""

    shape: Shape
    seen: Counter[str]
    alignment: Literal["unaligned", "aligned"] = "unaligned"

    def simulator(self, mode: ModeWish, schedule: Sequence[Step] | None = None) -> Simulator:
        """Make a run by a schedule, without the steps that a fault has made impossible; None: by a seed."""
        self._judge = Judge(self.seen, is_exact=mode != MARKERS or self.alignment == "aligned")
        return Simulator(
            self.shape.graph(),
            _SEED if schedule is None else schedule,
            seed=_SEED,
            mode=mode,
            alignment=self.alignment,
            snapshotInterval=0.04,
            odds=Odds(tick=6),
            restartPolicy=RestartPolicy(maxRestarts=50),
            skipsImpossible=True,
            mutation=self._judge.mutation(),
        )

    def problems(self, history: History, reference: History) -> list[str]:
        """What is lost or doubled in the totals of the run that was made last."""
        self._judge.demand(history)
        return list(problems(history, self.shape))
