"""Control messages come back equal, and nothing but control messages comes back."""

from __future__ import annotations

import pickle
from dataclasses import fields, is_dataclass
from typing import Any, get_args, get_type_hints

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutline.barrier_runtime.control_codec import _TYPES, FROM_COORDINATOR, FROM_WORKER, decode_message, encode_message
from cutline.barrier_runtime.progress import EdgeProcessed, EdgeSent, StoreProgress, WorkerProgress
from cutline.snapshot.channel.rerouting import ChannelEnd, NewChannel, OldChannel, ReroutedCount, ReshapedEdge, Route
from cutline.snapshot.channel.stamps import Clock
from cutline.snapshot.coordinator import control
from cutline.snapshot.errors import ChannelError
from cutline.snapshot.failed_event import (
    DeadLetter,
    FailedBatch,
    FailedEvent,
    FailedMessage,
    FailedTimer,
    IsolatedMessages,
    Suspect,
    Suspects,
)
from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.stored.certificate import (
    ChannelWaves,
    ListEntry,
    OwnStateKind,
    ReceivedEntry,
    SentEntry,
    StepBase,
    SubtaskRecord,
    SubtaskStatus,
)
from cutline.snapshot.stored.contribution import SnapshotTimings
from cutline.snapshot.stored.history import Claim
from cutline.snapshot.stored.local_checkpoint import LocalCheckpoint
from cutline.snapshot.stored.part import Handle, PartKind

