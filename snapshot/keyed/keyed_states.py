"""All keyed state of one subtask: the states that its node asked for, and the rows of its keyed timers.

Calls, in order::

    restore? > ask, by Node.open > opened > capture and sweep, again and again

Restored rows are decoded when the node asks for their state, because rows that nobody asks for must not cost memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from cutline.snapshot.channel.output_buffer import BackpressureFlag
from cutline.snapshot.error_text import shown
from cutline.snapshot.errors import GraphError, NodeError, RestoreRefused, SnapshotCorrupt
from cutline.snapshot.keyed.kinds import StateKind
from cutline.snapshot.keyed.migration import Migrate, MigratedRows, is_stale, migrated, regrouped
from cutline.snapshot.keyed.restored_rows import RestoredRows
from cutline.snapshot.keyed.row_grouping import RowGrouping
from cutline.snapshot.keyed.rows import CapturedRows, DirtyRows, StateSpec
from cutline.snapshot.keyed.segment import Segment
from cutline.snapshot.keyed.state_rules import KeyedStateSettings
from cutline.snapshot.keyed.states import Plus, Setup, make_state
from cutline.snapshot.keyed.table import StateTable
from cutline.snapshot.keyed.tier import KeyedTimers, Tier
from cutline.snapshot.keyed.versions import LocalVersion, PendingVersion
from cutline.snapshot.plan.declarations import Key
from cutline.snapshot.state import KeyedState

#: Expired rows, and entries of unused sets, that one turn removes at most. 256 rows take some 0.1 ms.
SWEPT_MAX: Final = 256


class AdoptedRows(Protocol):
    """Rows of a state that a node keeps itself, by the column."""

    def restore_rows(self, keys: list[Any], values: list[Any]) -> None:
        """Put restored rows over older ones. Values are encoded."""

    def take_dirty(self, spec: StateSpec, grouping: RowGrouping | None) -> DirtyRows | None:
        """Return the rows that changed since the last call, or None without any. Takes constant time."""

    def contents(self) -> Iterator[Any]:
        """Iterate over all rows as plain values, in no sequence."""


class HasKeyedStates(Protocol):
    """The context of a subtask, for nodes of ours that keep rows themselves."""

    states: KeyedStates


@dataclass(frozen=True, slots=True)
class _Adopted:
    """A state whose rows the node keeps itself."""

    spec: StateSpec
    rows: AdoptedRows
    grouping: RowGrouping | None


@dataclass(frozen=True, slots=True)
class _Asked:
    """A state that the node has asked for."""

    spec: StateSpec
    plus: Plus | None
    table: StateTable
    state: KeyedState


class KeyedStates:
    """The keyed state of one subtask.

    Parameters
    ----------
    owner : KeyedStateSettings
    tier : Tier
    groups : range
        Key groups of the subtask.
    timers : KeyedTimers
    backpressure : BackpressureFlag
        Closed while the tier cannot take more changed rows.
    parallelism : int
        Number of subtasks of the node.
    edge_keys : sequence of Key
        Key of each input with a key.
    has_timers : bool
        Whether the node acts on timers, whose rows are keyed where an input has a key.
    is_batched : bool
        Whether the node gets batches and no messages, so that reducing by the column is cheaper.
    """

    def __init__(
        self,
        owner: KeyedStateSettings,
        tier: Tier,
        groups: range,
        timers: KeyedTimers,
        backpressure: BackpressureFlag,
        *,
        parallelism: int,
        edge_keys: Sequence[Key],
        has_timers: bool,
        is_batched: bool,
    ) -> None:
        self._owner = owner
        self._tier = tier
        self._groups = groups
        self._timers = timers
        self._parallelism = parallelism
        self._edge_keys = tuple(edge_keys)
        self._has_keyed_timers = bool(edge_keys) and has_timers
        self._has_columns = is_batched and tier.has_columns
        self._asked: dict[str, _Asked] = {}
        self._adopted: _Adopted | None = None
        #: rows of the snapshot until the node is opened; None afterwards
        self._restored: RestoredRows | None = RestoredRows((), 0.0, str(owner.subtask))
        #: whether rows were restored, which later snapshots list, also where the node does not ask for them any more
        self._has_rows = False
        #: restored rows that lie by another key of the edge from now on, or None; known from `opened` on
        self.regrouped: MigratedRows | None = None
        #: the last error of `ask` that another start would meet again, or None
        self.refusal: GraphError | RestoreRefused | SnapshotCorrupt | None = None
        #: whether `sweep` may have work
        self.needs_sweep = False
        tier.bind(self._take, backpressure)

    @property
    def is_keyed(self) -> bool:
        """Whether each cut of the subtask has captured rows, perhaps none."""
        return self._has_keyed_timers or bool(self._asked) or self._adopted is not None or self._has_rows

    @property
    def owner(self) -> KeyedStateSettings:
        """The subtask that the states belong to."""
        return self._owner

    @property
    def tables(self) -> tuple[StateTable, ...]:
        """The tables of the states that the node has asked for."""
        return tuple(asked.table for asked in self._asked.values())

    def contents(self) -> Iterator[tuple[str, Iterator[Any]]]:
        """Yield the name of each state, and its rows as values: (key, value, time of expiry), in no sequence."""
        for name, asked in self._asked.items():
            yield name, self._rows(asked.table)
        if self._adopted is not None:
            yield self._adopted.spec.name, self._adopted.rows.contents()

    def _rows(self, table: StateTable) -> Iterator[Any]:
        ends, now = table.expiries or {}, self._owner.context.now
        for key, value in table.contents():
            end = ends.get(key)
            if isinstance(end, dict):  # by sub-key, among them some that have expired
                end = {sub: each for sub, each in end.items() if each > now}
            yield key, value, end

    # ---------------------------------------------------------------- restore and open

    def older_version(self, segments: Sequence[Segment]) -> int | None:
        """Return the oldest version of restored values, or None where none is older than the node's."""
        states = [spec for segment in segments for spec in segment.states if is_stale(spec, self._owner.version)]
        return min((spec.version for spec in states), default=None)

    def migrated(self, segments: Sequence[Segment], migrate: Migrate) -> MigratedRows:
        """Return the restored rows with values of the node's version. Called before `restore`. Raises as `migrated`.

        All rows are in memory meanwhile, encoded.
        """
        return MigratedRows(self._groups, migrated(segments, self._owner.version, migrate, self._owner))

    def restore(
        self,
        segments: Sequence[Segment],
        now: float,
        *,
        is_rescaled: bool = False,
        version: LocalVersion | None = None,
        lists_rows: bool = False,
    ) -> None:
        """Keep the rows of a snapshot for `open`, and register its timers.

        Parameters
        ----------
        segments : sequence of Segment
            Oldest first, clipped to the groups of the subtask.
        now : float
            `Context.now`; rows that have expired by then are absent.
        is_rescaled : bool
            Whether the node had another parallelism in the snapshot.
        version : LocalVersion, optional
            Version of the local database that has the rows, in place of `segments`.
        lists_rows : bool
            Whether the node has lists of rows in the snapshot. All its subtasks go on with them, also one without rows.
        """
        self._has_rows = bool(segments) or version is not None or lists_rows
        self._restored = RestoredRows(segments, now, str(self._owner.subtask), is_rescaled=is_rescaled, version=version)
        self._tier.restore(self._restored)
        self._tier.open_timers(self._timers, self._restored)

    def opened(self) -> None:
        """Free the restored rows that were not asked for, and refuse new states from now on."""
        self._restored = None
        self.needs_sweep = self._tier.has_turns or any(table.is_timed for table in self.tables)

    def ask(self, kind: StateKind, name: str, ttl: float | None, plus: Plus | None = None) -> Any:
        """Return the state called `name`, and make the state at the first call.

        Raises
        ------
        GraphError
            if the node can have no keyed state.
        RestoreRefused
            if the snapshot has a state of another kind under this name.
        SnapshotCorrupt
            if the restored rows cannot be decoded.
        NodeError
            if the node is open already, or has asked for another state of this name.
        """
        spec = StateSpec(self._checked_name(name), kind, self._checked_ttl(name, ttl), self._owner.version)
        if self._adopted is not None and name == self._adopted.spec.name:
            raise self._error(name, "the node keeps the rows of this state itself: choose another name")
        asked = self._asked.get(name)
        if asked is None:
            try:
                asked = self._asked[name] = self._make(spec, plus)
            except (GraphError, RestoreRefused, SnapshotCorrupt) as error:
                self.refusal = error
                raise
        elif (asked.spec, asked.plus) != (spec, plus):
            before = f"{asked.spec.kind.name}, ttl {asked.spec.ttl}"
            raise self._error(
                name, f"it is {before}; {kind.name}, ttl {ttl} is another state, which needs another name"
            )
        return asked.state

    def adopt(self, name: str, rows: AdoptedRows, key_columns: tuple[str, ...]) -> None:
        """Store the rows that the node keeps itself as the state called `name`. Only `Node.open` may call this once.

        Parameters
        ----------
        name : str
        rows : AdoptedRows
            Gets the restored rows at once.
        key_columns : tuple of str
            Columns of the rows' keys.

        Raises
        ------
        RestoreRefused, SnapshotCorrupt
            as `ask`.
        """
        spec = StateSpec(name, StateKind.REDUCING, version=self._owner.version)
        if self._restored is None or self._adopted is not None or name in self._asked:
            raise self._error(name, "a node gives up its rows once, in open, under a name that no other state has")
        grouping = RowGrouping.of_edges(self._edge_keys, key_columns, self._parallelism)
        try:
            self._check_grouping(name, () if grouping is None else grouping.grouped_by)
            for keys, values in self._restored.rows(name, spec.kind):
                rows.restore_rows(keys, values)
        except (RestoreRefused, SnapshotCorrupt) as error:
            self.refusal = error
            raise
        if any(each != (() if grouping is None else grouping.grouped_by) for each in self._restored.groupings(name)):
            segments = self._restored.segments
            self.regrouped = MigratedRows(self._groups, regrouped(segments, name, grouping, self._groups))
        self._adopted = _Adopted(spec, rows, grouping)

    def _check_grouping(self, name: str, grouped_by: tuple[str, ...]) -> None:
        """Refuse restored rows that lie where their messages do not go. All messages go to an only subtask."""
        assert self._restored is not None
        for before in self._restored.groupings(name):
            is_lost = self._restored.is_rescaled and not RowGrouping.moves(before)
            if self._parallelism > 1 and (before != grouped_by or is_lost):
                shown_both = RowGrouping.shown(before), RowGrouping.shown(grouped_by)
                change = "its parallelism is another now" if is_lost else f"the edge has the key {shown_both[1]} now"
                raise RestoreRefused(
                    f"{self._owner.subtask}: the rows of {name!r} lie by {shown_both[0]} in the snapshot, and {change}."
                    " So rows would lie where their messages do not go. Submit the node with the key and the "
                    "parallelism of the snapshot, or with parallelism 1"
                )

    def _make(self, spec: StateSpec, plus: Plus | None) -> _Asked:
        if self._parallelism > 1 and not self._edge_keys:
            raise GraphError(
                f"{self._owner.subtask}: state {spec.name!r}: a node of parallelism {self._parallelism} needs an input "
                "with a key to have keyed state: connect it with key=, or give it parallelism 1"
            )
        if self._owner.has_epochs:
            raise GraphError(
                f"{self._owner.subtask}: state {spec.name!r}: in mode 'monoidClocks' no node between sources and "
                "aggregate keeps state; mode 'markers' can"
            )
        if self._restored is None:
            raise self._error(spec.name, "a node asks for its states in open; later its restored rows are gone")
        is_timed = spec.ttl is not None or self._restored.has_expiries(spec.name)
        table, state = make_state(Setup(spec, self._owner, plus, is_timed, self._has_columns))
        self._restored.check_classes(spec.name, self._owner.codec)
        self._tier.open_state(table, self._restored)
        return _Asked(spec, plus, table, state)

    def _checked_name(self, name: Any) -> str:
        if type(name) is not str or not name.strip() or name.startswith("#"):
            raise self._error(name, "the name of a state is a str that is not blank and does not begin with '#'")
        return name

    def _checked_ttl(self, name: str, ttl: Any) -> float | None:
        if ttl is None:
            return None
        if type(ttl) not in (int, float) or not 0 < ttl < float("inf"):
            raise self._error(name, f"ttl is a number of seconds above 0, or None for no limit, not {shown(ttl)}")
        return float(ttl)

    def _error(self, name: Any, why: str) -> NodeError:
        return NodeError(f"{self._owner.subtask}: state {shown(name)}: {why}")

    # ---------------------------------------------------------------- capture and sweep

    def capture(self, now: float) -> CapturedRows | None:
        """Return the rows that changed since the last call, or None without any. Cannot fail, in constant time.

        Parameters
        ----------
        now : float
            `Context.now` at the cut.
        """
        return self._captured(now, self._tier.capture())

    def take_sealed(self, now: float) -> CapturedRows | None:
        """Return changed rows that leave memory before the next capture, or None without any. See `capture`."""
        return self._captured(now, self._tier.take_sealed())

    def _captured(self, now: float, tables: tuple[DirtyRows, ...]) -> CapturedRows | None:
        grouping = None if self._adopted is None else self._adopted.grouping
        grouped_by = () if grouping is None else grouping.grouped_by
        if not self._owner.stores_rows:
            for table in tables:
                table.release()
            return None
        return CapturedRows(now, self._groups, tables, grouped_by) if tables else None

    def begin_version(self, snapshot_id: int) -> PendingVersion:
        """Begin a version of the local database, as it is after the last `capture`."""
        return self._tier.begin_version(snapshot_id)

    def _take(self) -> tuple[DirtyRows, ...]:
        taken: list[DirtyRows | None] = [table.take_dirty() for table in self.tables]
        taken.append(self._timers.take_dirty())
        if self._adopted is not None:
            taken.append(self._adopted.rows.take_dirty(self._adopted.spec, self._adopted.grouping))
        if self._owner.garbage:
            self.needs_sweep = True
        return tuple(each for each in taken if each is not None)

    def close(self) -> None:
        """Give up all rows. May be called again."""
        self._tier.close()

    @property
    def is_due(self) -> bool:
        """Whether `sweep` has work that no event causes, and that an event may wait for."""
        return self._tier.is_due

    def sweep(self) -> None:
        """Remove up to `SWEPT_MAX` expired rows, free some of what captures have left, and let the tier do its part.

        Called between two hooks, so no use of `items` is valid any more.
        """
        for table in self.tables:
            table.iterations.clear()
        self._tier.turn()
        rest, is_timed = SWEPT_MAX, False
        for table in self.tables:
            rest -= table.sweep(rest)
            is_timed = is_timed or table.is_timed
        garbage = self._owner.garbage
        while garbage and rest:
            if garbage[-1]:
                garbage[-1].pop()
                rest -= 1
            else:
                garbage.pop()
        self.needs_sweep = is_timed or bool(garbage) or self._tier.has_turns
