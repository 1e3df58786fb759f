"""Put the rows of a snapshot into tables. Values stay encoded, apart from atoms."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import pyarrow as pa

from cutline.snapshot.channel.pickles import NotSerialisable
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.errors import RestoreRefused
from cutline.snapshot.keyed.decoding import DecodedRows, rows_of
from cutline.snapshot.keyed.kinds import StateKind
from cutline.snapshot.keyed.rows import TIMERS_STATE
from cutline.snapshot.keyed.rows_codec import references_of
from cutline.snapshot.keyed.segment import Segment
from cutline.snapshot.keyed.table import StateTable
from cutline.snapshot.keyed.versions import LocalVersion, VersionedState


class _Known(NamedTuple):
    """Facts of the headers of all segments, or of the version of a local database, by the name of a state."""

    kinds: dict[str, dict[StateKind, None]]
    #: names of states in segments with rows that may expire
    expiring: dict[str, None]
    groupings: dict[str, dict[tuple[str, ...], None]]
    #: references of the pickles in rows to classes and functions, encoded
    references: dict[str, set[bytes]]


class RestoredRows:
    """The rows of a subtask in a snapshot.

    Parameters
    ----------
    segments : sequence of Segment
        Oldest first. Of a row in several segments the newest counts. Each may be read from the store when it is
        taken, so that a state which exceeds memory is never in memory as a whole.
    now : float
        `Context.now` of the subtask; rows that have expired by then are absent.
    subtask : str
        Name of the subtask, for errors.
    is_rescaled : bool
        Whether the node had another parallelism in the snapshot.
    version : LocalVersion, optional
        Version of a local database that has the rows, in place of segments.
    """

    def __init__(
        self,
        segments: Sequence[Segment],
        now: float,
        subtask: str,
        *,
        is_rescaled: bool = False,
        version: LocalVersion | None = None,
    ) -> None:
        self._segments = segments
        self.version = version
        #: whether the node had another parallelism in the snapshot
        self.is_rescaled = is_rescaled
        #: seconds since the epoch; rows that have expired by then are absent
        self.now = now
        self._subtask = subtask
        #: None until all segments were taken once
        self._known: _Known | None = None

    @property
    def segments(self) -> Sequence[Segment]:
        """The segments, oldest first."""
        return self._segments

    def each(self) -> Iterator[Segment]:
        """Yield the segments, oldest first."""
        known = _Known({}, {}, {}, {})
        for segment in self._segments:
            has_expiries = segment.rows.column("expires").null_count < segment.rows.num_rows
            references = {} if self._known is not None else _references(segment)
            for spec in segment.states:
                known.references.setdefault(spec.name, set()).update(references.get(spec.name, ()))
                known.kinds.setdefault(spec.name, {})[spec.kind] = None
                known.groupings.setdefault(spec.name, {})[segment.grouped_by] = None
                if has_expiries or (spec.form.leaves_gaps and spec.ttl is not None):
                    known.expiring[spec.name] = None
            yield segment
        if self.version is None and self._known is None:  # a version has told its states, and has no segments
            self._known = known

    def know(self, states: Iterable[VersionedState]) -> None:
        """Note the states of the version that has the rows."""
        self._known = _Known({}, {}, {}, {})
        for state in states:
            self._known.kinds[state.name] = {state.kind: None}
            if state.is_timed:
                self._known.expiring[state.name] = None

    def _known_states(self) -> _Known:
        if self._known is None:
            for _ in self.each():
                pass
        assert self._known is not None
        return self._known

    def has_expiries(self, name: str) -> bool:
        """Return whether a row of a state may expire, or one of a list may have expired and left a gap."""
        return name in self._known_states().expiring

    def groupings(self, name: str) -> Iterable[tuple[str, ...]]:
        """Return the columns by which rows are grouped, of each segment that has a state of this name."""
        return self._known_states().groupings.get(name, {})

    def timers(self) -> Iterator[tuple[Any, float]]:
        """Yield the key and the time of each timer."""
        found: dict[tuple[Any, float], bool | None] = {}
        for keys, subs, values, _ in self._rows_of(TIMERS_STATE, StateKind.TIMERS):
            assert subs is not None
            found.update(zip(zip(keys, subs, strict=True), values, strict=True))
        return (timer for timer, value in found.items() if value is not None)

    def rows(self, name: str, kind: StateKind) -> Iterator[tuple[list[Any], list[Any]]]:
        """Yield the keys and the values of a state without sub-keys, oldest first. Raises as `fill`."""
        for keys, _, values, _ in self._rows_of(name, kind):
            yield keys, values

    def fill(self, table: StateTable) -> None:
        """Put the rows of a state into its table.

        Raises
        ------
        RestoreRefused
            if the stored state is of another kind.
        SnapshotCorrupt
            if a row cannot be decoded.
        """
        with _without_collector():
            for rows in self._rows_of(table.spec.name, table.spec.kind):
                table.restore(rows, self.now)
            table.restored()

    def _rows_of(self, name: str, kind: StateKind) -> Iterator[DecodedRows]:
        """Yield the rows of a state, those of the oldest segment first."""
        self.check_kind(name, kind)
        for segment in self.each():
            yield from rows_of(segment, name)

    def check_kind(self, name: str, kind: StateKind) -> None:
        """Raise RestoreRefused if the stored state of this name is of another kind."""
        for stored_kind in self._known_states().kinds.get(name, ()):
            if stored_kind is not kind:
                raise RestoreRefused(
                    f"{self._subtask}: state {name!r} is {stored_kind.name} in the snapshot and {kind.name} in the "
                    "node: give the new state another name"
                )

    def check_classes(self, name: str, codec: Codec) -> None:
        """Raise RestoreRefused if a row of a state refers to a class or function that the program does not have."""
        try:
            codec.require(self._known_states().references.get(name, ()))
        except NotSerialisable as error:
            raise RestoreRefused(f"{self._subtask}: rows of state {name!r} cannot be read here: {error}") from error


def _references(segment: Segment) -> dict[str, set[bytes]]:
    """Return the encoded references in the rows of each state of a segment."""
    values, states = segment.rows.column("value"), segment.rows.column("state").to_numpy()
    if not references_of(values):
        return {}
    return {
        spec.name: references_of(values.filter(pa.array(states == number)))
        for number, spec in enumerate(segment.states)
    }


@contextmanager
def _without_collector() -> Iterator[None]:
    """Pause the collector, because it would search all new rows for garbage again and again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