_SUBTASKS = st.builds(Subtask, st.text(min_size=1, max_size=5), st.integers(0, 9))
_CHANNELS = st.builds(ChannelId, _SUBTASKS, _SUBTASKS)
_NUMBERS = st.integers(0, 2**63)
_SECONDS = st.floats(0.0, 1e6)
_STATE_HANDLES = st.builds(
    Handle, st.just(PartKind.STATE), st.text(max_size=5), _NUMBERS, _NUMBERS, _SUBTASKS, st.none(), st.just(0),
    st.just(0), _NUMBERS, st.binary(max_size=16), st.none(), st.binary(max_size=20),
)  # fmt: skip
_STATUSES = st.builds(
    SubtaskStatus, st.booleans(), st.booleans(), st.booleans(), st.booleans(),
    st.lists(_NUMBERS, max_size=2).map(tuple), st.none(), st.none() | st.sampled_from(OwnStateKind),
)  # fmt: skip
_WAVES = st.lists(st.tuples(_NUMBERS, _NUMBERS), max_size=2).map(tuple)
_GROUPS = st.integers(0, 9).map(lambda lo: (lo, lo + 3))
_PIECES = st.builds(
    Handle, st.just(PartKind.ROWS), st.text(max_size=5), _NUMBERS, _NUMBERS, _SUBTASKS, st.none(), st.just(1),
    st.integers(1, 9), _NUMBERS, st.binary(max_size=16), st.text(max_size=5), st.none(), st.just(0), _GROUPS, _NUMBERS,
)  # fmt: skip
_ENTRIES = st.lists(st.builds(ListEntry, _PIECES, _NUMBERS, _NUMBERS), max_size=2).map(tuple)
_OWN = st.lists(_STATE_HANDLES, max_size=2).map(tuple)
_RECORDS = st.builds(
    SubtaskRecord,
    _SUBTASKS,
    _NUMBERS,
    st.lists(_STATE_HANDLES, max_size=2).map(tuple),
    st.lists(st.builds(SentEntry, _CHANNELS, _NUMBERS, _NUMBERS, _NUMBERS, _NUMBERS), max_size=2).map(tuple),
    st.lists(st.builds(ReceivedEntry, _CHANNELS, _NUMBERS, _NUMBERS, _NUMBERS, _NUMBERS), max_size=2).map(tuple),
    _STATUSES,
    st.none() | _GROUPS,
    st.none() | _ENTRIES,
    st.none() | _OWN,
    st.none() | st.lists(st.builds(ChannelWaves, _CHANNELS, _WAVES), max_size=2).map(tuple),
)
_TEXTS = st.text(max_size=3)
_RESHAPED = st.builds(
    ReshapedEdge, _TEXTS, _TEXTS, _NUMBERS, st.sampled_from(Route), _NUMBERS, _NUMBERS, _NUMBERS,
    st.lists(st.builds(OldChannel, _CHANNELS, _NUMBERS, _WAVES), max_size=2).map(tuple),
    st.lists(st.builds(NewChannel, _CHANNELS, _NUMBERS, st.sampled_from(ChannelEnd)), max_size=2).map(tuple),
)  # fmt: skip
_INHERITANCES = st.builds(
    control.Inheritance, st.lists(_NUMBERS, max_size=2).map(tuple), st.booleans(), st.booleans(), _TEXTS
)
_MANY_NUMBERS = st.lists(_NUMBERS, max_size=2).map(tuple)
_BASES = st.builds(StepBase, _NUMBERS, _NUMBERS, _NUMBERS, _MANY_NUMBERS, _MANY_NUMBERS)
_FAILED_MESSAGES = st.builds(FailedMessage, _CHANNELS, _NUMBERS, st.binary(max_size=8))
_FAILED_TIMERS = st.builds(FailedTimer, _SUBTASKS, st.text(max_size=8), st.binary(max_size=8), _SECONDS)
_SUSPECTS = st.builds(
    Suspects,
    st.lists(_FAILED_MESSAGES, max_size=2).map(tuple),
    st.lists(st.builds(IsolatedMessages, _CHANNELS, _NUMBERS, _NUMBERS), max_size=2).map(tuple),
    st.lists(st.builds(DeadLetter, _CHANNELS, _NUMBERS, st.binary(max_size=8), _TEXTS), max_size=2).map(tuple),
    st.lists(_FAILED_TIMERS, max_size=2).map(tuple),
)
_RESTORED = st.builds(
    control.RestoredSubtask, _SUBTASKS, st.none() | _STATE_HANDLES, st.lists(st.tuples(_CHANNELS, _NUMBERS)).map(tuple),
    st.lists(st.tuples(_CHANNELS, _NUMBERS)).map(tuple), st.lists(_STATE_HANDLES, max_size=1).map(tuple),
    st.none() | st.lists(st.text(max_size=3), max_size=2).map(tuple),
    _SUSPECTS,
    st.lists(_CHANNELS, max_size=2).map(tuple), st.none() | _GROUPS, _ENTRIES, _OWN, st.none() | _INHERITANCES,
    st.lists(_STATE_HANDLES, max_size=1).map(tuple), st.lists(_RESHAPED, max_size=2).map(tuple),
    st.lists(_TEXTS, max_size=2).map(tuple), st.lists(st.tuples(_CHANNELS, _WAVES), max_size=2).map(tuple),
    steps=st.lists(_STATE_HANDLES, max_size=1).map(tuple), base=st.none() | _BASES,
)  # fmt: skip
_CHECKPOINTS = st.lists(st.tuples(_TEXTS, _NUMBERS), max_size=2).map(tuple)
#: No list: it would be read as a record.
_BY_TYPE: dict[Any, st.SearchStrategy[Any]] = {
    int: _NUMBERS,
    float: _SECONDS,
    str: st.text(max_size=8),
    bytes: st.binary(max_size=8),
    bool: st.booleans(),
    Subtask: _SUBTASKS,
    SubtaskRecord: _RECORDS,
    SnapshotTimings: st.builds(SnapshotTimings, _SECONDS, _SECONDS, _SECONDS),
    LocalCheckpoint: st.builds(
        LocalCheckpoint,
        _TEXTS,
        _NUMBERS,
        _RECORDS,
        st.lists(_STATE_HANDLES, max_size=2).map(tuple),
        _CHECKPOINTS,
        _NUMBERS,
    ),
    Claim: st.builds(Claim, _NUMBERS, _TEXTS, _TEXTS),
    tuple[tuple[ChannelId, int], ...]: st.lists(st.tuples(_CHANNELS, _NUMBERS), max_size=2).map(tuple),
    tuple[tuple[str, int], ...]: _CHECKPOINTS,
    tuple[int, ...]: st.lists(_NUMBERS, max_size=3).map(tuple),
    tuple[str, ...]: st.lists(st.text(max_size=3), max_size=3).map(tuple),
    tuple[bytes, ...]: st.lists(st.binary(max_size=3), max_size=3).map(tuple),
    tuple[Subtask, ...]: st.lists(_SUBTASKS, max_size=3).map(tuple),
    tuple[ReroutedCount, ...]: st.lists(
        st.builds(ReroutedCount, _CHANNELS, _NUMBERS, _NUMBERS, _NUMBERS, _NUMBERS), max_size=2
    ).map(tuple),
    Clock: st.none() | st.lists(st.tuples(st.text(max_size=3), _NUMBERS), max_size=3).map(tuple),
    tuple[control.RestoredSubtask, ...]: st.lists(_RESTORED, max_size=2).map(tuple),
    FailedEvent | None: st.none()
    | _FAILED_MESSAGES
    | _FAILED_TIMERS
    | st.builds(FailedBatch, _CHANNELS, _NUMBERS, _NUMBERS),
    Suspect: _FAILED_MESSAGES | _FAILED_TIMERS,
    dict[int, EdgeSent]: st.dictionaries(
        _NUMBERS, st.builds(EdgeSent, _NUMBERS, _NUMBERS, _NUMBERS, _NUMBERS, _SECONDS), max_size=3
    ),
    dict[int, EdgeProcessed]: st.dictionaries(
        _NUMBERS, st.builds(EdgeProcessed, _NUMBERS, _NUMBERS, _NUMBERS, _NUMBERS), max_size=3
    ),
    dict[str, StoreProgress]: st.dictionaries(
        st.text(max_size=3), st.builds(StoreProgress, *6 * [_NUMBERS], st.text(max_size=3)), max_size=3
    ),
    dict[str, int]: st.dictionaries(st.text(max_size=3), _NUMBERS, max_size=3),
    dict[str, float]: st.dictionaries(st.text(max_size=3), st.floats(allow_nan=False), max_size=3),
}
_MESSAGES = (*get_args(control.WorkerMessage), *get_args(control.CoordinatorMessage), WorkerProgress)


