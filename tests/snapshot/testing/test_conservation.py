"""checkConservation: what a graph conserves is the same in every snapshot, and what it loses is found."""

from __future__ import annotations

from typing import Any

import pytest

from cutline import Context, Graph, Node, Snapshot
from cutline.testing import CheckFailed, checkConservation
from tests.run_size import scaled


class Account(Node):
    """Pays as often as it is told, and keeps what it is paid."""

    def __init__(self, balance: int, payments: int) -> None:
        self.balance = balance
        self.payments = payments

    def onStart(self, context: Context) -> None:
        self._pay(context)

    def onMessage(self, amount: int, context: Context) -> None:
        self.balance += amount
        self._pay(context)

    def _pay(self, context: Context) -> None:
        if self.payments:
            self.payments -= 1
            self.balance -= 10
            context.send(10)

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return [self.balance, self.payments]

    def restoreState(self, state: Any) -> None:
        self.balance, self.payments = state


class PrintsMoney(Account):
    """Keeps what it pays last."""

    def _pay(self, context: Context) -> None:
        super()._pay(context)
        if not self.payments:
            self.balance += 10


def bank(account: type[Account]) -> Graph:
    """Two accounts that pay each other."""
    graph = Graph("bank").add("alice", account(100, 2)).add("bob", Account(100, 2))
    return graph.connect("alice", "bob").connect("bob", "alice")


def money(snapshot: Snapshot) -> int:
    """What all accounts hold, and what is on its way."""
    held = sum(snapshot.node(name).state[0] for name in snapshot.nodes)
    return int(held + sum(sum(snapshot.channel(*channel).messages) for channel in snapshot.channels))


def test_money_is_conserved() -> None:
    """In all snapshots of a bank, whatever is on its way when they are taken, there is the same sum."""
    checkConservation(bank(Account), money, examples=scaled(200))


def test_what_is_on_its_way_counts() -> None:
    """A measure that forgets the channels is found: a snapshot with money on its way is among the examples."""
    with pytest.raises(CheckFailed) as failed:
        checkConservation(bank(Account), lambda snapshot: sum(snapshot.node(name).state[0] for name in snapshot.nodes))
    assert failed.value.checker == "conservation"
    assert "190" in failed.value.text or "180" in failed.value.text, failed.value.text


def test_new_money_is_found() -> None:
    """A node that makes some is found, without any fault."""
    with pytest.raises(CheckFailed) as failed:
        checkConservation(bank(PrintsMoney), money)
    assert "Fail(" not in failed.value.text, failed.value.text
