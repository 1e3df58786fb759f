"""A log is read as it was written, step by step, and a replay takes it apart in the same order."""

from __future__ import annotations

from typing import Any

import msgpack
import msgspec
import pytest

from cutline.snapshot.errors import SnapshotCorrupt
from cutline.snapshot.modes.steps.determinants import (
    At,
    Began,
    Compacted,
    Cut,
    Exhausted,
    Fired,
    Opened,
    Published,
    Read,
    Started,
    Took,
    TookTogether,
    beginning_of,
    decode_step,
    encode_step,
)
from cutline.snapshot.modes.steps.replay import Replay
from cutline.snapshot.modes.steps.step_log import StepLog

CUT = Cut(7, (3, 4), (5,), ((b"12345678", b"abcdefgh"),))


def test_a_step_is_read_as_it_was_written() -> None:
    """Each entry, and the time only where it is another."""
    log = StepLog()
    log.opened("run", 1.0)
    log.started(1.0)
    log.took(0, 2, 2.0)
    log.took(0, 3, 2.0)
    log.took(1, 1, 2.0)
    log.took(1, 1, 3.0)
    log.took_together(1, 9, 3.0)
    log.fired(2.5, b"key", 3.0)
    log.fired(2.6, None, 3.0)
    log.read("a", b"offset", 4.0)
    log.exhausted(4.0)
    log.published(6, 4.0)
    log.took(0, 1, 4.0)
    log.compacted("a", b"offset", b"messages", 4.0)
    log.at(5.0)
    entries = decode_step(log.cut(CUT), "x")
    assert entries == [
        At(1.0), Opened("run"), Started(), At(2.0), Took(0, 5), Took(1, 1), At(3.0), Took(1, 1), TookTogether(1, 9),
        Fired(2.5, b"key"), Fired(2.6, None), At(4.0), Read("a", b"offset"), Exhausted(), Published(6), Took(0, 1),
        Compacted("a", b"offset", b"messages"), At(5.0), CUT,
    ]  # fmt: skip
    for entry in entries:  # a choice that was made stays as it is
        with pytest.raises(AttributeError, match="immutable"):
            entry.count = 9


def test_a_cut_without_hashes_of_states_is_read() -> None:
    """As logs have it that were written before there were such hashes."""
    written = msgpack.packb([[9, 7, [3, 4], [5], [[b"12345678", b"abcdefgh"]]]])
    assert decode_step(written, "x") == [CUT]
    hashed = msgspec.structs.replace(CUT, states=(("n", b"12345678"),))
    assert decode_step(encode_step([hashed]), "x") == [hashed]


def test_the_numbers_before_a_log_are_its_first_entry() -> None:
    """A log without them begins with 0."""
    began = Began((7,), (5, 0))
    assert beginning_of(encode_step([began, At(1.0), CUT]), "x") == began
    assert beginning_of(encode_step([At(1.0), CUT]), "x") is None


def test_a_step_goes_on_with_the_time_of_the_step_before() -> None:
    """Messages of one input in two steps are two entries."""
    log = StepLog()
    log.took(0, 2, 2.0)
    log.cut(CUT)
    log.took(0, 2, 2.0)
    assert decode_step(log.cut(CUT), "x") == [Took(0, 2), CUT]
    assert decode_step(log.cut(CUT), "x") == [CUT]


@pytest.mark.parametrize("data", [b"", b"\x91", b"\x91\x91\x63", b"\x91\x92\x00\xa1a", b"\x01"])
def test_what_is_no_step_is_refused_by_name(data: bytes) -> None:
    """A damaged log is not taken for a shorter one."""
    with pytest.raises(SnapshotCorrupt, match="the log of a: its determinants cannot be read"):
        decode_step(data, "the log of a")


def test_a_replay_takes_a_log_apart() -> None:
    """Messages in any portions, all else one by one; the step is known from its beginning on."""
    second = Cut(9, (), (), ())
    replay = Replay([[At(1.0), Took(0, 5), CUT], [TookTogether(0, 2), second], [second]])
    found: list[Any] = []
    while (head := replay.head) is not None:
        found.append((replay.snapshot_id, head))
        if isinstance(head, Took):
            replay.took(min(2, head.count))
        else:
            replay.done()
    assert found == [
        (7, At(1.0)), (7, Took(0, 5)), (7, Took(0, 3)), (7, Took(0, 1)), (7, CUT),
        (9, TookTogether(0, 2)), (9, second), (9, second),
    ]  # fmt: skip
