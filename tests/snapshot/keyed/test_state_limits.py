"""What states refuse to store: it fails in the call that would store it, by name, and changes nothing."""

from __future__ import annotations

from typing import Any

import pytest

from cutline.snapshot.errors import NodeError
from cutline.snapshot.keyed import row_table, state_rules, table
from tests.snapshot.keyed.keyed_subtask import KeyedSubtask


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (None, "None is no value"),
        ((each for each in "ab"), "cannot be pickled"),
        (memoryview(b""), "memoryview"),
        ("x" * 65, "the value has 65 bytes; at most 64"),
        (b"x" * 65, "the value has 67 bytes; at most 64"),
    ],
)
def test_what_cannot_be_stored_is_refused_when_it_is_stored(
    value: Any, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names subtask, state and key, and the state is as it was."""
    for module in (state_rules, row_table):
        monkeypatch.setattr(module, "TEXT_LENGTH_MAX", 16)
    monkeypatch.setattr(state_rules, "VALUE_BYTES_MAX", 64)
    subtask = KeyedSubtask()
    state, timed, items, entries = subtask.value(), subtask.value("t", 9), subtask.list(), subtask.map()
    with subtask.key("k"):
        for store in (
            state.update, timed.update, items.appendValue, lambda each: items.appendList([1, each]),
            lambda each: items.put([each]), lambda each: entries.updateValue(1, each),
            lambda each: state.updateAll(["j", "k"], [1, each]),
        ):  # fmt: skip
            with pytest.raises(NodeError, match=rf"(?s)node\[0\]: state '\w', key 'k': .*({why})"):
                store(value)
    assert subtask.capture() is None


@pytest.mark.parametrize("key", ["x" * 65, b"x" * 65, ("x" * 30, "x" * 40), 1 << 600])
def test_a_key_has_a_limit(key: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is checked when the key gets its first row, and for the keys inside a dict."""
    monkeypatch.setattr(state_rules, "KEY_BYTES_MAX", 64)
    monkeypatch.setattr(table, "_KEY_LENGTH_MAX", 8)
    subtask = KeyedSubtask()
    value, entries = subtask.value(), subtask.map()
    with subtask.key(key), pytest.raises(NodeError, match=r"the key has \d+ bytes; at most 64 are allowed"):
        value.update(1)
    with subtask.key("k"), pytest.raises(NodeError, match="at most 64 are allowed"):
        entries.updateValue(key, 1)
    assert subtask.capture() is None
    with subtask.key("k"):
        entries.updateValue("short", 1)
        with pytest.raises(NodeError, match="at most 64 are allowed"):
            entries.updateValue(key, 1)
        assert list(entries.values()) == [1]
