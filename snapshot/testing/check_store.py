"""Check that a store of aggregates keeps its contract, sentence by sentence."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any, Final

from hypothesis import strategies as st

from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.operators.aggregate_store import AggregateStore, StoreClaim
from cutline.snapshot.testing.checking.verdict import CheckFailed
from cutline.snapshot.testing.store_sequences import check_examples, check_sequences
from cutline.snapshot.testing.store_trial import StoreTrial, demand

#: cells of the largest call
_LARGE: Final = 10_000

_TYPES: Final = "Values come back with their types."
_KEYS: Final = "Keys of different types are different keys: 1, 1.0 and True are three."
_UNFIT: Final = "NaN and infinities are refused, and so are other types."
_NO_VALUE: Final = "None is no value, because it says that a key has none."
_PICKLED: Final = "An instance connects at its first call, not when it is made, and is pickled unconnected."
_SHARED: Final = "All subtasks of an aggregate, and all readers, see one store."
_UNTAKEN: Final = "also for a claim that has not taken the store."
_LOWER: Final = "Take the store for a claim, so that lower claims can write no more."
_FIRST: Final = "Return the committed id; -1 at first."
_BEGUN: Final = "A run that begins commits 0, which has no cells."
_FOREIGN: Final = "if the store belongs to another run."
_FORMER: Final = "A claim may take the store of its former names."
_NEW: Final = "Write cells: the new value of each key."
_REPEATED: Final = "One call is atomic, and may be repeated."
_BEFORE: Final = "The value before is the one that counts now."
_NOTHING: Final = "Nothing was written then."
_COMMITTED: Final = "if `snapshotId` is not above the committed id"
_AT_ONCE: Final = "So one commit makes all cells of a snapshot count at once, whichever subtasks wrote them."
_UP_TO: Final = "Let all cells of snapshots up to `snapshotId` count."
_LOWER_ID: Final = "A lower id than the committed one changes nothing."
_RETURNED: Final = "Return cells of snapshots above `snapshotId` to the value before."
_REMOVED: Final = "Remove those that had none."
_HIGHER: Final = "if a higher snapshot is committed."
_CURRENT: Final = "Return the value of each key that counts now; None for a key that has none."
_GET: Final = "Return the value of a key that counts now; None for a key that has none."
_CLOSED: Final = "Another call connects again."

#: Values that a store may take for each other, or lose a part of.
_VALUES: Final[tuple[Any, ...]] = (
    *(0, 1, -1, True, False, 2**63, -(2**64), 10**400 + 1, 1.0, 0.0, -0.0, 0.1, 5e-324, 1.7976931348623157e308, 1e22),
    *(
        Fraction(1, 3),
        Fraction(-2),
        Fraction(1, 10**400),
        "",
        "1",
        "1.0",
        "true",
        "null",
        "[1]",
        "\n\r\t\0 a'b\"c\\d%s",
    ),
    *("größe ☃ 🎲", "\ud800", "x" * 1000, b"", b"\0\xff'\"", b"1", (), (1,), (1.0,), (True,), ("1",), (None,)),
    *(((1, 2), 3), (1, (2, 3)), ("a", Fraction(1, 2), b"b", None, -0.0), {"bytes": ""}.popitem()),
)

_UNFIT_VALUES: Final[tuple[Any, ...]] = (
    *(float("nan"), float("inf"), -float("inf"), (1, float("nan")), [1], {"a": 1}, {1}, 1j, (1, [2]), bytearray(b"x")),
)

_atoms = st.one_of(
    *(st.booleans(), st.integers(), st.integers(-(10**400), 10**400), st.fractions(), st.binary(max_size=20)),
    *(st.floats(allow_nan=False, allow_infinity=False), st.text(st.characters(exclude_categories=()), max_size=20)),
)
_values = st.recursive(_atoms, lambda inner: st.lists(inner | st.none(), max_size=4).map(tuple), max_leaves=8)


def checkStore(maker: Callable[[], AggregateStore], *, examples: int = 100) -> None:
    """Check that a store of aggregates keeps each sentence of its contract.

    Two connections are called in turn, from one thread. So races between processes are not found, and neither are
    faults of a server that dies.

    Parameters
    ----------
    maker : callable
        Returns a fresh connection to the same store at each call. The store is empty before the first call.
    examples : int
        Number of random sequences of calls, and of random keys and values.

    Raises
    ------
    CheckFailed
        if the store breaks a sentence of `AggregateStore`. The text has the sentence, the calls and the values.
    """
    trial = StoreTrial(maker)
    _check_first_calls(trial)
    for check in (_check_kinds, _check_writes, _check_commits, _check_roll_backs, _check_claims, _check_copies):
        trial.take(_FIRST)
        trial.one.rollBack(trial.claim, trial.committed)
        check(trial)
    _check_large_lists(trial)
    check_examples(_values, partial(_check_kept, trial), examples)
    check_sequences(trial, examples)
    trial.one.close()
    trial.other.close()


def _check_first_calls(trial: StoreTrial) -> None:
    """Check a store that nobody has taken, and the first write that counts."""
    one, other = keys = trial.fresh(2)
    trial.expect([None, None], keys, _CURRENT)
    unclaimed = StoreClaim("checkStore", 1)
    trial.expect_refused(lambda: trial.one.write(unclaimed, 1, [(one, 1)]), "write before take", _UNTAKEN)
    trial.take(_FIRST)
    again = trial.other.take(trial.claim)
    demand(again == -1, _FIRST, f"take by the same claim again returned {again!r}, not -1")
    trial.commit()
    trial.take(_BEGUN)
    trial.write_and_commit((one, "a"), (other, "b"))
    for connection, sentence in ((trial.one, _AT_ONCE), (trial.other, _SHARED)):
        found = connection.get(one)
        demand(found == "a", sentence, f"get after write and commit returned {found!r}, not 'a'")
    trial.expect(["b", "a"], keys[::-1], _CURRENT)


def _check_claims(trial: StoreTrial) -> None:
    """Check that lower claims, claims of other runs, and claims that have not taken the store change nothing."""
    kept, new = keys = trial.fresh(2)
    trial.write_and_commit((kept, 1))
    trial.write((kept, 2))
    trial.take(_LOWER)
    pending, later = trial.committed + 1, trial.committed + 2
    for claim, expect, sentence in (
        (trial.lower_claim, trial.expect_fenced, _LOWER),
        (trial.higher_claim, trial.expect_refused, _UNTAKEN),
        (trial.foreign_claim, trial.expect_refused, _FOREIGN),
    ):
        calls: dict[str, Callable[[], object]] = {
            "take": partial(trial.other.take, claim),
            "write": partial(trial.other.write, claim, later, [(kept, 3), (new, 3)]),
            "commit": partial(trial.other.commit, claim, later),
            "rollBack": partial(trial.other.rollBack, claim, trial.committed),
        }
        if claim == trial.higher_claim:
            del calls["take"]  # because this claim may take the store
        for name, call in calls.items():
            expect(call, f"{name} by {claim}", sentence)
            trial.expect([1, None], keys, _NOTHING)
    trial.one.commit(trial.claim, pending)
    trial.committed = pending
    trial.expect([2, None], keys, _NOTHING)
    trial.rename(_FORMER)


def _check_writes(trial: StoreTrial) -> None:
    """Check which value counts after writes, repeated writes, and writes that are refused."""
    kept, new = keys = trial.fresh(2)
    trial.write_and_commit((kept, 1))
    trial.expect([1, None], keys, _NEW)
    for value in (2, 2, 3):  # the third repeats a call with another value, as after a restart
        trial.write((kept, value), (new, value))
        trial.expect([1, None], keys, _BEFORE)
    trial.write()
    trial.commit()
    trial.expect([3, 3], keys, _REPEATED)
    trial.write((kept, 4), (new, 4))
    trial.commit()
    trial.expect([4, 4], keys, _NEW)
    for snapshot_id in (trial.committed, trial.committed - 1):
        call = partial(trial.one.write, trial.claim, snapshot_id, [(kept, 5)])
        trial.expect_refused(call, f"write of snapshot {snapshot_id} after commit of {trial.committed}", _COMMITTED)
        trial.expect([4, 4], keys, _NOTHING)


def _check_commits(trial: StoreTrial) -> None:
    """Check that a commit is one for all connections, may be repeated, and never goes back."""
    kept, new = keys = trial.fresh(2)
    trial.write((kept, 1))
    trial.other.write(trial.claim, trial.committed + 1, [(new, 1)])
    trial.expect([None, None], keys, _AT_ONCE)
    trial.commit()
    trial.expect([1, 1], keys, _AT_ONCE)
    for snapshot_id in (trial.committed, trial.committed - 1):
        trial.other.commit(trial.claim, snapshot_id)
        trial.expect([1, 1], keys, _LOWER_ID)
        trial.take(_LOWER_ID)
    trial.write((kept, 2))
    trial.one.write(trial.claim, trial.committed + 3, [(new, 2)])
    trial.committed += 2
    trial.one.commit(trial.claim, trial.committed)
    trial.expect([2, 1], keys, _UP_TO)
    for connection in (trial.one, trial.other):
        found = connection.get(kept), connection.get(("no", "such key"))
        demand(found == (2, None), _GET, f"get returned {found[0]!r} and {found[1]!r}, not 2 and None")


def _check_roll_backs(trial: StoreTrial) -> None:
    """Check what a rollback returns, removes and leaves."""
    kept, new, below = keys = trial.fresh(3)
    trial.write_and_commit((kept, 1))
    trial.write((below, 3))
    above = trial.committed + 2
    trial.one.write(trial.claim, above, [(kept, 2), (new, 2)])
    for _ in range(2):
        trial.other.rollBack(trial.claim, trial.committed + 1)
        trial.expect([1, None, None], keys, _RETURNED)
    trial.one.commit(trial.claim, above)
    trial.committed = above
    trial.expect([1], [kept], _RETURNED)
    trial.expect([None], [new], _REMOVED)
    trial.expect([3], [below], _RETURNED)
    trial.expect_refused(lambda: trial.one.rollBack(trial.claim, above - 1), f"rollBack below {above}", _HIGHER)
    trial.expect([1, None, 3], keys, _HIGHER)
    trial.write((kept, 4), (new, 4))
    trial.expect([1, None, 3], keys, _BEFORE)


def _check_kinds(trial: StoreTrial) -> None:
    """Check values and keys that a store may take for each other, and those that are refused."""
    places = trial.fresh(len(_VALUES))
    trial.write_and_commit(*zip(places, _VALUES, strict=True))
    trial.expect(_VALUES, places, _TYPES)
    keys = [*_VALUES, None]
    trial.write_and_commit(*((key, number) for number, key in enumerate(keys)))
    trial.expect(range(len(keys)), keys, _KEYS)
    first, second = places[:2]
    for unfit in _UNFIT_VALUES:
        as_value = partial(trial.write, (second, 8), (first, unfit))
        for call in (as_value, partial(trial.write, (second, 8), (unfit, 1)), partial(trial.one.current, [unfit])):
            trial.expect_refused(call, f"a call with {unfit!r}", _UNFIT)
    trial.expect_refused(lambda: trial.write((second, 8), (first, None)), "write of None", _NO_VALUE)
    trial.commit()
    trial.expect(_VALUES[:2], [first, second], _NOTHING)


def _check_copies(trial: StoreTrial) -> None:
    """Check that pickled copies and closed connections reach the same store."""
    [key] = trial.fresh(1)
    trial.write_and_commit((key, 1))
    for name, store in (("after calls", trial.one), ("before its first call", trial.maker())):
        copy = _pickled(store)
        found = copy.get(key)
        demand(found == 1, _PICKLED, f"a copy that was pickled {name} returned {found!r}, not 1")
        copy.close()
        copy.close()
        found = copy.get(key)
        demand(found == 1, _CLOSED, f"get after close returned {found!r}, not 1")
        copy.close()
    trial.expect([1], [key], _CLOSED)


def _pickled(store: AggregateStore) -> AggregateStore:
    codec = Codec()
    try:
        copy = codec.decode(codec.encode(store))
    except TypeError as error:
        raise CheckFailed("checkStore", f'the store breaks "{_PICKLED}": {error}') from error
    assert isinstance(copy, AggregateStore)
    return copy


def _check_large_lists(trial: StoreTrial) -> None:
    """Check calls of many keys, in another sequence at each call."""
    keys = trial.fresh(_LARGE)
    trial.expect([], [], _CURRENT)
    trial.write_and_commit(*((key, key[1]) for key in keys))
    trial.write(*((key, -1) for key in reversed(keys[1::2])))
    trial.expect(range(_LARGE - 1, -1, -1), keys[::-1], _CURRENT)
    trial.one.rollBack(trial.claim, trial.committed)
    trial.write(*((key, -1) for key in keys[::2]))
    trial.commit()
    trial.expect([key[1] if key[1] % 2 else -1 for key in keys], keys, _RETURNED)


def _check_kept(trial: StoreTrial, value: Any) -> None:
    """Check one value, as a value and as a key."""
    [key] = trial.fresh(1)
    trial.write_and_commit((key, value), (value, key))
    trial.expect([value, key], [key, value], _TYPES)
