"""A cold tier returns the newest row of a key, wherever the row is: cache, changed rows, memtables or store."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from cutline.snapshot.channel.partitioning import key_group
from cutline.snapshot.errors import SnapshotAborted
from cutline.snapshot.graph import Graph
from cutline.snapshot.ids import Subtask
from cutline.snapshot.keyed.encoding import CHUNK_ROWS
from cutline.snapshot.keyed.memtable import Memtable
from cutline.snapshot.keyed.row_store import Steps, removing
from cutline.snapshot.keyed.rows import CapturedRows
from cutline.snapshot.keyed.segment import Segment, no_rows
from cutline.snapshot.modes.steps.determinants import Cut, Fired
from cutline.snapshot.modes.steps.replay import Replay
from cutline.snapshot.modes.steps.replay_turns import ReplayTurns
from cutline.snapshot.node import Context, Node, Source
from cutline.snapshot.subtask.machine import SubtaskMachine
from cutline.snapshot.testing.cold_memory import MemoryRowStore
from tests.snapshot.hosted import Hosted, changes_of
from tests.snapshot.keyed.cold_tiers import LateTier
from tests.snapshot.keyed.keyed_subtask import KeyedSubtask, encoded


def test_a_bulk_write_that_seals_loses_no_row() -> None:
    """A memtable sealed in the middle of a bulk call gets no further rows, because it may have been applied already."""
    tier, keys = LateTier(memtable_rows=100), list(range(1_000))
    tier.writer.is_prompt = True
    subtask = KeyedSubtask(lambda: tier)
    state = subtask.value()
    subtask.states.opened()
    state.updateAll(keys, keys)
    tier.seal()
    tier.turn()
    assert not tier.memtables
    assert state.getAll(keys) == keys


def test_the_entries_of_one_key_fill_a_memtable() -> None:
    """Each entry of a map is a row: few keys with many entries must not fill the memory. Three wait for a fourth."""
    tier = LateTier(memtable_rows=4)
    subtask = KeyedSubtask(lambda: tier)
    entries = subtask.map()
    subtask.states.opened()
    for count in range(1, 5):
        with subtask.key("a"):
            entries.updateValue(count, count)
        tier.turn()
        assert bool(tier.memtables) == (count == 4)


def test_a_sealed_row_is_read_until_it_is_stored() -> None:
    """Neither a turn nor a capture hides the rows of a memtable that waits for the writer."""
    tier = LateTier(cached_rows=1)
    subtask = KeyedSubtask(lambda: tier)
    state = subtask.value()
    subtask.states.opened()
    state.updateAll(["a"], ["b"])
    assert subtask.capture_segment() is not None
    tier.turn()
    assert tier.memtables
    assert not state._table.live  # type: ignore[attr-defined]
    assert state.getAll(["a"]) == ["b"]


def test_an_entry_of_a_map_is_read_wherever_its_row_is() -> None:
    """From a memtable and from the store, by the entry alone. What was never written is absent."""
    tier = LateTier(cached_rows=1)
    subtask = KeyedSubtask(lambda: tier)
    entries = subtask.map()
    subtask.states.opened()
    with subtask.key("a"):
        entries.updateValue("b", 1)
    tier.seal()
    for has_memtables in (True, False):
        tier.turn()
        assert (bool(tier.memtables), entries._table.live) == (has_memtables, {})  # type: ignore[attr-defined]
        with subtask.key("a"):
            assert (entries.getValue("b"), entries.getValue("c")) == (1, None)
        with subtask.key("c"):
            assert not entries.containsKey("b")
        tier.writer.finish()


def test_a_write_goes_to_the_cache_too() -> None:
    """A cached row that is written is the new one also when its memtable has left the read path."""
    tier = LateTier(cached_rows=100)
    subtask = KeyedSubtask(lambda: tier)
    state, timed = subtask.value(), subtask.value("timed", 1e9)
    subtask.states.opened()
    for value in (1, 2):
        state.updateAll(["a"], [value])
        timed.updateAll(["a"], [value])
        assert (state.getAll(["a"]), timed.getAll(["a"])) == ([value], [value])
        tier.seal()
        tier.writer.finish()
        tier.turn()
    assert not tier.memtables
    assert (state.getAll(["a"]), timed.getAll(["a"])) == ([2], [2])


def test_an_iteration_keeps_its_memtables() -> None:
    """Rows that are applied in the middle of a use of items are seen once."""
    tier = LateTier(memtable_rows=1_000)
    subtask = KeyedSubtask(lambda: tier)
    state = subtask.value()
    subtask.states.opened()
    state.updateAll(list(range(10)), list(range(10)))
    tier.seal()
    subtask.capture_segment()
    items = state.items()
    found = [next(items)]
    tier.writer.finish()
    tier.turn()
    tier.writer.finish()
    assert sorted([*found, *items]) == [(key, key) for key in range(10)]


class _Numbers(Source):
    """Sends what the test gives it, and never ends."""

    def poll(self, context: Context) -> float:
        return 1e6

    def onMessage(self, message: int, context: Context) -> None:
        context.send(message)


class _Stores(Node):
    """Keeps each message, and leaves an iterator unfinished."""

    def open(self, context: Context) -> None:
        self.v = context.getValueState("v")

    def onMessage(self, message: int, context: Context) -> None:
        self.v.update(message)
        self.left = self.v.items()
        next(self.left)


def test_a_subtask_goes_on_when_its_memtables_are_applied() -> None:
    """Two memtables that wait stop the subtask. Once the store has them, the subtask frees them and takes messages."""
    tier = LateTier()
    graph = Graph("cold").add("a", _Numbers()).add("b", _Stores()).connect("a", "b", key=int)
    host = Hosted(graph, tier_of=lambda subtask: tier if subtask == Subtask("b") else LateTier())
    for message in range(100):
        host["a"].inject(message, 0.0)
    host.seal_and_carry("a", "b")
    for _ in range(100):
        for _ in range(100):
            if host["b"].runnable:
                host["b"].run(0.0, 3)
        if not host["b"].backpressure.closed:
            break
        tier.writer.finish()
        assert encode_sealed(host["b"]) <= 4
    assert host.node("b").v.getAll(range(100)) == list(range(100))


def encode_sealed(machine: SubtaskMachine) -> int:
    """Encode the rows that have left the tier, as storage does. Return the number of memtables that they were in."""
    sealed = changes_of(machine.take_reports(), CapturedRows)
    for rows in sealed:
        encoded(rows)
    return len(sealed)


def test_a_subtask_waits_until_its_rows_are_encoded() -> None:
    """A prompt writer alone does not let memtables pile up: with four in memory the subtask takes no message."""
    tier = LateTier(memtable_rows=4)
    tier.writer.is_prompt = True
    graph = Graph("cold").add("a", _Numbers()).add("b", _Stores()).connect("a", "b", key=int)
    host = Hosted(graph, tier_of=lambda subtask: tier if subtask == Subtask("b") else LateTier())
    for message in range(100):
        host["a"].inject(message, 0.0)
    host.seal_and_carry("a", "b")
    sealed = 0
    for _ in range(30):
        for _ in range(100):
            if host["b"].runnable:
                host["b"].run(0.0, 1)
        left = encode_sealed(host["b"])
        assert left <= 4
        sealed += left
        tier.writer.finish()
    assert sealed > 20
    assert host["b"].backpressure.closed == 0
    assert host.node("b").v.getAll(range(100)) == list(range(100))


SEGMENT = Segment((), 0.0, no_rows())


@pytest.mark.parametrize("writer_steps", [0, 2, 1_000])
def test_sealed_rows_are_encoded_once(writer_steps: int) -> None:
    """Storage goes on where the writer is, and the writer where storage has ended. Both have all rows."""
    count = 5 * CHUNK_ROWS
    tier = LateTier(memtable_rows=2 * count)
    subtask = KeyedSubtask(lambda: tier)
    state = subtask.value()
    subtask.states.opened()
    state.updateAll(list(range(count)), list(range(count)))
    tier.seal()
    [memtable] = tier.memtables
    done: list[None] = []
    memtable.steps = noted(memtable.steps, done)
    for _ in range(writer_steps):
        tier.writer.step()
    segment = subtask.capture_segment()
    assert len(done) == 5
    tier.writer.finish()
    assert segment is not None
    assert segment.rows.num_rows == len(tier.rows.rows) == count
    assert len(done) == 5
    assert memtable._segment is None


def noted(steps: Steps[Segment], done: list[None]) -> Steps[Segment]:
    """Note each step."""
    for _ in range(1_000):
        try:
            step = next(steps)
        except StopIteration as end:
            segment: Segment = end.value
            return segment
        done.append(None)
        yield step
    raise AssertionError("too many steps")


def test_a_thread_waits_while_another_does_a_step() -> None:
    """A generator runs on one thread at a time. Whoever comes meanwhile tries again later."""

    def steps() -> Steps[Segment]:
        waits.append(next(memtable.encoding()))
        yield None
        return SEGMENT

    waits: list[float | None] = []
    memtable = Memtable((), steps())
    assert next(memtable.encoding()) is None
    assert waits[0]
    own = memtable.encoding()
    assert next(own) is None
    with pytest.raises(StopIteration) as end:
        next(own)
    assert end.value.value is SEGMENT


def test_an_error_of_an_encoding_reaches_writer_and_storage() -> None:
    """Neither waits for ever for rows that nobody will have encoded."""

    def steps() -> Steps[Segment]:
        yield None
        raise ValueError("broken")

    memtable = Memtable((), steps())
    for first in (next(memtable.encoding()), None):
        assert first is None
        with pytest.raises(ValueError, match="broken"):
            next(memtable.encoding())


def test_a_foreign_key_is_refused_and_kept() -> None:
    """A snapshot with a key of another subtask is refused by name. The writer goes on, and all rows are read."""
    tier = LateTier(cached_rows=1)
    subtask = KeyedSubtask(lambda: tier, parallelism=2)
    state = subtask.value()
    subtask.states.opened()
    foreign, own = (next(key for key in range(100) if (key_group(key) < 16_384) is is_own) for is_own in (False, True))
    for key in (foreign, own):
        state.updateAll([key], ["x"])
        tier.seal()
    captured = subtask.capture()
    assert captured is not None
    with pytest.raises(SnapshotAborted, match=f"'v': key {foreign} is of key group"):
        encoded(captured)
    for table in captured.tables:
        table.release()
    tier.writer.finish()
    tier.turn()
    tier.writer.finish()
    assert not tier.memtables and not tier.is_due
    assert state.getAll([foreign, own]) == ["x", "x"]
    state.updateAll([own], ["y"])
    segment = subtask.capture_segment()
    assert segment is not None and segment.rows.num_rows == 1


def test_a_busy_store_gets_no_rows() -> None:
    """Rows wait while the store arranges what it has, and are read from the memtable meanwhile."""
    tier = LateTier(cached_rows=1)
    subtask = KeyedSubtask(lambda: tier)
    state = subtask.value()
    subtask.states.opened()
    tier.rows.refusals = 3
    state.updateAll(["a"], ["b"])
    tier.seal()
    while tier.writer.step():
        assert tier.memtables[0].is_applied == bool(tier.rows.rows)
        assert not tier.rows.rows or not tier.rows.refusals
        tier.turn()
        assert state.getAll(["a"]) == ["b"]
        if not tier.memtables:
            break
    assert tier.rows.rows


def test_a_removal_waits_for_a_busy_store() -> None:
    """Some time between two attempts, because a writer that asks without a pause takes the time of all others."""
    store = MemoryRowStore()
    store.rows |= {b"a": b"1", b"b": b"2"}
    store.refusals = 3
    *waits, last = removing(store, [b"a"])
    assert len(waits) == 3 and all(wait is not None and 0.0 < wait < 0.1 for wait in waits)
    assert (last, store.rows) == (None, {b"b": b"2"})


def test_a_replay_frees_rows_too() -> None:
    """Memtables that wait stop a replay. When they are applied, it has a turn, or it would wait for itself."""
    tier = LateTier()
    graph = Graph("cold").add("a", _Numbers()).add("b", _Stores()).connect("a", "b", key=int)
    host = Hosted(graph, tier_of=lambda subtask: tier if subtask == Subtask("b") else LateTier())
    machine = host["b"]
    machine._turns = ReplayTurns(
        cast("Any", SimpleNamespace(replay=Replay([[Fired(0.0, None), Cut(1, (), (), ())]]))), machine._acts
    )
    assert machine.runnable
    for key in range(2):
        host.node("b").v.updateAll([key], [key])
        tier.seal()
    assert machine.runnable, "the rows that were sealed are to be reported"
    machine.sweep()
    assert (machine.backpressure.closed, machine.runnable) == (1, False)
    tier.writer.finish()
    assert machine.runnable
    machine.sweep()
    assert machine.backpressure.closed == 0
