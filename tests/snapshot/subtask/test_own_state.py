"""The state that a node keeps itself: whole, as deltas, in partitions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutline import Node
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.errors import RestoreRefused, SnapshotCorrupt
from cutline.snapshot.ids import Subtask
from cutline.snapshot.node import FULL
from cutline.snapshot.stored.own_changes import OwnChange, decode_changes, encode_changes
from cutline.snapshot.subtask.inheritance import Donation
from cutline.snapshot.subtask.own_state import OwnState
from tests.run_size import scaled

SUBTASK = Subtask("seen")
GROUPS = range(0, 32_768)


class Seen(Node):
    """Numbers that were seen; deltas are those that are new."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.new: list[int] = []
        self.since: list[int] = []
        self.answers_full = False

    def add(self, *numbers: int) -> None:
        self.seen += numbers
        self.new += numbers

    def snapshotState(self, snapshotId: int, timestamp: float) -> list[int]:
        self.new = []
        return list(self.seen)

    def restoreState(self, state: list[int] | None) -> None:
        self.seen = list(state or ())

    def snapshotDelta(self, sinceSnapshotId: int) -> Any:
        self.since.append(sinceSnapshotId)
        if self.answers_full:
            return FULL
        new, self.new = self.new, []
        return new or None

    def applyDelta(self, delta: list[int]) -> None:
        self.seen += delta


def own_state(node: Node) -> OwnState:
    """The state of a node in a subtask that owns all key groups."""
    return OwnState(node, SUBTASK, Codec(), GROUPS)


def stored(changes: list[OwnChange]) -> list[tuple[bool, memoryview]]:
    """The changes as a restore reads them."""
    body = memoryview(b"".join(bytes(buffer) for buffer in encode_changes(changes)))
    return decode_changes(body, "part")


@settings(max_examples=scaled(100), deadline=None)
@given(
    steps=st.lists(st.one_of(st.lists(st.integers(), max_size=40), st.sampled_from(["full", "restore"])), max_size=30)
)
def test_what_is_captured_restores_the_node(steps: list[Any]) -> None:
    """Whatever was captured as a whole or as deltas, over several restores: the list of changes is the state."""
    node, changes = Seen(), list[OwnChange]()
    own = own_state(node)
    expected: list[int] = []
    for snapshot_id, step in enumerate([*steps, "restore"], 1):
        if step == "restore" and changes:
            node = Seen()
            own = own_state(node)
            own.restore(None, stored(changes), snapshot_id, needs_base=False)
            assert node.seen == expected
        elif isinstance(step, list):
            node.add(*step)
            expected += step
        node.answers_full = step == "full"
        assert own.capture(snapshot_id, 0.0) is None
        change = own.take_change()
        if change is not None:
            changes = [change] if change.is_whole else [*changes, change]
        assert own.take_change() is None
    assert sum(change.size for change in changes[1:]) <= 4096 + 3 * changes[0].size + 400


def test_a_delta_is_asked_for_since_the_last_capture_whether_it_was_published_or_not() -> None:
    """An aborted snapshot's delta is stored all the same, so the next one must not hold it again."""
    node = Seen()
    own = own_state(node)
    for snapshot_id in (3, 5, 9):
        node.add(snapshot_id)
        own.capture(snapshot_id, 0.0)
    assert node.since == [3, 5], "the first capture is whole"
    again = Seen()
    restored = own_state(again)
    restored.restore(None, stored([OwnChange(True, Codec().encode_state({"state": [1]}))]), 7, needs_base=False)
    restored.capture(8, 0.0)
    assert again.since == [7]


def test_a_capture_behind_a_failed_one_is_whole() -> None:
    """The hook has taken what was new, and nobody has it any more."""

    class Unreadable(Seen):
        def snapshotDelta(self, sinceSnapshotId: int) -> Any:
            self.new = []
            return lambda: None if self.answers_full else open("/")

    class Raising(Seen):
        def snapshotDelta(self, sinceSnapshotId: int) -> Any:
            self.new = []
            raise RuntimeError("broken")

    node = Raising()
    own = own_state(node)
    own.capture(1, 0.0)
    own.take_change()
    node.add(1)
    with pytest.raises(RuntimeError):
        own.capture(2, 0.0)
    assert own.take_change() is None
    own.capture(3, 0.0)
    change = own.take_change()
    assert change is not None and change.is_whole


