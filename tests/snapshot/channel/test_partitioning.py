"""Partitioners: which subtask gets a message, and how batches are cut up."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutline.snapshot.channel.partitioning import (
    EVERY,
    HashPartitioner,
    Split,
    donors_of,
    groups_of,
    heir_of,
    key_function,
    key_group,
    partitioner,
    subtask_of_group,
)
from cutline.snapshot.plan.declarations import Key
from cutline.snapshot.plan.topology import KEY_GROUPS, Partitioning
from tests.run_size import scaled

SCHEMA = pa.schema([("word", pa.string()), ("number", pa.int16()), ("row", pa.int64())])
ROWS = st.lists(st.tuples(st.sampled_from(["a", "b", "c", None]), st.none() | st.integers(-5, 5)), max_size=40)


def batch_of(rows: list[tuple[Any, Any]]) -> pa.RecordBatch:
    dicts = [{"word": word, "number": number, "row": row} for row, (word, number) in enumerate(rows)]
    return pa.RecordBatch.from_pylist(dicts, SCHEMA)


def rows_by_target(split: Split) -> dict[int, list[dict[str, Any]]]:
    return {target: part.to_pylist() for target, part in split}


@pytest.mark.parametrize("key", ["word", "number", ("word", "number"), ("number",), lambda row: row["word"]])
@given(rows=ROWS, parallelism=st.integers(1, 5))
def test_a_batch_is_cut_up_as_its_rows_would_be(key: Key, rows: list[tuple[Any, Any]], parallelism: int) -> None:
    """Vectorised and single choices agree, for every kind of key; rows for one target keep their order."""
    hashed = partitioner(Partitioning.HASH, key, 0, parallelism)
    batch = batch_of(rows)
    expected: dict[int, list[dict[str, Any]]] = {}
    for row in batch.to_pylist():
        expected.setdefault(hashed.choose(row), []).append(row)
    split = hashed.split(batch)
    assert rows_by_target(split) == expected
    assert [target for target, _ in split] == sorted(expected)


def test_small_integers_in_front_do_not_decide_alone() -> None:
    """All columns of a key choose the target, although the targets of small integers are looked up."""
    hashed = partitioner(Partitioning.HASH, ("k", "n"), 0, 7)
    batch = pa.record_batch({"k": [1] * 20, "n": range(20)})
    split = rows_by_target(hashed.split(batch))
    assert {target: [hashed.choose(row) for row in rows] for target, rows in split.items()} == {
        target: [target] * len(rows) for target, rows in split.items()
    }
    assert len(split) > 1


def test_a_hash_edge_refuses_what_is_no_key_even_if_an_equal_key_was_seen() -> None:
    """1.0 equals 1: what the partitioner remembers must not let it through."""
    hashed = partitioner(Partitioning.HASH, lambda message: message, 0, 4)
    for key in (1, (1, "a")):
        hashed.choose(key)
    for refused in (1.0, (1.0, "a"), [1]):
        with pytest.raises(TypeError, match="cannot be a key"):
            hashed.choose(refused)


def test_more_keys_than_are_remembered_go_where_they_went() -> None:
    """Forgetting changes nothing but time."""
    hashed = partitioner(Partitioning.HASH, lambda message: message, 0, 7)
    assert [hashed.choose(key) for key in range(40_000)] == [
        subtask_of_group(key_group(key), 7) for key in range(40_000)
    ]
    assert hashed.choose(3) == subtask_of_group(key_group(3), 7)


def test_remembered_keys_are_bounded_in_bytes() -> None:
    """A few large keys take no more memory than many small ones; a key larger than all that is remembered alone."""
    hashed = HashPartitioner("k", 4)
    for number in range(200):
        hashed.choose({"k": f"{number:0100000d}"})
        hashed.choose({"k": (f"{number:0100000d}", number)})
    assert 10 < len(hashed.remembered) < 100
    hashed.choose({"k": "x" * 100_000_000})
    assert len(hashed.remembered) == 1


@pytest.mark.parametrize("kind", [pa.int32(), pa.uint64()], ids=str)
@pytest.mark.parametrize("keys", [[131_071], [131_072], [0, 131_071, 131_072], [131_070, 2**31 - 1]], ids=str)
def test_integer_keys_around_the_table_go_where_single_ones_do(keys: list[int], kind: pa.DataType) -> None:
    """Keys below 131,072 are found in a table, and greater keys are hashed."""
    hashed = partitioner(Partitioning.HASH, "k", 0, 7)
    batch = pa.RecordBatch.from_arrays([pa.array(keys, kind)], ["k"])
    found = {row["k"]: target for target, part in hashed.split(batch) for row in part.to_pylist()}
    assert found == {key: subtask_of_group(key_group(key), 7) for key in keys}


VIEWS = [
    (pa.string_view(), ["a", None, "b" * 20]),
    (pa.binary_view(), [b"a", None, b"b" * 20]),
    (pa.list_(pa.string_view()), [["a"], None, []]),
    (pa.struct([("x", pa.binary_view())]), [{"x": b"a"}, None, {"x": None}]),
    (pa.run_end_encoded(pa.int32(), pa.string()), ["a", None, "b"]),
]


@pytest.mark.parametrize(("kind", "values"), VIEWS, ids=str)
@pytest.mark.parametrize("parallelism", [2, 40])
def test_columns_that_arrow_cannot_gather_are_cut_up_too(
    kind: pa.DataType, values: list[Any], parallelism: int
) -> None:
    """Rows and types stay what they were, for few targets and for many."""
    rows = [values[number % 3] for number in range(300)]
    column = pc.run_end_encode(pa.array(rows)) if pa.types.is_run_end_encoded(kind) else pa.array(rows, kind)
    batch = pa.RecordBatch.from_arrays([pa.array([n % 70 for n in range(300)]), column], ["k", "value"])
    found: Counter[tuple[int, str]] = Counter()
    for target, part in partitioner(Partitioning.HASH, "k", 0, parallelism).split(batch):
        part.validate(full=True)
        assert part.schema == batch.schema
        for row in part.to_pylist():
            assert subtask_of_group(key_group(row["k"]), parallelism) == target
            found[row["k"], str(row["value"])] += 1
    assert found == Counter((row["k"], str(row["value"])) for row in batch.to_pylist())


@pytest.mark.parametrize("parallelism", [2, 4, 5, 300, KEY_GROUPS])
def test_no_row_is_lost_among_many_targets(parallelism: int) -> None:
    """Few targets are found by scans, many by a sort; rows for one target keep their order."""
    batch = pa.record_batch({"k": [number % 700 for number in range(5_000)], "row": range(5_000)})
    split = partitioner(Partitioning.HASH, "k", 0, parallelism).split(batch)
    assert [target for target, _ in split] == sorted({subtask_of_group(key_group(k), parallelism) for k in range(700)})
    for target, part in split:
        rows = part.column("row").to_pylist()
        assert rows == sorted(rows)
        assert {subtask_of_group(key_group(k), parallelism) for k in part.column("k").to_pylist()} == {target}
    assert sum(part.num_rows for _, part in split) == 5_000


@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_column_that_is_no_key_is_refused(parallelism: int) -> None:
    """Also where there is but one target: with another parallelism it would be refused too."""
    with pytest.raises(TypeError, match="a column of double cannot be a key"):
        partitioner(Partitioning.HASH, "k", 0, parallelism).split(pa.record_batch({"k": [1.5]}))
    with pytest.raises(TypeError, match="a column of double cannot be a key"):
        partitioner(Partitioning.HASH, ("n", "k"), 0, parallelism).split(pa.record_batch({"n": [1], "k": [1.5]}))


def test_a_missing_key_column_is_named() -> None:
    """With the columns that there are, or the word that there are none."""
    hashed = partitioner(Partitioning.HASH, "letter", 0, 2)
    with pytest.raises(TypeError, match="no key column 'letter'; it has word, number, row"):
        hashed.split(batch_of([("a", 1)]))
    with pytest.raises(TypeError, match=r"no key column 'letter'; it has none$"):
        hashed.split(pa.RecordBatch.from_struct_array(pa.array([{}], pa.struct([]))))


@pytest.mark.parametrize("parallelism", [1, 2, 3, 7, 64, 1_000, KEY_GROUPS])
def test_key_groups_go_to_subtasks_in_equal_ranges(parallelism: int) -> None:
    """Every subtask owns one range; sizes differ by one group at most."""
    owners = [subtask_of_group(group, parallelism) for group in range(KEY_GROUPS)]
    assert owners == sorted(owners)
    sizes = Counter(owners).values()
    assert len(sizes) == parallelism
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("parallelism", [1, 2, 3, 7, 100, 127, 128, 1_000, 16_385, 32_767, 32_768, 32_769, 40_000])
def test_subtasks_own_the_groups_that_go_to_them(parallelism: int) -> None:
    """The ranges of all subtasks tile the groups, and each group is in the range of the subtask that it goes to."""
    owned = [(group, index) for index in range(parallelism) for group in groups_of(index, parallelism)]
    assert owned == [(group, subtask_of_group(group, parallelism)) for group in range(KEY_GROUPS)]


def test_keys_spread_evenly() -> None:
    """Neither consecutive numbers nor similar words crowd on a few subtasks."""
    for keys in (list(range(20_000)), [f"user-{number}" for number in range(20_000)]):
        hashed = partitioner(Partitioning.HASH, lambda message: message, 0, 10)
        chosen = [hashed.choose(key) for key in keys]
        assert all(1_700 < chosen.count(index) < 2_300 for index in range(10))


@pytest.mark.parametrize(
    "partitioning",
    [Partitioning.HASH, Partitioning.REBALANCE, Partitioning.FORWARD],
    ids=lambda partitioning: partitioning.name,
)
@given(st.lists(st.lists(st.integers(0, 9) | st.text(max_size=1) | st.tuples(st.none()), max_size=9), max_size=4))
def test_messages_are_shared_as_each_would_be(partitioning: Partitioning, lists: list[list[Any]]) -> None:
    """Each target gets what `choose` would give it, in order, and the next one goes on from there."""
    together, alone = (partitioner(partitioning, lambda message: message, 1, 3) for _ in range(2))
    for messages in lists:
        expected: dict[int, list[Any]] = {}
        for message in messages:
            expected.setdefault(alone.choose(message), []).append(message)
        shares = together.share(messages)
        assert {target: share for target, share, _ in shares if share} == expected
        assert all(keys in (None, share) for _, share, keys in shares), "each message is its own key"
        assert together.state() == alone.state()


def test_rebalance_goes_round_and_its_cursor_is_state() -> None:
    """Each sender begins at its own place; a restored one goes on where the snapshot left off."""
    first = partitioner(Partitioning.REBALANCE, None, 1, 3)
    assert [first.choose("x") for _ in range(4)] == [1, 2, 0, 1]
    second = partitioner(Partitioning.REBALANCE, None, 1, 3)
    second.restore(first.state())
    batch = batch_of([("a", 1), ("b", 2)])
    assert second.split(batch) == [(2, batch)]
    assert second.choose("x") == 0


def test_forward_broadcast_and_directed() -> None:
    """Forward keeps the index, broadcast means every one, directed has no rule of its own."""
    batch = batch_of([("a", 1)])
    assert partitioner(Partitioning.FORWARD, None, 2, 3).choose("x") == 2
    assert partitioner(Partitioning.FORWARD, None, 2, 3).split(batch) == [(2, batch)]
    assert partitioner(Partitioning.BROADCAST, None, 0, 2).choose("x") == EVERY
    assert partitioner(Partitioning.BROADCAST, None, 0, 2).split(batch) == [(0, batch), (1, batch)]
    assert partitioner(Partitioning.BROADCAST, None, 0, 2).share(["x"]) == [(0, ["x"], None), (1, ["x"], None)]
    with pytest.raises(TypeError, match="give send the Subtask"):
        partitioner(Partitioning.DIRECTED, None, 0, 1).choose("x")
    with pytest.raises(TypeError, match="give send the Subtask"):
        partitioner(Partitioning.DIRECTED, None, 0, 1).share(["x"])
    with pytest.raises(TypeError, match="give send the Subtask"):
        partitioner(Partitioning.DIRECTED, None, 0, 1).split(batch)


def test_key_functions() -> None:
    """One column gives its value, several a tuple, a function what it returns."""
    row = {"a": 1, "b": 2}
    assert [key_function(key)(row) for key in ("a", ("a",), ["b", "a"], len)] == [1, (1,), (2, 1), 2]


# ---------------------------------------------------------------- another parallelism

PARALLELISMS = st.one_of(st.integers(1, 12), st.integers(1, 300), st.integers(KEY_GROUPS - 2, KEY_GROUPS + 2))


@given(index=st.integers(0, 10**6), before=st.integers(1, 40_000), now=st.integers(1, 40_000))
def test_an_heir_owns_the_first_key_group(index: int, before: int, now: int) -> None:
    """There is always one, also for a subtask without a key group, above 32,768 subtasks on either side."""
    index %= before
    heir = heir_of(index, before, now)
    assert 0 <= heir < now
    groups = groups_of(index, before)
    if groups:
        assert groups.start in groups_of(heir, now)
    if before == now <= KEY_GROUPS:
        assert heir == index


@settings(max_examples=scaled(25), deadline=None)
@given(before=PARALLELISMS, now=PARALLELISMS, data=st.data())
def test_donors_are_those_whose_key_groups_a_subtask_owns(before: int, now: int, data: st.DataObject) -> None:
    """And those whose heir it is. So the groups of its donors cover its own, and each donor has its heir among them."""
    index = data.draw(st.integers(0, now - 1))
    donors = donors_of(index, before, now)
    assert donors == sorted(set(donors))
    own = groups_of(index, now)
    of_donors = [groups_of(donor, before) for donor in donors]
    if own:  # the donors' groups are one range, because they are neighbours
        assert of_donors[0].start <= own.start and own.stop <= of_donors[-1].stop
        assert donors == list(range(donors[0], donors[-1] + 1))
    for donor, groups in zip(donors, of_donors, strict=True):
        has_part = max(groups.start, own.start) < min(groups.stop, own.stop)
        assert has_part or heir_of(donor, before, now) == index
    if before <= 300:
        assert {old for old in range(before) if heir_of(old, before, now) == index} <= set(donors)


@pytest.mark.parametrize(("before", "now"), [(1, 1), (2, 4), (4, 3), (3, 1), (7, 5), (5, 7), (60, 61)])
def test_key_groups_are_given_once(before: int, now: int) -> None:
    """What the subtasks take over from their donors tiles all key groups, and each old subtask has one heir."""
    taken: Counter[int] = Counter()
    heirs: Counter[int] = Counter()
    for index in range(now):
        for donor in donors_of(index, before, now):
            both = range(
                max(groups_of(donor, before).start, groups_of(index, now).start),
                min(groups_of(donor, before).stop, groups_of(index, now).stop),
            )
            taken.update(both)
            heirs[donor] += heir_of(donor, before, now) == index
    assert taken == Counter(range(KEY_GROUPS))
    assert heirs == Counter(range(before))


def test_an_heir_by_proportion_would_own_nothing() -> None:
    """i * P' // P names a subtask that owns no key group of i, where both are large (PROTOCOL 6.9, donors)."""
    before, now = 300, 299
    proportional = [index * now // before for index in range(before)]
    strange = [i for i, heir in enumerate(proportional) if not set(groups_of(i, before)) & set(groups_of(heir, now))]
    assert strange
    assert all(heir_of(i, before, now) in (proportional[i], proportional[i] + 1) for i in strange)
