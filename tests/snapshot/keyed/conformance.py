"""The suite that every tier must pass: states of all kinds against plain dicts, over captures, restores and merges.

`conformance(make_tier)` returns a Hypothesis state machine. A new tier is given for each restore, because a tier is a
cache: rows come from the segments only.
"""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from cutline.snapshot.keyed.merging import merged
from cutline.snapshot.keyed.segment import Segment
from cutline.snapshot.subtask.timers import NO_KEY
from tests.run_size import scaled
from tests.snapshot.keyed.keyed_subtask import KeyedSubtask, TierMaker

TTL = 3.0
#: True is the key 1, and None is a key
KEYS: tuple[Any, ...] = (None, 1, "a", "\ud800", b"a", ("a", None), 2**70)
VALUES: tuple[Any, ...] = (
    *(0, True, 1.5, "", "é\ud800", 2**70, b"", b"bytes", float("nan")),
    *([1, [2]], {"a": {"b": 1}}, (1, "t"), {3}),
)
keys = st.sampled_from([*KEYS, True])
values = st.sampled_from(VALUES).map(copy.deepcopy)
NAMES = ("v", "vt", "r", "nt", "rt", "l", "lt", "m", "mt")
#: {name: whether its rows expire} of the states that reduce numbers
NUMBERED = {"r": False, "nt": True}
many = st.lists(values, max_size=3)
timed = st.booleans()

#: {key: rows}; a row is (value, end of its time). VALUE, REDUCING: one row; LIST: a list of rows; MAP: a dict of rows
Model = dict[str, dict[Any, Any]]


def exact(value: Any) -> Any:
    """The value and the types inside it, comparable although nan is not equal to itself."""
    if isinstance(value, dict):
        return ("dict", {named(key): exact(each) for key, each in value.items()})
    if isinstance(value, list | tuple):
        return (type(value).__name__, [exact(each) for each in value])
    return (type(value).__name__, repr(value))


def named(key: Any) -> str:
    """The key, of which True is another form of 1."""
    return repr(int(key) if isinstance(key, bool) else key)


