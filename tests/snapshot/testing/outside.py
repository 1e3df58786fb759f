"""What lies outside of a simulated run and outlives all of its processes: a store that sinks write to in two phases."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from cutline import Context, Sink


@dataclass
class Outside:
    """A store with transactions, as a sink's target."""

    #: {token: (subtask, incarnation, rows)}: durable, not visible
    prepared: dict[str, tuple[str, int, list[Any]]] = field(default_factory=dict)
    #: {token: rows}: visible
    committed: dict[str, list[Any]] = field(default_factory=dict)
    #: tokens that were to be committed and were not there any more
    lost: list[str] = field(default_factory=list)

    def commit(self, token: str) -> None:
        """Make visible what was prepared; a repetition changes nothing."""
        if token in self.prepared:
            self.committed[token] = self.prepared.pop(token)[2]
        elif token not in self.committed:
            self.lost.append(token)

    def discard(self, subtask: str, below: int) -> None:
        """Remove what incarnations below prepared and nobody committed (PROTOCOL 7.4, discarding)."""
        for token, (owner, incarnation, _) in list(self.prepared.items()):
            if owner == subtask and incarnation < below:
                del self.prepared[token]

    def problems(self, due: Counter[Any]) -> list[str]:
        """What is wrong with the visible rows: they are to be `due`."""
        found = Counter(row for rows in self.committed.values() for row in rows)
        problems = [f"to be committed, but discarded before: {self.lost}"] if self.lost else []
        problems += [f"lost: {dict(due - found)}"] if due - found else []
        return problems + ([f"too many: {dict(found - due)}"] if found - due else [])


#: {run: what is outside of it}. Nodes are copies made by unpickling, so this is how they find it.
OUTSIDES: dict[str, Outside] = {}


class TwoPhases(Sink):
    """A sink's two phases. What it has not prepared is in `rows`."""

    rows: list[Any]

    def open(self, context: Context) -> None:
        self.outside = OUTSIDES[context.run]
        self.name, self.incarnation = str(context.subtask), context.incarnation

    def prepareCommit(self, snapshotId: int) -> Any:
        if not self.rows:
            return None
        token = f"{self.incarnation}/{self.name}/{snapshotId}"
        self.outside.prepared[token] = (self.name, self.incarnation, self.rows)
        self.rows = []
        return token

    def commit(self, snapshotId: int, prepared: Any) -> None:
        self.outside.commit(prepared)

    def discardUncommitted(self, context: Context) -> None:
        self.outside.discard(self.name, context.incarnation)


class Writer(TwoPhases):
    """Writes every message as a row."""

    def __init__(self) -> None:
        self.rows = []

    def onMessage(self, message: Any, context: Context) -> None:
        self.rows.append(message)

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return self.rows

    def restoreState(self, state: Any) -> None:
        self.rows = state
