"""The gate of an aggregate holds messages only while something else than a cut can free memory (PROTOCOL 13.14)."""

from __future__ import annotations

from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from cutline.snapshot.channel.output_buffer import BackpressureFlag
from cutline.snapshot.modes.totals.difference_gate import DifferenceGate, HeldDifferences
from cutline.snapshot.operators.monoids import Count
from cutline.snapshot.operators.persistent_aggregate import PersistentAggregate
from cutline.snapshot.testing.simulation.kept_totals import KeptTotals

_BYTES_MAX = 1000


class Gated:
    """A gate, its aggregate, and the flag that it closes."""

    def __init__(self) -> None:
        self.node = PersistentAggregate(Count(), KeptTotals())
        self.node.open(cast("Any", None))
        self.flag = BackpressureFlag()
        self.flag.closed = 1  # by somebody else
        self.gate = DifferenceGate(self.node, self.flag, _BYTES_MAX)
        self.keys = 0

    def add(self, keys: int) -> None:
        """Add new keys, as a slice of messages does."""
        difference = self.node.differences.setdefault(self.node.epoch, self.node.monoid.accumulator())
        for _ in range(keys):
            self.keys += 1
            difference.add(self.keys, 1)
        self.gate.check()

    def is_closed(self) -> bool:
        """Whether the gate has closed the flag, once."""
        closed: int = self.flag.closed
        assert closed in (1, 2)
        return closed == 2


def test_messages_wait_while_a_difference_waits_for_the_store() -> None:
    """Above the bytes of both, and not longer than the store takes."""
    gated = Gated()
    gated.gate.hold(HeldDifferences(True, _BYTES_MAX - 300))
    gated.add(1)
    assert not gated.is_closed()
    gated.add(3)
    assert gated.is_closed() and not gated.gate.needs_snapshot
    gated.gate.hold(HeldDifferences(False, 0))
    assert not gated.is_closed() and not gated.gate.needs_snapshot


def test_without_such_a_difference_a_cut_is_wanted() -> None:
    """A closed gate would wait for a marker that stands behind the messages that it holds."""
    gated = Gated()
    gated.add(20)
    assert gated.node.held_bytes > _BYTES_MAX
    assert gated.gate.needs_snapshot and not gated.is_closed()
    gated.node.take_difference(1)
    assert not gated.gate.needs_snapshot


def test_the_difference_of_an_aborted_snapshot_closes_nothing() -> None:
    """It waits for the next cut, and not for the store; but its bytes count."""
    gated = Gated()
    gated.gate.hold(HeldDifferences(False, _BYTES_MAX))
    gated.add(1)
    assert gated.gate.needs_snapshot and not gated.is_closed()


def test_an_empty_difference_waits_as_well() -> None:
    """The store of another subtask is away, so no cut can come: new keys must not fill memory meanwhile."""
    gated = Gated()
    gated.gate.hold(HeldDifferences(True, 0))
    gated.add(20)
    assert gated.is_closed() and not gated.gate.needs_snapshot


@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from((0, 500, 2000)), st.booleans())))
def test_the_gate_is_closed_only_while_something_waits(steps: list[tuple[int, int, bool]]) -> None:
    """Whatever comes: closed or asking exactly above the bytes, never both, closed only with a waiting difference."""
    gated = Gated()
    for keys, size, is_waiting in steps:
        gated.add(keys)
        gated.gate.hold(HeldDifferences(is_waiting, size))
        is_above = size + gated.node.held_bytes > _BYTES_MAX
        assert gated.is_closed() == (is_above and is_waiting)
        assert gated.gate.needs_snapshot == (is_above and not is_waiting)