class TierMachine(RuleBasedStateMachine):
    """One subtask and its dicts."""

    make_tier: TierMaker
    #: numbers that are added
    numbers: tuple[int | float, ...] = (1, -2, 0.5, 2**70)
    subtask: KeyedSubtask

    def teardown(self) -> None:
        if hasattr(self, "subtask"):
            self.subtask.tier.close()

    def made(self) -> KeyedSubtask:
        """A subtask of a new incarnation."""
        return KeyedSubtask(self.make_tier, self.segments, self.now)

    @initialize()
    def begin(self) -> None:
        self.model: Model = {name: {} for name in NAMES}
        self.timers: dict[tuple[Any, float], None] = {}
        self.segments: tuple[Segment, ...] = ()
        #: what can be restored: the segments, the dicts and the timers at each capture
        self.history: list[tuple[tuple[Segment, ...], Model, dict[tuple[Any, float], None]]] = []
        self.now = 100.0
        self.open()

    def open(self) -> None:
        """A new incarnation."""
        self.teardown()
        ask = self.subtask = self.made()
        self.v, self.vt = ask.value("v"), ask.value("vt", TTL)
        self.r, self.rt = ask.reducing("sum", "r"), ask.reducing(_joined, "rt", TTL)
        self.nt = ask.reducing("sum", "nt", TTL)
        self.l, self.lt = ask.list("l"), ask.list("lt", TTL)
        self.m, self.mt = ask.map("m"), ask.map("mt", TTL)
        self.kept_update = self.v.update  # a node may keep a method for ever
        self.subtask.states.opened()

    def _end(self, is_timed: bool) -> float:
        return self.now + TTL if is_timed else float("inf")

    def _alive(self, rows: list[Any]) -> list[Any]:
        return [row for row in rows if row[1] > self.now]

    # ---------------------------------------------------------------- writes

    @rule(key=keys, value=values, is_timed=timed)
    def update(self, key: Any, value: Any, is_timed: bool) -> None:
        self.model["vt" if is_timed else "v"][key] = (copy.deepcopy(value), self._end(is_timed))
        with self.subtask.key(key):
            (self.vt.update if is_timed else self.kept_update)(value)
        if isinstance(value, list):
            value.append("changed afterwards")

    @rule(pairs=st.lists(st.tuples(keys, values), max_size=4), is_timed=timed)
    def update_all(self, pairs: list[tuple[Any, Any]], is_timed: bool) -> None:
        for key, value in pairs:
            self.model["vt" if is_timed else "v"][key] = (value, self._end(is_timed))
        (self.vt if is_timed else self.v).updateAll([key for key, _ in pairs], [value for _, value in pairs])

    def _sum(self, name: str, key: Any, value: Any) -> None:
        alive = self._alive([self.model[name].get(key, (None, 0.0))])
        self.model[name][key] = (alive[0][0] + value if alive else value, self._end(NUMBERED[name]))

    @rule(key=keys, data=st.data(), name=st.sampled_from([*NUMBERED]))
    def add_number(self, key: Any, data: st.DataObject, name: str) -> None:
        value = data.draw(st.sampled_from(self.numbers))
        self._sum(name, key, value)
        with self.subtask.key(key):
            getattr(self, name).add(value)

    @rule(listed=st.lists(keys, max_size=6), data=st.data(), name=st.sampled_from([*NUMBERED]))
    def add_numbers(self, listed: list[Any], data: st.DataObject, name: str) -> None:
        added = [data.draw(st.sampled_from([None, *self.numbers])) for _ in listed]
        for key, value in zip(listed, added, strict=True):
            if value is not None:
                self._sum(name, key, value)
        getattr(self, name).addAll(listed, added)

    @rule(pairs=st.lists(st.tuples(keys, st.sampled_from([["x"], ["y", 1]])), max_size=4))
    def add_lists(self, pairs: list[tuple[Any, list[Any]]]) -> None:
        for key, value in pairs:
            alive = self._alive([self.model["rt"].get(key, (None, 0.0))])
            self.model["rt"][key] = (_joined(alive[0][0], value) if alive else value, self._end(True))
        self.rt.addAll([key for key, _ in pairs], [value for _, value in pairs])

    @rule(key=keys, added=many, is_timed=timed)
    def append(self, key: Any, added: list[Any], is_timed: bool) -> None:
        rows = self.model["lt" if is_timed else "l"].setdefault(key, [])
        rows += [(value, self._end(is_timed)) for value in added]
        with self.subtask.key(key):
            (self.lt if is_timed else self.l).appendList(added)

    @rule(key=keys, put=many, is_timed=timed)
    def put(self, key: Any, put: list[Any], is_timed: bool) -> None:
        self.model["lt" if is_timed else "l"][key] = [(value, self._end(is_timed)) for value in put]
        with self.subtask.key(key):
            (self.lt if is_timed else self.l).put(put)

    @rule(key=keys, sub=keys, value=values, is_timed=timed)
    def update_value(self, key: Any, sub: Any, value: Any, is_timed: bool) -> None:
        self.model["mt" if is_timed else "m"].setdefault(key, {})[sub] = (value, self._end(is_timed))
        with self.subtask.key(key):
            (self.mt if is_timed else self.m).updateValue(sub, value)

    @rule(key=keys, sub=keys, is_timed=timed)
    def remove_key(self, key: Any, sub: Any, is_timed: bool) -> None:
        self.model["mt" if is_timed else "m"].get(key, {}).pop(sub, None)
        with self.subtask.key(key):
            (self.mt if is_timed else self.m).removeKey(sub)

    @rule(key=keys, name=st.sampled_from(NAMES), in_bulk=st.booleans())
    def clear(self, key: Any, name: str, in_bulk: bool) -> None:
        self.model[name].pop(key, None)
        if in_bulk:
            getattr(self, name).clearAll([key])
            return
        with self.subtask.key(key):
            getattr(self, name).clear()

    @rule(key=st.sampled_from([*KEYS, NO_KEY]), at=st.sampled_from([1.0, 2.0, 2.5, 300.0]), is_deleted=st.booleans())
    def set_timer(self, key: Any, at: float, is_deleted: bool) -> None:
        timers = self.subtask.timers
        if is_deleted:
            timers.delete(at, key)
            self.timers.pop((key, at), None)
        else:
            timers.register(at, key)
            self.timers[key, at] = None

    @rule(now=st.sampled_from([1.0, 2.5, 300.0]), count=st.integers(1, 3))
    def fire(self, now: float, count: int) -> None:
        for _ in range(count):
            first = min((at for _, at in self.timers), default=301.0)
            due = self.subtask.timers.pop_due(now)
            assert (first, due is None) == ((due[0], False) if due else (first, first > now))
            if due is not None:
                del self.timers[due[1], due[0]]

    # ---------------------------------------------------------------- time, captures, restores

    @rule(seconds=st.sampled_from([0.5, 2.0, 5.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.subtask.context.now = self.now

    @rule()
    def sweep(self) -> None:
        self.subtask.states.sweep()

    @rule()
    def capture(self) -> None:
        segment = self.subtask.capture_segment()
        if segment is not None:
            self.segments = (*self.segments, segment)
        keyed = {timer: None for timer in self.timers if timer[0] is not NO_KEY}
        self.history.append((self.segments, copy.deepcopy(self.model), keyed))

    @rule(back=st.integers(0, 3))
    def restore(self, back: int) -> None:
        history = self.history[: len(self.history) - back]
        self.segments, self.model, self.timers = ((), {name: {} for name in self.model}, {})
        if history:
            self.segments, model, timers = history[-1]
            self.model, self.timers = copy.deepcopy(model), dict(timers)
        self.history = history
        self.open()

    @rule(count=st.integers(2, 3))
    def merge_oldest(self, count: int) -> None:
        if len(self.segments) >= count:
            self.segments = (merged(self.segments[:count], is_whole=True), *self.segments[count:])

    # ---------------------------------------------------------------- the states are the dicts

    @invariant()
    def states_are_the_dicts(self) -> None:
        expected = {name: {} for name in self.model}  # type: Model
        for key in KEYS:
            for name, rows in self.model.items():
                if key not in rows:
                    continue
                found = rows[key]
                shown: Any = [value for value, _ in self._alive(found)] if name[0] == "l" else None
                if name[0] == "m":
                    shown = {sub: row[0] for sub, row in found.items() if row[1] > self.now}
                elif name[0] != "l":
                    shown = found[0] if found[1] > self.now else None
                if shown or (name[0] not in "lm" and shown is not None):
                    expected[name][key] = shown
            self._check_key(key, expected)
        for name, rows in expected.items():
            assert exact(dict(getattr(self, name).items())) == exact(rows), name
        self._check_timers()

    def _check_key(self, key: Any, expected: Model) -> None:
        with self.subtask.key(key):
            for name in ("v", "vt", "r", "nt", "rt"):
                state, value = getattr(self, name), expected[name].get(key)
                assert exact(state.get()) == exact(value), (name, key)
                assert exact(state.getAll([key, key])) == exact([value, value])
            for name in ("l", "lt"):
                value = expected[name].get(key, [])
                assert exact(getattr(self, name).get()) == exact(value), (name, key)
                assert getattr(self, name).exists() == bool(value)
            for name in ("m", "mt"):
                state, value = getattr(self, name), expected[name].get(key, {})
                assert exact(dict(state.iterator())) == exact(value), (name, key)
                assert set(map(named, state.keys())) == set(map(named, value))
                for sub in KEYS:
                    assert exact(state.getValue(sub)) == exact(value.get(sub))
                    assert state.containsKey(sub) == (sub in value)

    def _check_timers(self) -> None:
        timers = self.subtask.timers
        assert Counter(timers.each()) == Counter((at, key) for key, at in self.timers)
        assert timers.next_at() == min((at for _, at in self.timers), default=None)


def _joined(total: list[Any], added: list[Any]) -> list[Any]:
    """An associative function that does not commute."""
    return (total + added)[-6:]


def conformance(make_tier: TierMaker, machine: type[TierMachine] = TierMachine, *, examples: int = 60) -> Any:
    """Return a test case for a tier.

    Parameters
    ----------
    make_tier : callable
        Returns a new, empty tier for one incarnation of one subtask.
    machine : type
        A machine that has rules of the tier too.
    examples : int
        Number of examples.
    """
    made: Any = type(machine.__name__, (machine,), {"make_tier": staticmethod(make_tier)})
    case = made.TestCase
    case.settings = settings(max_examples=scaled(examples), stateful_step_count=40, deadline=None)
    return case
