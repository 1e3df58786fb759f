"""The keyed state of one subtask, driven by hand: tests set the key and the time, and capture and restore rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from cutline.snapshot.channel.output_buffer import BackpressureFlag
from cutline.snapshot.channel.partitioning import groups_of
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.ids import Subtask
from cutline.snapshot.keyed import encoding
from cutline.snapshot.keyed.heap import HeapTier
from cutline.snapshot.keyed.keyed_states import KeyedStates
from cutline.snapshot.keyed.kinds import StateKind
from cutline.snapshot.keyed.memtable import Memtable
from cutline.snapshot.keyed.row_store import Steps
from cutline.snapshot.keyed.rows import CapturedRows, DirtyTable
from cutline.snapshot.keyed.segment import Segment
from cutline.snapshot.keyed.state_rules import KeyedStateSettings
from cutline.snapshot.keyed.states import Plus
from cutline.snapshot.keyed.tier import Tier
from cutline.snapshot.plan.declarations import Key
from cutline.snapshot.state import ListState, MapState, ReducingState, ValueState
from cutline.snapshot.subtask.timers import Timers

CODEC = Codec()
SUBTASK = Subtask("node")

TierMaker = Callable[[], Tier]


class HandContext:
    """The context of hooks that do not run."""

    def __init__(self, now: float) -> None:
        self.key: Any = None
        self.has_key = False
        self.now = now
        self.hook = 0

    def moment(self) -> tuple[int, int]:
        """The hook that does not run."""
        return self.hook, 0


class KeyedSubtask:
    """One subtask in one incarnation, whose node asks for states until `opened`."""

    def __init__(
        self,
        make_tier: TierMaker = HeapTier,
        segments: Sequence[Segment] = (),
        now: float = 0.0,
        *,
        parallelism: int = 1,
        edge_keys: Sequence[Key] = ("key",),
        is_batched: bool = False,
        sorts: bool = False,
        stores_rows: bool = True,
        has_epochs: bool = False,
    ) -> None:
        self.context = HandContext(now)
        self.timers = Timers()
        self.backpressure = BackpressureFlag()
        self.tier = make_tier()
        owner = KeyedStateSettings(
            SUBTASK, self.context, CODEC, sorts=sorts, stores_rows=stores_rows, has_epochs=has_epochs
        )
        self.states = KeyedStates(
            owner, self.tier, groups_of(0, parallelism), self.timers, self.backpressure,
            parallelism=parallelism, edge_keys=edge_keys, has_timers=True, is_batched=is_batched,
        )  # fmt: skip
        self.states.restore(segments, now)

    def value(self, name: str = "v", ttl: float | None = None) -> ValueState:
        """Ask for a state."""
        return self.states.ask(StateKind.VALUE, name, ttl)  # type: ignore[no-any-return]

    def list(self, name: str = "l", ttl: float | None = None) -> ListState:
        """Ask for a state."""
        return self.states.ask(StateKind.LIST, name, ttl)  # type: ignore[no-any-return]

    def map(self, name: str = "m", ttl: float | None = None) -> MapState:
        """Ask for a state."""
        return self.states.ask(StateKind.MAP, name, ttl)  # type: ignore[no-any-return]

    def reducing(self, plus: Plus = "sum", name: str = "r", ttl: float | None = None) -> ReducingState:
        """Ask for a state."""
        return self.states.ask(StateKind.REDUCING, name, ttl, plus)  # type: ignore[no-any-return]

    @contextmanager
    def key(self, key: Any) -> Iterator[None]:
        """A hook with a key."""
        self.context.key, self.context.has_key = key, True
        self.context.hook += 1
        yield
        self.context.key, self.context.has_key = None, False

    def capture(self) -> CapturedRows | None:
        """The rows that changed."""
        return self.states.capture(self.context.now)

    def capture_segment(self) -> Segment | None:
        """The rows that changed, encoded."""
        captured = self.capture()
        return None if captured is None else encoded(captured)

    def rows(self) -> dict[str, dict[Any, Any]]:
        """The rows that changed, by state and key."""
        return {table.spec.name: table.rows for table in dirty_tables(self.capture())}


def dirty_tables(captured: CapturedRows | None) -> tuple[DirtyTable, ...]:
    """The tables of captured rows that are kept in dicts, those of memtables too."""
    tables: list[DirtyTable] = []
    for rows in () if captured is None else captured.tables:
        if isinstance(rows, Memtable):
            tables += rows.tables
        elif isinstance(rows, DirtyTable):
            tables.append(rows)
    return tuple(tables)


def encoded(captured: CapturedRows) -> Segment:
    """What storage makes of captured rows."""
    return _result(encoding.encoding(captured, CODEC))


def _result(steps: Steps[Segment]) -> Segment:
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            segment: Segment = stop.value
            return segment
