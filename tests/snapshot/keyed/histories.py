"""Histories of keyed state: what each capture wrote, and a dict that says what a restore must give back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from hypothesis import strategies as st

from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.keyed.decoding import rows_of
from cutline.snapshot.keyed.encoding import encoding
from cutline.snapshot.keyed.kinds import StateKind
from cutline.snapshot.keyed.rows import CapturedRows, DirtyTable, StateSpec
from cutline.snapshot.keyed.segment import Segment
from cutline.snapshot.plan.topology import KEY_GROUPS

ALL_GROUPS = range(KEY_GROUPS)
CODEC = Codec()

#: {(state, key, sub-key): (type of the value, text of the value, expiry)}: texts, because nan is not equal to itself
Rows: TypeAlias = dict[tuple[str, Any, Any], tuple[type, str, float | None]]

#: States of all kinds, two of them with a time-to-live. Their names are not in the order of their first use.
SPECS = (
    StateSpec("total", StateKind.REDUCING),
    StateSpec("last", StateKind.VALUE, ttl=3.0),
    StateSpec("items", StateKind.LIST),
    StateSpec("by user", StateKind.MAP, ttl=2.0),
    StateSpec("#timers", StateKind.TIMERS),
)

ints = st.one_of(st.integers(-2, 2), st.sampled_from([2**7, 2**8, 2**31, -(2**31), 2**63, -(2**63), 2**64, -(2**90)]))
atoms = st.one_of(st.none(), st.booleans(), ints, st.text("ab\ud800é\0", max_size=3), st.binary(max_size=3))
keys = st.one_of(atoms, st.recursive(atoms, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=4))
values = st.one_of(
    *(st.none(), st.booleans(), ints, st.floats(), st.text("a\ud800é", max_size=40)),
    st.lists(st.integers(0, 9), max_size=3).map(CODEC.encode),
)


@dataclass(frozen=True)
class Write:
    """A row that a hook wrote."""

    spec: StateSpec
    key: Any
    sub: Any
    value: Any
    expires: float | None


@dataclass(frozen=True)
class Capture:
    """What was written between two captures. Each list of writes becomes tables of its own."""

    now: float
    writes: tuple[tuple[Write, ...], ...]

    def captured(self, groups: range = ALL_GROUPS) -> CapturedRows:
        """The dicts that a tier passes to storage."""
        return CapturedRows(self.now, groups, tuple(table for part in self.writes for table in tables_of(part)))


def tables_of(writes: tuple[Write, ...]) -> list[DirtyTable]:
    """The dicts of writes, a table a state. The last write of a row counts."""
    tables: dict[str, DirtyTable] = {}
    for write in writes:
        expiries: dict[Any, Any] | None = {} if write.spec.ttl is not None else None
        table = tables.setdefault(write.spec.name, DirtyTable(write.spec, {}, expiries))
        if write.spec.form.has_sub_keys:
            table.rows.setdefault(write.key, {})[write.sub] = write.value
            if table.expiries is not None:
                table.expiries.setdefault(write.key, {})[write.sub] = write.expires
        else:
            table.rows[write.key] = write.value
            if table.expiries is not None:
                table.expiries[write.key] = write.expires
    return list(tables.values())


@st.composite
def histories(
    draw: st.DrawFn, captures_max: int = 5, pool: tuple[Any, ...] = (), specs_of: tuple[StateSpec, ...] = SPECS
) -> list[Capture]:
    """Captures in the order of time, whose writes meet in few keys and few states."""
    specs = draw(st.lists(st.sampled_from(specs_of), min_size=1, max_size=3))
    drawn = list(pool) or draw(st.lists(keys, min_size=1, max_size=3))
    subs = draw(st.lists(keys, min_size=1, max_size=2))
    now, found = 0.0, []
    for _ in range(draw(st.integers(1, captures_max))):
        now += draw(st.integers(0, 2))
        found.append(Capture(now, tuple(draw(st.lists(_writes(now, specs, drawn, subs), min_size=1, max_size=2)))))
    return found


@st.composite
def _writes(draw: st.DrawFn, now: float, specs: list[StateSpec], pool: list[Any], subs: list[Any]) -> tuple[Write, ...]:
    found = []
    for _ in range(draw(st.integers(0, 4))):
        spec = draw(st.sampled_from(specs))
        value = draw(values)
        times: list[Any] = [1, 1.0, 2.5]  # an int and an equal float are one time
        own_subs = times if spec.kind is StateKind.TIMERS else subs
        sub = draw(st.sampled_from(own_subs)) if spec.form.has_sub_keys else None
        # A row may have expired before its capture, and a tombstone never expires.
        expires = None if spec.ttl is None or value is None else now + draw(st.integers(-1, 6))
        found.append(Write(spec, draw(st.sampled_from(pool)), sub, value, expires))
    return tuple(found)


def model_of(history: list[Capture]) -> Rows:
    """What a restore at the last capture must give back."""
    rows: Rows = {}
    for capture in history:
        for write in (each for part in capture.writes for each in part):
            where = (write.spec.name, write.key, write.sub)
            rows.pop(where, None)
            if write.value is not None and (write.expires is None or write.expires > capture.now):
                rows[where] = as_row(write.value, write.expires)
    now = history[-1].now
    return {where: row for where, row in rows.items() if row[2] is None or row[2] > now}


def as_row(value: Any, expires: float | None) -> tuple[type, str, float | None]:
    """A row to compare. Ints and texts that MessagePack has not come back encoded."""
    if type(value) in (int, str):
        try:
            CODEC.pack(value)
        except (OverflowError, UnicodeEncodeError):
            value = CODEC.encode(value)
    return type(value), repr(value), expires


def encoded(captured: CapturedRows) -> Segment:
    """The segment of captured rows, without pauses."""
    chunks = encoding(captured, CODEC)
    while True:
        try:
            next(chunks)
        except StopIteration as end:
            segment: Segment = end.value
            return segment


def rows_in(segments: list[Segment]) -> Rows:
    """All rows of segments that have no row in common."""
    rows: Rows = {}
    for segment in segments:
        for spec in segment.states:
            for found_keys, subs, found, expires in rows_of(segment, spec.name, chunk_rows=3):
                count = len(found_keys)
                for key, sub, value, expiry in zip(
                    found_keys, subs or [None] * count, found, expires or [None] * count, strict=True
                ):
                    assert (spec.name, key, sub) not in rows, "a row stands twice"
                    rows[spec.name, key, sub] = as_row(value, expiry)
    return rows