def test_the_first_capture_of_a_fork_is_whole() -> None:
    """A run lists no files of another run."""
    node = Seen()
    own = own_state(node)
    own.restore(None, stored([OwnChange(True, Codec().encode_state({"state": [1]}))]), 7, needs_base=True)
    own.capture(8, 0.0)
    change = own.take_change()
    assert change is not None and change.is_whole


def test_deltas_for_a_class_that_cannot_apply_them_are_refused() -> None:
    """Restoring the whole state alone would lose what changed since."""

    class Old(Node):
        def restoreState(self, state: Any) -> None:
            pass

    changes = [OwnChange(number == 0, Codec().encode_state({"state": [number]})) for number in range(2)]
    with pytest.raises(RestoreRefused, match=r"seen\[0\]: the snapshot holds its state and 1 deltas.*no\s+applyDelta"):
        own_state(Old()).restore(None, stored(changes), 7, needs_base=False)


def test_an_older_state_is_refused_by_a_class_that_cannot_migrate_it() -> None:
    """The error names both versions and the hook to write. Without a state there is nothing to migrate."""

    class Newer(Seen):
        stateVersion = 2

    own = OwnState(Newer(), SUBTASK, Codec(), GROUPS, from_version=1)
    own.check_version(has_state=False)
    with pytest.raises(
        RestoreRefused, match=r"^seen\[0\] has states of version 1 .* stateVersion is 2: define migrateState\(state"
    ):
        own.check_version(has_state=True)


@pytest.mark.parametrize(
    ("pairs", "fault"),
    [
        ([(1, b"x"), (None, b"y")], None),
        (7, "returns pairs"),
        ([(1, "text")], "no (partition, bytes)"),
        ([(40_000, b"x")], "key groups 0 to 32767"),
        ([(True, b"x")], "key groups 0 to 32767"),
    ],
)
def test_a_partitioned_node_returns_pairs(pairs: Any, fault: str | None) -> None:
    """A partition is a key group of the subtask or None, and its part is bytes, so that it can be moved."""

    class Parts(Node):
        partitioned = True

        def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
            return pairs

    own = own_state(Parts())
    if fault is None:
        assert own.capture(1, 0.0) == pairs
    else:
        with pytest.raises((TypeError, ValueError)) as raised:
            own.capture(1, 0.0)
        assert fault in str(raised.value)


def test_a_damaged_body_is_named() -> None:
    """A table that announces more than there is, or nothing at all."""
    body = b"".join(bytes(buffer) for buffer in encode_changes([OwnChange(True, (b"abc",))]))
    for damaged in (body[:-1], body[:3], b"", body + b"x"):
        with pytest.raises(SnapshotCorrupt, match="part"):
            decode_changes(memoryview(damaged), "part")


# ---------------------------------------------------------------- taking over from several


class Pairs(Node):
    """Keeps the pairs that it was given, and what came behind them."""

    partitioned = True

    def __init__(self) -> None:
        self.pairs: Any = "nothing"
        self.deltas: list[Any] = []

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return self.pairs

    def restoreState(self, state: Any) -> None:
        self.pairs = state

    def snapshotDelta(self, sinceSnapshotId: int) -> Any:
        return [(50, b"delta")]

    def applyDelta(self, delta: Any) -> None:
        self.deltas.append(delta)


def donation(*changes: Any, state: Any = None) -> Donation:
    """A donor's whole state in its state part, or its whole state and deltas in a list."""
    encoded = [OwnChange(not place, Codec().encode_state({"state": each})) for place, each in enumerate(changes)]
    return Donation(state, tuple(stored(encoded)) if encoded else ())


def heir(node: Node, groups: range = range(100), partitions: tuple[str, ...] | None = None) -> OwnState:
    """Own state of a taker of these groups."""
    return OwnState(node, SUBTASK, Codec(), groups, partitions)


def test_a_taker_gets_the_pairs_of_its_key_groups() -> None:
    """Of all donors, in their order, and of each donor in its order; the part for all once."""
    node = Pairs()
    one = donation(state=[(None, b"all"), (7, b"7a"), (200, b"foreign"), (3, b"3"), (7, b"7b")])
    heir(node).inherit([one, donation(state=[(None, b"all"), (99, b"99"), (100, b"foreign")])], 7)
    assert node.pairs == [(None, b"all"), (7, b"7a"), (3, b"3"), (7, b"7b"), (99, b"99")]
    assert node.deltas == []


