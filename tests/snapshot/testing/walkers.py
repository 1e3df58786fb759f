"""The application that generated programs run: messages that walk over a random graph and leave a trace.

Which messages exist follows from their ids alone, never from the order of events nor from the subtask that
handles them, so `expected` can say without any machine what every node must have seen when all is over. Money
(`amount`) is conserved, and every message carries a vector clock. Handlers change what they were given, to
prove that nothing recorded is shared with them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from cutline.snapshot.ids import Subtask
from cutline.snapshot.node import END, Context, End, Node, Source
from cutline.snapshot.plan.topology import Partitioning

#: What every walk begins with.
AMOUNT = 1_000

SCHEMA = pa.schema([("id", pa.int64()), ("hops", pa.int64()), ("amount", pa.int64()), ("clock", pa.list_(pa.int64()))])

Choose = Callable[[int], int]


class Step(NamedTuple):
    """A message, without its clock."""

    id: int
    hops: int
    amount: int


@dataclass(frozen=True)
class Edge:
    """An outgoing edge as its node knows it."""

    target: str
    partitioning: Partitioning
    parallelism: int  #: of the target


@dataclass(frozen=True)
class Plan:
    """What one node does."""

    name: str
    number: int
    parallelism: int
    first: int  #: number of its subtask 0 among all subtasks
    total: int  #: number of all subtasks
    edges: tuple[Edge, ...]
    walks: int  #: walks that each subtask begins
    hops: int
    is_source: bool  #: begins them in poll, else in onStart
    is_sink: bool
    takes_batches: bool

    def begun(self, index: int) -> list[Step]:
        """The walks that subtask `index` begins."""
        return [Step(self.number * 1_000 + index * 100 + n, self.hops, AMOUNT) for n in range(1, self.walks + 1)]


def fan_out(plan: Plan, step: Step) -> tuple[list[Edge], list[Step], int]:
    """What follows from handling `step`: the edges to send along, the rows for each of them, and what stays."""
    if not step.hops or not plan.edges:
        return [], [], step.amount
    edges = list(plan.edges) if step.id % 7 == 0 else [plan.edges[step.id % len(plan.edges)]]
    child = (step.id * 31 + step.hops) % 100_003
    rows = 2 if child % 4 == 0 else 1  # two rows travel as a batch
    copies = sum(edge.parallelism if edge.partitioning is Partitioning.BROADCAST else 1 for edge in edges) * rows
    share = step.amount // (copies + 1)
    return edges, [Step(child + n, step.hops - 1, share) for n in range(rows)], step.amount - share * copies


def expected(plans: Mapping[str, Plan]) -> dict[str, Counter[int]]:
    """For each node: the ids that its subtasks handle as messages, whatever the schedule."""
    seen: dict[str, Counter[int]] = {name: Counter() for name in plans}
    waiting = [(name, step) for name, plan in plans.items() for i in range(plan.parallelism) for step in plan.begun(i)]
    while waiting:
        name, step = waiting.pop()
        edges, rows, _ = fan_out(plans[name], step)
        for edge in edges:
            for row in rows * (edge.parallelism if edge.partitioning is Partitioning.BROADCAST else 1):
                seen[edge.target][row.id] += 1
                waiting.append((edge.target, row))
    return seen


def fields(message: Any) -> tuple[Step, list[int]]:
    """The step and the clock of a message in any of its shapes."""
    number, hops, amount, clock = message.values() if isinstance(message, dict) else message
    return Step(number, hops, amount), clock


def key_of(message: Any) -> int:
    """The key behind hash edges."""
    return fields(message)[0].id % 5


class Walk:
    """The hooks that all kinds of walkers share."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.balance = plan.walks * AMOUNT
        self.clock = [0] * plan.total
        self.delayed: list[list[Any]] = []
        self.ends: list[str] = []
        self.seen: list[int] = []
        self.begun = 0

    def open(self, context: Context) -> None:
        self.subtask = context.subtask
        self.me = self.plan.first + context.subtask.index

    def onMessage(self, message: Any, context: Context) -> None:
        assert context.sender is not None
        step, clock = fields(message)
        self.clock = list(map(max, self.clock, clock))
        clock.clear()  # a handler may do what it likes with what it was given (PROTOCOL 1.6, encoded bytes)
        self.seen.append(step.id)
        if step.id % 5 == 0:
            at = context.now + 1.0 + step.id % 3
            self.delayed.append([at, *step])
            context.registerTimer(at)
        else:
            self.act(step, context)

    def onTimer(self, at: float, context: Context) -> None:
        due = [delayed for delayed in self.delayed if delayed[0] == at]
        self.delayed = [delayed for delayed in self.delayed if delayed[0] != at]
        for _, *step in due:
            self.act(Step(*step), context)

    def onEnd(self, context: Context) -> None:
        assert context.sender is not None
        self.ends.append(context.sender.node)

    def begin(self, context: Context) -> None:
        """Begin the next walk."""
        self.balance -= AMOUNT
        self.begun += 1
        self.act(self.plan.begun(context.subtask.index)[self.begun - 1], context)

    def act(self, step: Step, context: Context) -> None:
        """Keep a part of the money and send the rest on."""
        edges, rows, rest = fan_out(self.plan, step)
        self.balance += rest
        self.clock[self.me] += 1
        if (
            len(rows) == 1
            and edges == list(self.plan.edges)
            and all(e.partitioning is not Partitioning.DIRECTED for e in edges)
        ):
            message = self.message(rows)
            context.send(message)
            self.spoil(message)
            return
        for edge in edges:
            message = self.message(rows)
            index = rows[0].id % edge.parallelism
            context.send(
                message, Subtask(edge.target, index) if edge.partitioning is Partitioning.DIRECTED else edge.target
            )
            self.spoil(message)

    def message(self, rows: list[Step]) -> Any:
        """Rows as they travel: a batch, a tuple or a dict."""
        if len(rows) > 1:
            return pa.RecordBatch.from_pylist([{**row._asdict(), "clock": self.clock} for row in rows], schema=SCHEMA)
        (row,) = rows
        return {**row._asdict(), "clock": list(self.clock)} if row.id % 3 == 0 else (*row, list(self.clock))

    def spoil(self, message: Any) -> None:
        """Change what was sent: nobody must notice."""
        if not isinstance(message, pa.RecordBatch):
            fields(message)[1].clear()

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return [self.balance, self.clock, self.delayed, self.ends, self.seen, self.begun]

    def restoreState(self, state: Any) -> None:
        self.balance, self.clock, self.delayed, self.ends, self.seen, self.begun = state


class Walker(Walk, Node):
    """Begins its walks in onStart."""

    def onStart(self, context: Context) -> None:
        for _ in range(self.plan.walks):
            self.begin(context)


class BatchWalker(Walker):
    """Takes batches whole."""

    def onBatch(self, batch: pa.RecordBatch, context: Context) -> None:
        for row in batch.to_pylist():
            self.onMessage(row, context)


class SourceWalker(Walk, Source):
    """Begins its walks in poll."""

    def poll(self, context: Context) -> float | End | None:
        if self.begun == self.plan.walks:
            return END
        self.begin(context)
        return 1.0 if self.begun % 2 else None
