"""Shared memory: payloads come out as they went in, and no place is used again while anybody needs what is there."""

from __future__ import annotations

import mmap
import os
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from cutline.channels.shared_memory import IncomingMemory, OutgoingMemory
from cutline.snapshot.errors import ChannelError
from tests.leaks import LeakCheck

SIZE = 2 * mmap.PAGESIZE


@contextmanager
def memories() -> Iterator[tuple[OutgoingMemory, IncomingMemory]]:
    """Both sides of one small memory."""
    outgoing = OutgoingMemory(SIZE)
    incoming = IncomingMemory(outgoing.descriptor, SIZE)
    yield outgoing, incoming
    outgoing.close()
    incoming.close()


def put(memory: OutgoingMemory, payload: bytes) -> int | None:
    """Where a payload was written, which is sent at once; None if there is no room."""
    room = memory.allocate(len(payload))
    if room is None:
        return None
    room[:] = payload
    return memory.send(room)


STEPS = st.sampled_from(["send", "take", "drop", "hold"])


@given(st.lists(st.tuples(STEPS, st.integers(1, SIZE), st.integers(0, 5)), max_size=60))
def test_nothing_is_written_over_while_it_is_needed(steps: list[tuple[str, int, int]]) -> None:
    """Payloads are made, sent in another order or dropped, held by a snapshot, taken: each stays what it was."""
    with memories() as (outgoing, incoming):
        made: list[tuple[memoryview, bytes]] = []
        sent: deque[tuple[int, bytes]] = deque()
        held: list[tuple[memoryview, bytes]] = []
        for number, (step, length, which) in enumerate(steps):
            room = outgoing.allocate(length)
            if room is None:
                assert made or sent or held, f"{length} bytes had no room where nothing is"
            else:
                payload = bytes([number % 256]) * length
                room[:] = payload
                made.append((room.toreadonly(), payload))
            del room
            if step == "take" and sent:
                start, payload = sent.popleft()
                taken = incoming.take(start, len(payload), xxh3_64_intdigest(payload))
                assert taken == payload and taken.readonly
            elif step != "take" and made:
                view, payload = made.pop(which % len(made))
                if step == "hold":
                    held.append((view[: len(view) // 2], payload[: len(view) // 2]))
                if step != "drop":
                    place = outgoing.send(view)
                    assert place is not None
                    sent.append((place, payload))
                del view
            assert all(view == payload for view, payload in (*made, *held))
        for start, payload in sent:
            assert incoming.take(start, len(payload), xxh3_64_intdigest(payload)) == payload


def test_the_lowest_place_that_fits_is_used() -> None:
    """The memory that was used last is used next: it is warm, and the rest is never reached."""
    with memories() as (outgoing, incoming):
        assert put(outgoing, bytes(1000)) == 0
        assert put(outgoing, bytes(100)) == 1024
        assert put(outgoing, bytes(64)) == 1152
        incoming.take(0, 1000, xxh3_64_intdigest(bytes(1000)))
        assert put(outgoing, bytes(1025)) == 1216
        assert put(outgoing, bytes(1024)) == 0


def test_what_finds_no_room_is_refused() -> None:
    """And finds it once the payload that lies there was taken."""
    with memories() as (outgoing, incoming):
        assert put(outgoing, bytes(SIZE - 64)) == 0
        assert put(outgoing, bytes(65)) is None
        assert put(outgoing, bytes(64)) == SIZE - 64
        assert put(outgoing, b"x") is None
        incoming.take(0, SIZE - 64, xxh3_64_intdigest(bytes(SIZE - 64)))
        assert put(outgoing, b"x") == 0


def test_only_what_was_made_here_is_sent_and_once() -> None:
    """Other memory has no place, and a payload that was sent is the receiver's to give back."""
    with memories() as (outgoing, _):
        room = outgoing.allocate(100)
        assert room is not None
        assert outgoing.send(bytes(room)) is None
        assert outgoing.send(memoryview(bytearray(100))) is None
        assert outgoing.send(room.toreadonly()) == 0
        assert outgoing.send(room) is None


def test_what_is_held_outlives_the_memory(leak_check: LeakCheck) -> None:
    """A snapshot that is being stored is not harmed by the end of a connection; then all is given back."""
    outgoing = OutgoingMemory(SIZE)
    os.close(outgoing.descriptor)
    room = outgoing.allocate(100)
    assert room is not None
    room[:] = b"x" * 100
    outgoing.close()
    assert bytes(room) == b"x" * 100


def test_damage_and_lies_are_found() -> None:
    """Bytes that changed, and a place that is not in the memory."""
    with memories() as (outgoing, incoming):
        start = put(outgoing, b"payload")
        assert start == 0
        with pytest.raises(ChannelError, match="checksum"):
            incoming.take(start, 7, xxh3_64_intdigest(b"another"))
        for place in ((0, SIZE + 1), (0, 2**63), (SIZE - 1, 2), (2**63, 7), (2**64 - 7, 7)):
            with pytest.raises(ChannelError, match="bytes of shared memory"):
                incoming.take(*place, xxh3_64_intdigest(b""))
        assert bytes(incoming.take(start, 7, xxh3_64_intdigest(b"payload"))) == b"payload"


@pytest.mark.parametrize("said", [0, SIZE - 1, 2 * SIZE, 2**63])
def test_memory_of_another_size_is_refused(leak_check: LeakCheck, said: int) -> None:
    """A receiver that read beyond its end would be killed; nothing stays open."""
    outgoing = OutgoingMemory(SIZE)
    with pytest.raises(ChannelError, match="another size"):
        IncomingMemory(outgoing.descriptor, said)
    outgoing.close()


def test_memory_that_can_shrink_is_refused(leak_check: LeakCheck) -> None:
    """Its receiver would be killed by whoever shrinks it; an outgoing one cannot."""
    descriptor = os.memfd_create("shrinks", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, mmap.PAGESIZE + SIZE)
    with pytest.raises(ChannelError, match="take away"):
        IncomingMemory(descriptor, SIZE)
    outgoing = OutgoingMemory(SIZE)
    with pytest.raises(PermissionError):
        os.ftruncate(outgoing.descriptor, 0)
    os.close(outgoing.descriptor)
    outgoing.close()


def test_what_is_no_memory_is_refused(leak_check: LeakCheck) -> None:
    """A pipe can be passed as well."""
    reading, writing = os.pipe()
    with pytest.raises(ChannelError, match="cannot be opened"):
        IncomingMemory(reading, SIZE)
    os.close(writing)


def test_the_receiver_cannot_write_payloads() -> None:
    """It maps them without the right to."""
    with memories() as (_, incoming), pytest.raises(TypeError, match="read-only"):
        incoming._bytes[0] = 1