def _any(cls: type) -> st.SearchStrategy[Any]:
    assert is_dataclass(cls)
    hints = get_type_hints(cls)
    return st.builds(cls, **{field.name: _BY_TYPE[hints[field.name]] for field in fields(cls)})


@given(st.one_of([_any(cls) for cls in _MESSAGES]))
def test_every_message_comes_back_equal_and_of_its_type(message: Any) -> None:
    """Each kind of message, with any contents, survives encoding."""
    back = decode_message(encode_message(message))
    assert type(back) is type(message)
    assert back == message


@pytest.mark.parametrize(
    "data", [b"", b"\x90", b"\x93", b"abc", msgpack.packb([1, 2]), msgpack.packb(msgpack.ExtType(9, b"x"))]
)
def test_other_bytes_are_refused_by_name(data: bytes) -> None:
    """What is no control message is a ChannelError, never another exception."""
    with pytest.raises(ChannelError):
        decode_message(data)


@pytest.mark.parametrize(
    "message",
    [
        control.WorkerIdle(1, 1, 1),  # type: ignore[arg-type]
        control.WorkerIdle(True, 1, True),
        control.WorkerFailed(1, 1, b"reason", False),  # type: ignore[arg-type]
        control.Connect(1, ("text",)),  # type: ignore[arg-type]
        control.SnapshotAskedFor(1, None),  # type: ignore[arg-type]
        control.SnapshotAskedFor(1, Subtask("a", "0")),  # type: ignore[arg-type]
        control.Deploy(1, (control.RestoredSubtask(Subtask("a"), None, ((Subtask("a"), 1),), (), ()),), False),  # type: ignore[arg-type]
        control.Deploy(1, (control.RestoredSubtask(Subtask("a"), None, (), (), (), groups=(0, "9")),), False),  # type: ignore[arg-type]
        control.Deploy(1, (control.RestoredSubtask(Subtask("a"), None, (), (), (), groups=(0,)),), False),  # type: ignore[arg-type]
        control.Deploy(1, (control.RestoredSubtask(Subtask("a"), None, (), (), (), rows=((1, 2),)),), False),  # type: ignore[arg-type]
        control.Deploy(1, (control.RestoredSubtask(Subtask("a"), None, (), (), (), (1,)),), False),  # type: ignore[arg-type]
        WorkerProgress(0, 1, {}, {}, {"a": "busy"}, {}, {}, {}, 0, {}),  # type: ignore[dict-item]
        WorkerProgress(0, 1, {0: (1, 2)}, {}, {}, {}, {}, {}, 0, {}),  # type: ignore[dict-item]
    ],
    ids=lambda message: type(message).__name__,
)
def test_a_field_of_another_type_is_refused(message: Any) -> None:
    """No message reaches a machine with a value that its field cannot have."""
    with pytest.raises(ChannelError, match=r"a field of a .* is a |an item of field"):
        decode_message(encode_message(message))


def test_a_message_of_the_other_direction_is_refused() -> None:
    """Nor does a part of a message pass as a message."""
    for message, types in (
        (control.Welcome(1, 1), FROM_WORKER),
        (control.WorkerIdle(1, 1, True), FROM_COORDINATOR),
        (Subtask("a"), (*FROM_WORKER, *FROM_COORDINATOR)),
    ):
        with pytest.raises(ChannelError, match=f"a {type(message).__name__} came"):
            decode_message(encode_message(message), types)  # type: ignore[arg-type]
    for data in (msgpack.packb([-2, 1, "reason"]), msgpack.packb([len(_TYPES) - 2, "reason", "more"])):
        with pytest.raises(ChannelError, match="not a control message"):
            decode_message(data)


def test_a_pickle_is_never_opened() -> None:
    """The codec has no way to unpickle: a pickle bomb is bytes like others."""

    class Bomb:
        def __reduce__(self) -> Any:
            return pytest.fail, ("it was unpickled",)

    for code in range(128):
        with pytest.raises(ChannelError):
            decode_message(msgpack.packb(msgpack.ExtType(code, pickle.dumps(Bomb()))))
