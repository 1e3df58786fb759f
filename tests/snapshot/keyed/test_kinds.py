"""Kinds of keyed state: what is stored of them, and the form of their rows."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pyarrow as pa
import pytest

from cutline.snapshot.errors import NodeError
from cutline.snapshot.keyed.kinds import StateKind
from cutline.snapshot.keyed.rows_codec import decode_keys
from cutline.snapshot.keyed.segment import ROW_SCHEMA, row_batch
from cutline.snapshot.keyed.states import _MAKERS
from tests.snapshot.keyed.keyed_subtask import KeyedSubtask

#: a value of each kind that a node asks for
VALUES: dict[StateKind, Any] = {
    StateKind.VALUE: 1,
    StateKind.LIST: ["a", "b"],
    StateKind.MAP: {"x": 1, None: 2},
    StateKind.REDUCING: 1.5,
}


def test_what_is_stored_of_a_kind_stays() -> None:
    """Numbers stand in segments and versions, and names in errors."""
    assert [(kind.value, kind.name) for kind in StateKind] == [
        (0, "VALUE"), (1, "LIST"), (2, "MAP"), (3, "REDUCING"), (4, "TIMERS"),
    ]  # fmt: skip


@pytest.mark.parametrize("kind", StateKind)
def test_a_kind_has_one_form(kind: StateKind) -> None:
    """Also after copies, and nodes ask for each kind whose rows are no timers."""
    assert copy.deepcopy(kind).form is pickle.loads(pickle.dumps(kind)).form is kind.form
    assert (kind in _MAKERS) == (kind in VALUES) == (not kind.form.holds_timers)


@pytest.mark.parametrize("kind", VALUES)
def test_a_value_is_its_elements(kind: StateKind) -> None:
    """Whatever the sequence of the rows, and whatever stands beside the elements."""
    form, value = kind.form, VALUES[kind]
    elements = form.elements_of(value)
    rows = {**form.other_rows(len(elements)), **dict([*elements.items()][::-1])}
    assert [sub for sub in rows if form.is_element(sub)] == [*elements][::-1]
    assert form.shown(form.elements(rows)) == value
    assert form.has_sub_keys or list(elements) == [None]


@pytest.mark.parametrize("kind", [kind for kind in VALUES if kind.form.has_sub_keys])
def test_elements_of_a_segment_are_those_of_a_dict(kind: StateKind) -> None:
    """The column of sub-keys is searched without decoding."""
    form = kind.form
    subs = [*form.elements_of(VALUES[kind]), *form.other_rows(2)]
    columns: dict[str, list[Any]] = {
        "group": [0] * len(subs), "state": [0] * len(subs), "key": [b"\xc0"] * len(subs), "sub": form.encode_subs(subs),
        "value": [b"\x01"] * len(subs), "expires": [None] * len(subs),
    }  # fmt: skip
    rows = row_batch([pa.array(columns[field.name], field.type) for field in ROW_SCHEMA])
    assert decode_keys(form.element_rows(rows).column("sub")) == [sub for sub in subs if form.is_element(sub)]
    assert form.element_rows(rows[:0]).num_rows == 0


@pytest.mark.parametrize("kind", [kind for kind in VALUES if kind.form.has_sub_keys])
@pytest.mark.parametrize("value", [None, 1, [], {}, ()])
def test_another_value_is_no_value_of_the_kind(kind: StateKind, value: Any) -> None:
    """An empty one is removed, because it would have no row."""
    with pytest.raises(ValueError, match=r"with (items|entries), not .*: clear removes a"):
        kind.form.elements_of(value)


def test_a_reducing_state_needs_a_function() -> None:
    """None is no function."""
    with pytest.raises(NodeError, match="plus is a function or one of sum, min, max, count, not None"):
        KeyedSubtask().reducing(None)  # type: ignore[arg-type]
