"""A job whose totals are in a store that fails: numbers by key, a relay, and an aggregate whose writes are noted.

The module has few imports, because forked workers import it.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.live import DEADLINE_S, Live, wait_for
from cutline import (
    END,
    AggregateStore,
    Context,
    Graph,
    MonoidClocks,
    Node,
    PostgreSQLStore,
    RedisStore,
    ReplayableSource,
    Run,
    Snapshot,
    Sum,
)
from cutline.snapshot.modes.totals.store_calls import KEYS_AT_ONCE
from cutline.snapshot.operators.aggregate_store import StoreClaim
from cutline.snapshot.operators.persistent_aggregate import PersistentAggregate
from cutline.snapshot.plan.modes import ModeWish

PARTITIONS = ("a", "b", "c")
MODES: dict[str, ModeWish] = {
    "markers": "markers",
    "epochs": MonoidClocks(),
    "negotiated": MonoidClocks(clock="negotiated"),
}
#: Keys whose cells are written by one call of each subtask, and by some calls.
FEW_KEYS, MANY_KEYS = 300, 5 * KEYS_AT_ONCE

_POLL_S = 0.01


class Amounts(ReplayableSource):
    """Sends (key, amount) of three partitions until a file is there. An offset counts messages."""

    pollSeconds = 0.03

    def __init__(self, enough: Path, keys: int) -> None:
        self.enough, self.keys = enough, keys

    def partitions(self) -> tuple[str, ...]:
        return PARTITIONS

    def first(self, partition: str) -> int:
        return 0

    def available(self, partition: str, start: int) -> Any:
        return END if self.enough.exists() else start + self.keys // 10

    def read(self, partition: str, start: int, stop: int, context: Context) -> None:
        context.sendAll([(number % self.keys, number) for number in range(start, stop)])


class Pass(Node):
    """Passes messages on."""

    def onMessages(self, messages: Sequence[Any], context: Context) -> None:
        context.sendAll(list(messages))


class _Noted(AggregateStore):
    """Notes writes that succeeded, and that a restore has failed to take the store.

    While the file ``hold`` is there, waits behind the first write of a snapshot.
    """

    folder: Path
    begun = 0

    def take(self, claim: StoreClaim) -> int:
        try:
            return super().take(claim)  # type: ignore[safe-super]  # of a store
        except OSError:
            (self.folder / "not-taken").touch()
            raise

    def write(self, claim: StoreClaim, snapshotId: int, items: Sequence[tuple[Any, Any]]) -> None:
        if self.begun == snapshotId:
            self._hold()
        super().write(claim, snapshotId, items)  # type: ignore[safe-super]  # of a store
        self.begun = snapshotId
        # A file for each writer, because lines of two writers in one file could mix.
        with open(self.folder / f"writes-{os.getpid()}-{threading.get_ident()}", "a") as file:
            file.write(f"{claim.number} {snapshotId} {' '.join(str(key) for key, _ in items)}\n")

    def _hold(self) -> None:
        end = time.monotonic() + DEADLINE_S
        while (self.folder / "hold").exists() and time.monotonic() < end:
            (self.folder / "held").touch()
            threading.Event().wait(_POLL_S)


class NotedPostgreSQL(_Noted, PostgreSQLStore):
    """A table whose writes are noted."""


class NotedRedis(_Noted, RedisStore):
    """Keys in Redis whose writes are noted."""


class Job(NamedTuple):
    """A job, and the store that has its totals."""

    live: Live
    store: AggregateStore
    keys: int
    mode: ModeWish

    def submit(self, **settings: Any) -> Run:
        """Submit the job, or go on with it."""
        folder = self.live.folder
        graph = Graph("totals").add("amounts", Amounts(folder / "enough", self.keys), parallelism=2)
        graph.add("relay", Pass(), parallelism=2)
        graph.add("totals", PersistentAggregate(Sum(), self.store, itemgetter(1)), parallelism=2)
        graph.connect("amounts", "relay", key=itemgetter(0)).connect("relay", "totals", key=itemgetter(0))
        return self.live.submit(self.live.runtime(**settings), graph, mode=self.mode)

    def hold(self) -> None:
        """Let a subtask stop in the middle of the cells of a snapshot, and wait until it has."""
        (self.live.folder / "hold").touch()
        wait_for("half-written cells", (self.live.folder / "held").exists)

    def let_go(self) -> None:
        """Let the subtask go on."""
        (self.live.folder / "hold").unlink()

    def finish(self, run: Run) -> int:
        """Let the run end. Check the total of each key, and return how many messages were added."""
        (self.live.folder / "enough").touch()
        run.awaitTermination(DEADLINE_S)
        assert run.status["outcome"] == "finished", run.exception()
        offsets = offsets_of(run.snapshots()[-1])
        due: Counter[int] = Counter()
        for stop in offsets.values():
            for number in range(stop):
                due[number % self.keys] += number
        assert set(offsets) == set(PARTITIONS)
        found = self.totals()
        wrong = {key: (found[key], due[key]) for key in range(self.keys) if (found[key] or 0) != due[key]}
        assert not wrong, f"{len(wrong)} of {self.keys} totals are wrong (found, due): {dict(list(wrong.items())[:5])}"
        self.assert_one_write()
        return sum(offsets.values())

    def totals(self) -> list[Any]:
        """Return the committed totals of all keys."""
        try:
            return self.store.current(range(self.keys))
        finally:
            self.store.close()

    def assert_one_write(self) -> None:
        """Check that no incarnation has written a key twice for a snapshot."""
        cells = Counter((*writer, key) for writer, keys in self.writes() for key in keys)
        assert cells, "something was written"
        twice = [cell for cell, count in cells.items() if count > 1]
        assert not twice, f"{len(twice)} cells were written again, as (incarnation, snapshot, key) {twice[:5]}"

    def writes(self) -> Iterable[tuple[tuple[int, int], list[int]]]:
        """Yield ((incarnation, snapshot), keys) of each write that succeeded."""
        for path in self.live.folder.glob("writes-*"):
            for line in path.read_text().splitlines():
                incarnation, snapshot_id, *keys = map(int, line.split())
                yield (incarnation, snapshot_id), keys

    def written(self) -> set[int]:
        """Return the snapshots of which a cell was written."""
        return {snapshot_id for (_, snapshot_id), _ in self.writes()}


def noted_store(url: str, folder: Path) -> AggregateStore:
    """Make a store on the server of a URL, in a table or under keys that no other test has."""
    name = f"totals_{folder.name}"[-40:].lower().strip("_")
    is_redis = url.startswith("redis:")
    store = NotedRedis(url, prefix=name) if is_redis else NotedPostgreSQL(url, table=name)
    store.folder = folder
    return store


def offsets_of(snapshot: Snapshot) -> dict[str, int]:
    """Return the offset of each partition."""
    states = snapshot.node("amounts").states
    return {partition: stop for state in states for partition, stop in dict(state or {}).items()}


def added(run: Run) -> int:
    """Return how many messages the aggregate has added in this incarnation, as the workers have reported."""
    return int(run.status["progress"]["processed"].get("totals", 0))
