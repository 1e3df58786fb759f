"""Moves money between accounts in cycles, kills workers again and again, and never loses a coin.

Every account has a channel to every other one. While money moves there is no moment at which balances alone could be
added up; a snapshot holds them together with what was in flight. Start it with ``cutline demo bank``.
"""

from __future__ import annotations

import os
import signal
import tempfile
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console

from barrier_runtime import BarrierRuntime
from barrier_runtime.cli.progress import watch
from snapshot import Context, Graph, Node, Snapshot
from state_backends import FileSystemBackend

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

#: Workers that the accounts are spread over.
WORKERS = 2

OPENING_BALANCE = 1000

#: Transfers that each account begins with. Each one that arrives sets off another, so as many are always under way.
TRANSFERS_AT_START = 10

#: Published snapshots between two kills: each recovery has something new to go on from.
_SNAPSHOTS_PER_KILL = 3

#: How many snapshots are kept: all, so that each one is checked.
_RETAINED = 100_000


class Account(Node):
    """Answers each transfer with one of its own, a random amount to a random other, until its time is over."""

    def __init__(self, seconds: float) -> None:
        self._balance = OPENING_BALANCE
        self._seconds = seconds
        self._until = 0.0

    def onStart(self, context: Context) -> None:
        """Begin."""
        self._until = context.now + self._seconds
        for _ in range(TRANSFERS_AT_START):
            self._pay(context)

    def onMessage(self, amount: int, context: Context) -> None:
        """Receive a transfer."""
        self._balance += amount
        if context.now < self._until:
            self._pay(context)

    def snapshotState(self, snapshotId: int, timestamp: float) -> dict[str, float]:
        """The balance, and how long to go on."""
        return {"balance": self._balance, "until": self._until}

    def restoreState(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self._balance, self._until = state["balance"], state["until"]

    def _pay(self, context: Context) -> None:
        amount = context.random.randint(0, self._balance // TRANSFERS_AT_START)
        self._balance -= amount
        context.send(amount, to=context.random.choice(context.outputs))


class Verdict(NamedTuple):
    """What one snapshot holds."""

    snapshot_id: int
    balances: int
    in_flight: int
    transfers: int  #: that were in flight

    @property
    def money(self) -> int:
        """All there is."""
        return self.balances + self.in_flight


class Conservation:
    """The invariant: judges every published snapshot, and keeps what it saw."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.verdicts: list[Verdict] = []

    def __call__(self, snapshot: Snapshot) -> bool:
        """Whether balances and money in flight are what there was at the beginning."""
        balances = sum(snapshot.node(name).state["balance"] for name in snapshot.nodes)
        in_flight = [
            amount
            for channel in snapshot.channels
            for amount in snapshot.channel(channel.source, channel.target).messages
        ]
        self.verdicts.append(Verdict(snapshot.id, balances, sum(in_flight), len(in_flight)))
        return self.verdicts[-1].money == self.total


class Killer:
    """Kills one worker after the other, whenever some snapshots were published since the last time."""

    def __init__(self) -> None:
        self.kills = 0
        self._spared_up_to = 0  # snapshot id

    def check(self, progress: Mapping[str, Any]) -> str | None:
        """Kill if it is time to; returns what is to be said about it."""
        new = [snapshot_id for snapshot_id in progress["snapshots"] if snapshot_id > self._spared_up_to]
        if progress["phase"] != "running" or len(new) < _SNAPSHOTS_PER_KILL or len(progress["workers"]) < WORKERS:
            return None
        worker = self.kills % WORKERS
        pid = progress["workers"][worker]
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return None  # the progress is older than the last kill: next time
        self.kills += 1
        self._spared_up_to = new[-1]
        return f"SIGKILL to worker {worker}, process {pid}"


def make_graph(accounts: int, seconds: float, conservation: Conservation) -> Graph:
    """A complete directed graph of accounts."""
    graph = Graph("bank")
    names = [f"account-{number}" for number in range(accounts)]
    for name in names:
        graph.add(name, Account(seconds))
    for source in names:
        for target in names:
            if source != target:
                graph.connect(source, target)
    return graph.addInvariant("money-is-constant", conservation)


def run_demo(spark: SparkSession, console: Console, *, seconds: float, accounts: int, interval: float) -> bool:
    """Run it; returns whether money was constant in every snapshot, with workers killed and money in flight."""
    conservation = Conservation(accounts * OPENING_BALANCE)
    killer = Killer()
    graph = make_graph(accounts, seconds, conservation)
    with tempfile.TemporaryDirectory(prefix="cutline-bank-") as scratch:
        runtime = BarrierRuntime(
            spark,
            backend=FileSystemBackend(scratch),
            workers=WORKERS,
            snapshotInterval=interval,
            retainedSnapshots=_RETAINED,
        )
        with console.status("submitting the graph"):
            run = runtime.submit(graph)
        shown = 0
        for progress in watch(run, graph, console):
            shown = _print_verdicts(conservation, shown, console)
            said = killer.check(progress)
            if said:
                _print(console, said)
        run.awaitTermination()
        _print_verdicts(conservation, shown, console)
        return _print_end(run.status, conservation, killer, console)


def _print_verdicts(conservation: Conservation, shown: int, console: Console) -> int:
    """Print the verdicts from number `shown` on; returns how many there are."""
    verdicts = conservation.verdicts[shown:]
    for verdict in verdicts:
        _print(
            console,
            f"snapshot {verdict.snapshot_id}: {verdict.balances:,} on accounts + {verdict.in_flight:,} in "
            f"{verdict.transfers:,} transfers = {verdict.money:,} "
            f"{'ok' if verdict.money == conservation.total else 'VIOLATED'}",
        )
    return shown + len(verdicts)


def _print_end(status: Mapping[str, Any], conservation: Conservation, killer: Killer, console: Console) -> bool:
    verdicts = conservation.verdicts
    violations = status["invariants"]["money-is-constant"]["violations"]
    moving = sum(1 for verdict in verdicts if verdict.transfers)
    _print(
        console,
        f"{len(verdicts)} snapshots, {moving} of them with transfers in flight; {killer.kills} workers killed, "
        f"{len(status['restarts'])} restarts; money was {'NOT ' if violations else ''}constant",
    )
    if not (killer.kills and moving):
        _print(
            console,
            "no worker was killed, or no snapshot saw transfers in flight: nothing was proved; try more seconds",
        )
    return not violations and bool(killer.kills and moving)


def _print(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