def test_deltas_of_several_donors_are_divided_too() -> None:
    """Behind the whole states of all, so that no whole state hides a delta."""
    node = Pairs()
    one = donation([(1, b"a")], [(1, b"a1"), (300, b"foreign")], [(2, b"a2")])
    heir(node).inherit([one, donation([(60, b"b")], [(60, b"b1")])], 7)
    assert node.pairs == [(1, b"a"), (60, b"b")]
    assert node.deltas == [[(1, b"a1")], [(2, b"a2")], [(60, b"b1")]]


def test_a_part_for_all_in_deltas_is_taken_once() -> None:
    """If all donors have the same, in the same order."""
    node = Pairs()
    donors = [donation([(None, b"a")], [(None, b"b"), (group, b"x")], [(None, b"c")]) for group in (1, 2)]
    heir(node).inherit(donors, 7)
    assert node.pairs == [(None, b"a")]
    assert node.deltas == [[(None, b"b"), (1, b"x")], [(None, b"c")], [(2, b"x")]]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (donation(state=[(None, b"a")]), donation(state=[(None, b"b")])),
        (donation(state=[(None, b"a")]), donation(state=[])),
        (donation(state=[(None, b"a")]), donation(state=None)),
        (donation(state=[(None, b"a"), (None, b"b")]), donation(state=[(None, b"b"), (None, b"a")])),
        (donation([(None, b"a")], [(None, b"b")]), donation([(None, b"a")])),
        (donation([(None, b"a")], [(None, b"b")]), donation([(None, b"a")], [(None, b"c")])),
    ],
)
def test_parts_for_all_that_differ_are_refused(one: Donation, other: Donation) -> None:
    """Whole or in deltas, because none of them is that of all."""
    for donors in ([one, other], [other, one]):
        with pytest.raises(
            RestoreRefused, match=r"^seen\[0\]: takes over .* parts of the partition None differ.* submit"
        ):
            heir(Pairs()).inherit(donors, 7)


def test_a_state_without_pairs_is_refused_by_a_node_that_divides_its_state() -> None:
    """It was taken by the class before."""
    with pytest.raises(
        RestoreRefused, match=r"^seen\[0\]: its state is divided by pairs.* the snapshot holds \{'a': 1\}"
    ):
        heir(Pairs()).inherit([donation(state={"a": 1})], 7)


class Offsets(Node):
    """Keeps the offsets that it was given."""

    def restoreState(self, state: Any) -> None:
        self.offsets = state


def test_offsets_are_those_of_the_partitions_that_are_read_now() -> None:
    """Of whatever donor. A partition without an offset begins at its beginning."""
    node = Offsets()
    heir(node, partitions=("a", "c", "d")).inherit([donation(state={"a": 1, "b": 2}), donation(state={"c": 3})], 7)
    assert node.offsets == {"a": 1, "c": 3}
    with pytest.raises(RestoreRefused, match=r"state of a source with partitions is \{partition: offset\}.* holds 7"):
        heir(node, partitions=("a",)).inherit([donation(state=7)], 7)


@pytest.mark.parametrize("donor", [donation(state=[1, 2]), donation([1], [2])])
def test_whole_state_is_refused(donor: Donation) -> None:
    """With the subtask and the ways out."""
    with pytest.raises(
        RestoreRefused, match=r"^seen\[0\]: its node had another parallelism.*nobody can divide.*submit it"
    ):
        heir(Seen()).inherit([donor], 7)


def test_a_node_without_state_takes_over_nothing() -> None:
    """None from all donors is None."""
    node = Seen()
    heir(node).inherit([donation(), donation()], 7)
    assert node.seen == []


def test_the_first_capture_of_a_taker_is_whole() -> None:
    """No list of one subtask goes on."""
    node = Pairs()
    own = heir(node)
    own.inherit([donation([(1, b"a")], [(1, b"b")]), donation([(2, b"c")])], 7)
    own.capture(8, 0.0)
    change = own.take_change()
    assert change is not None and change.is_whole
    own.capture(9, 0.0)
    change = own.take_change()
    assert change is not None and not change.is_whole
