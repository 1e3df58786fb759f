"""The ring of shared memory: payloads come out as they went in, in order, and never where another one lies."""

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

from channels.shared_ring import IncomingRing, OutgoingRing
from snapshot.errors import ChannelError
from tests.leaks import LeakCheck

SIZE = 2 * mmap.PAGESIZE


@contextmanager
def rings() -> Iterator[tuple[OutgoingRing, IncomingRing]]:
    """Both sides of one small ring."""
    outgoing = OutgoingRing(SIZE)
    incoming = IncomingRing(outgoing.descriptor, SIZE)
    yield outgoing, incoming
    outgoing.close()
    incoming.close()


@given(st.lists(st.one_of(st.none(), st.integers(1, SIZE)), max_size=40))
def test_payloads_come_out_as_they_went_in(steps: list[int | None]) -> None:
    """Whatever is put (a length) and taken (None): in order, unchanged; an empty ring takes whatever it can hold."""
    with rings() as (outgoing, incoming):
        waiting: deque[tuple[int, bytes]] = deque()
        for number, length in enumerate(steps):
            if length is None:
                if waiting:
                    position, payload = waiting.popleft()
                    taken = incoming.take(position, len(payload), xxh3_64_intdigest(payload))
                    assert bytes(taken) == payload and taken.readonly
                continue
            payload = bytes([number % 256]) * length
            found = outgoing.put(payload)
            assert found is not None or waiting, f"{length} bytes had no room in an empty ring"
            if found is not None:
                waiting.append((found, payload))
        for position, payload in waiting:
            assert bytes(incoming.take(position, len(payload), xxh3_64_intdigest(payload))) == payload


def test_what_waits_is_not_written_over() -> None:
    """A ring with something in it refuses what would not fit beside that."""
    with rings() as (outgoing, incoming):
        assert outgoing.put(bytes(SIZE - 100)) == 0
        assert outgoing.put(bytes(101)) is None
        assert outgoing.put(bytes(100)) == SIZE - 100
        assert outgoing.put(b"x") is None
        incoming.take(0, SIZE - 100, xxh3_64_intdigest(bytes(SIZE - 100)))
        assert outgoing.put(b"x") == SIZE


def test_an_empty_ring_begins_anew() -> None:
    """The memory that was used last is used next: it is warm, and the rest is never reached."""
    with rings() as (outgoing, incoming):
        for _ in range(5):
            position = outgoing.put(b"payload")
            assert position is not None and position % SIZE == 0
            incoming.take(position, 7, xxh3_64_intdigest(b"payload"))


def test_damage_and_lies_are_found() -> None:
    """Bytes that changed, and a place that is not in the ring."""
    with rings() as (outgoing, incoming):
        position = outgoing.put(b"payload")
        assert position is not None
        with pytest.raises(ChannelError, match="checksum"):
            incoming.take(position, 7, xxh3_64_intdigest(b"another"))
        for place in ((0, SIZE + 1), (0, 2**63), (SIZE - 1, 2), (2**63, 7), (2**64 - 7, 7)):
            with pytest.raises(ChannelError, match="bytes of shared memory"):
                incoming.take(*place, xxh3_64_intdigest(b""))
        incoming.take(position, 7, xxh3_64_intdigest(b"payload"))
        with pytest.raises(ChannelError, match="bytes of shared memory"):
            incoming.take(position, 7, xxh3_64_intdigest(b"payload"))


@pytest.mark.parametrize("said", [0, SIZE - 1, 2 * SIZE, 2**63])
def test_memory_of_another_size_is_refused(leak_check: LeakCheck, said: int) -> None:
    """A receiver that read beyond its end would be killed; nothing stays open."""
    outgoing = OutgoingRing(SIZE)
    with pytest.raises(ChannelError, match="another size"):
        IncomingRing(outgoing.descriptor, said)
    outgoing.close()


def test_memory_that_can_shrink_is_refused(leak_check: LeakCheck) -> None:
    """Its receiver would be killed by whoever shrinks it; that of an outgoing ring cannot."""
    descriptor = os.memfd_create("shrinks", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, mmap.PAGESIZE + SIZE)
    with pytest.raises(ChannelError, match="take away"):
        IncomingRing(descriptor, SIZE)
    outgoing = OutgoingRing(SIZE)
    with pytest.raises(PermissionError):
        os.ftruncate(outgoing.descriptor, 0)
    os.close(outgoing.descriptor)
    outgoing.close()


def test_what_is_no_memory_is_refused(leak_check: LeakCheck) -> None:
    """A pipe can be passed as well."""
    reading, writing = os.pipe()
    with pytest.raises(ChannelError, match="cannot be opened"):
        IncomingRing(reading, SIZE)
    os.close(writing)


def test_the_receiver_cannot_write_payloads() -> None:
    """It maps them without the right to."""
    with rings() as (_, incoming), pytest.raises(TypeError, match="read-only"):
        incoming._ring[0] = 1
