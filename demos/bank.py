"""Move money between accounts in cycles, kill workers again and again, and never lose a coin.

Every account has a channel to every other account. While money moves, balances alone add up at no moment. A snapshot
holds balances together with the money in flight. Start the demo with ``cutline demo bank``.
"""

from __future__ import annotations

import os
import signal
import tempfile
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console

from cutline import BarrierRuntime, Context, FileSystemBackend, Graph, Node, Snapshot
from cutline.barrier_runtime.cli.progress import watch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

#: number of workers that run the accounts
WORKERS = 2

OPENING_BALANCE = 1000

#: Transfers with which each account begins. Each arrival causes another transfer, so as many are always in flight.
TRANSFERS_AT_START = 10

#: published snapshots between two kills, so that each recovery has something new to go on from
_SNAPSHOTS_PER_KILL = 3

#: number of snapshots to keep: all, so that each snapshot is checked
_RETAINED = 100_000


class Account(Node):
    """Answers each transfer with a random amount to a random other account, until its time is over."""

    def __init__(self, seconds: float) -> None:
        self._balance = OPENING_BALANCE
        self._seconds = seconds
        self._until = 0.0

    def onStart(self, context: Context) -> None:
        """Send the first transfers."""
        self._until = context.now + self._seconds
        for _ in range(TRANSFERS_AT_START):
            self._pay(context)

    def onMessage(self, amount: int, context: Context) -> None:
        """Receive a transfer, and answer with another until the time is over."""
        self._balance += amount
        if context.now < self._until:
            self._pay(context)

    def snapshotState(self, snapshotId: int, timestamp: float) -> dict[str, float]:
        """Return the balance, and when the time is over."""
        return {"balance": self._balance, "until": self._until}

    def restoreState(self, state: dict[str, Any]) -> None:
        """Adopt the balance, and when the time is over."""
        self._balance, self._until = state["balance"], state["until"]

    def _pay(self, context: Context) -> None:
        amount = context.random.randint(0, self._balance // TRANSFERS_AT_START)
        self._balance -= amount
        context.send(amount, to=context.random.choice(context.outputs))


class Verdict(NamedTuple):
    """The money in one snapshot."""

    snapshot_id: int
    balances: int
    in_flight: int
    transfers: int  #: number of transfers in flight

    @property
    def money(self) -> int:
        """The money on accounts and in flight."""
        return self.balances + self.in_flight


class Conservation:
    """The invariant: judges every published snapshot, and records a verdict of each."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.verdicts: list[Verdict] = []

    def __call__(self, snapshot: Snapshot) -> bool:
        """Return whether balances and money in flight are the money of the beginning."""
        balances = sum(snapshot.node(name).state["balance"] for name in snapshot.nodes)
        in_flight = [
            amount
            for channel in snapshot.channels
            for amount in snapshot.channel(channel.source, channel.target).messages
        ]
        self.verdicts.append(Verdict(snapshot.id, balances, sum(in_flight), len(in_flight)))
        return self.verdicts[-1].money == self.total


class Killer:
    """Kills the workers in turn, each time after some more snapshots were published."""

    def __init__(self) -> None:
        self.kills = 0
        self._spared_up_to = 0  # snapshot id

    def check(self, progress: Mapping[str, Any]) -> str | None:
        """Kill a worker if enough snapshots were published. Return a line about the kill, or None."""
        new = [snapshot_id for snapshot_id in progress["snapshots"] if snapshot_id > self._spared_up_to]
        if progress["phase"] != "running" or len(new) < _SNAPSHOTS_PER_KILL or len(progress["workers"]) < WORKERS:
            return None
        worker = self.kills % WORKERS
        pid = progress["workers"][worker]
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return None  # the progress is older than the last kill, so the next progress decides
        self.kills += 1
        self._spared_up_to = new[-1]
        return f"SIGKILL to worker {worker}, process {pid}"


def make_graph(accounts: int, seconds: float, conservation: Conservation) -> Graph:
    """Make a complete directed graph of accounts."""
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
    """Run the demo. Return whether money was constant in every snapshot, with workers killed and money in flight."""
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
    """Print the verdicts from number `shown` on. Return the number of all verdicts."""
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
        f"{status['restartCount']} restarts; money was {'NOT ' if violations else ''}constant",
    )
    if not (killer.kills and moving):
        _print(
            console,
            "no worker was killed, or no snapshot saw transfers in flight: nothing was proved; try more seconds",
        )
    return not violations and bool(killer.kills and moving)


def _print(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
