"""checkStore: the store in memory passes, each sentence of the contract is checked, and each mutant is found."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from cutline.snapshot.operators import aggregate_store
from cutline.snapshot.operators.aggregate_store import AggregateStore, StoreClaim
from cutline.snapshot.testing import check_store, store_sequences, store_trial
from cutline.state_backends.aggregate_stores.memory import MemoryStore
from cutline.testing import CheckFailed, checkStore
from tests.run_size import scaled
from tests.snapshot.testing import mutants_of_stores as mutants

#: {mutant: words of the sentence that it breaks}
_MUTANTS = {
    "lower_claims_take": "lower claims can write no more",
    "lower_claims_write": "lower claims can write no more",
    "lower_claims_commit": "lower claims can write no more",
    "lower_claims_roll_back": "lower claims can write no more",
    "replaced_claims_write": "lower claims can write no more",
    "other_runs_take": "belongs to another run",
    "claims_write_untaken": "has not taken the store",
    "claims_are_compared_after_writing": "Nothing was written then",
    "errors_have_no_name": "texts name the store",
    "begins_with_one": "-1 at first",
    "take_forgets_the_committed_id": "-1 at first",
    "commit_does_nothing": "A run that begins commits 0",
    "former_names_are_foreign": "its former names",
    "commit_goes_back": "A lower id than the committed one",
    "commit_counts_one_id_only": "up to `snapshotId` count",
    "each_connection_commits_its_own": "whichever subtasks",
    "committed_ids_are_written": "`snapshotId` is not above",
    "no_value_before": "The value before",
    "value_before_is_the_newest": "The value before",
    "value_before_is_the_new_one": "The value before",
    "first_write_stays": "may be repeated",
    "writes_count_at_once": "The value before",
    "newest_counts": "The value before",
    "half_a_write_stays": "Nothing was written then",
    "large_calls_lose_their_end": "each key that counts now",
    "answers_are_sorted": "each key that counts now",
    "missing_keys_are_left_out": "None for a key that has none",
    "get_returns_zero": "Return the value of a key",
    "rolls_nothing_back": "Return cells",
    "rolls_all_back": "Return cells",
    "rolls_the_snapshot_back": "Return cells",
    "rollback_removes_cells": "Return cells",
    "rollback_leaves_new_cells": "Remove those",
    "rolls_back_below_the_commit": "a higher snapshot is committed",
    "keys_are_compared_by_value": "with their types",
    "integers_are_floats": "with their types",
    "booleans_are_integers": "with their types",
    "zero_has_no_sign": "with their types",
    "tuples_are_lists": "with their types",
    "bytes_are_text": "with their types",
    "bytes_are_numbers": "with their types",
    "tagged_tuples_are_bytes": "with their types",
    "text_ends_at_a_zero": "with their types",
    "integers_have_64_bits": "with their types",
    "takes_any_float": "NaN and infinities",
    "takes_none": "None is no value",
    "copies_are_empty": "is pickled unconnected",
    "copies_are_connected": "is pickled unconnected",
    "connections_have_their_own": "All subtasks of an aggregate",
    "closed_is_empty": "Another call connects again",
}

#: {beginning of a sentence that `checkStore` does not check: why}
_NOT_CHECKED = {
    "The contract of a store": "a title",
    "A store keeps one": "the rules are stated with it",
    "It also keeps": "the rules are stated with it",
    "At a restore": "a duty of the caller",
    "So a store with a committed id of -1": "what callers make of it",
    "Who writes": "a title",
    "A store obeys the highest number": "the same as the sentence of `take`",
    "Totals by key": "a title",
    "Keys and values are plain": "checked with the sentence about types",
    "One thread at a time": "a duty of the caller",
    "Calls raise ``OSError``": "needs a server that fails: see the tests of each store",
    "A roll-back may have done a part": "needs a server that fails: see the tests of each store",
    "if a higher claim has taken": "checked with the sentence about lower claims",
    "End the connection": "seen by the leak checks in the tests of each store",
    "Keys are distinct": "a duty of the caller",
    "`snapshotId` is above": "checked with the error that is raised else",
}


def test_each_sentence_is_checked() -> None:
    """Each sentence of the contract is quoted by a check, or listed above."""
    contract = [aggregate_store, StoreClaim, AggregateStore, *vars(AggregateStore).values()]
    text = " ".join(
        each.__doc__ or "" for each in contract if getattr(each, "__module__", "").startswith("cutline.snapshot")
    )
    text = " ".join(f"{aggregate_store.__doc__} {text}".split())
    text = re.sub(r"Raises -+ |(?<= )(Fenced|StoreRefused) (?=if )", "", text)
    quotes = [
        value.strip(".")
        for module in (check_store, store_sequences, store_trial)
        for value in vars(module).values()
        if type(value) is str and " " in value
    ]
    sentences = [each for each in re.split(r"[. ]*\.(?: |$)", text) if each]
    unchecked = [each for each in sentences if not any(quote in each for quote in quotes)]
    assert [each for each in unchecked if not each.startswith(tuple(_NOT_CHECKED))] == []
    assert [each for each in _NOT_CHECKED if not any(sentence.startswith(each) for sentence in unchecked)] == []


def test_the_store_in_memory_passes() -> None:
    """Copies of an instance are connections to one store."""
    _check(MemoryStore(), scaled(100))


def test_sequences_of_calls_pass() -> None:
    """Random calls with all keys that `==` takes for one, without the other checks, which take longer."""
    trial = store_trial.StoreTrial(_maker(MemoryStore()))
    store_sequences.check_sequences(trial, 20)
    assert trial.committed >= 20


def _check(store: MemoryStore, examples: int) -> None:
    checkStore(_maker(store), examples=examples)


def _maker(store: MemoryStore) -> Callable[[], MemoryStore]:
    def maker() -> MemoryStore:
        connection = MemoryStore()
        connection._id = store._id
        return connection

    return maker


@pytest.mark.parametrize("name", _MUTANTS)
def test_a_mutant_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sentence that is broken is named. One example, so that listed calls and values find it, not random ones."""
    mutate: Callable[[pytest.MonkeyPatch], None] = getattr(mutants, name)
    mutate(monkeypatch)
    with pytest.raises(CheckFailed, match=re.escape(_MUTANTS[name])):
        _check(MemoryStore(), 1)
