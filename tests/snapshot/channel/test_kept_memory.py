"""Memory of copies: whole as long as somebody reads them, used again after that, and not kept in vain."""

from __future__ import annotations

import queue
import threading

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutline.snapshot.channel.kept_memory import KEPT_BYTES_MIN, KEPT_SECONDS_MAX, KeptMemory
from cutline.snapshot.channel.serialization import Codec

SIZE = 2 * KEPT_BYTES_MIN


def of(number: int, size: int = SIZE) -> memoryview:
    """So many bytes, all of one value."""
    return np.full(size, number, np.uint8).data


def place_of(view: memoryview) -> int:
    """Where it begins."""
    return int(np.frombuffer(view, np.uint8).ctypes.data)


def test_memory_is_used_again() -> None:
    """Once nothing refers to a copy, not even to a part of it, the next one is made in its place; before, elsewhere."""
    memory = KeptMemory()
    first = memory.copy(of(1))
    part, place = first[10:20], place_of(first)
    del first
    second = memory.copy(of(2))
    assert place_of(second) != place
    assert bytes(part) == b"\1" * 10
    del part
    assert memory.idle_bytes >= SIZE
    assert place_of(memory.copy(of(3, SIZE + SIZE // 10))) == place, "it has room for a state that grows a little"


def test_nobody_writes_to_a_copy() -> None:
    """It is read-only, large or small, and what happens to its source is not seen."""
    memory = KeptMemory()
    for size in (1000, SIZE):
        source = np.zeros(size, np.uint8)
        copy = memory.copy(source.data)
        source[:] = 7
        assert copy.readonly and not any(copy[:1000])


def test_what_is_not_needed_goes() -> None:
    """After a minute without a copy in it; at once when a larger one is made, or when it is said."""
    memory = KeptMemory()
    memory.copy(of(1))
    memory.release_idle(100.0)
    memory.release_idle(100.0 + KEPT_SECONDS_MAX)
    assert memory.idle_bytes
    memory.copy(of(2))  # needed again
    memory.release_idle(101.0 + KEPT_SECONDS_MAX)
    memory.release_idle(101.0 + 2 * KEPT_SECONDS_MAX)
    assert memory.idle_bytes
    memory.release_idle(102.0 + 2 * KEPT_SECONDS_MAX)
    assert not memory.idle_bytes

    memory.copy(of(1))
    larger = memory.copy(of(2, 2 * SIZE))
    assert not memory.idle_bytes, "a block of each size that a state has had"
    del larger
    memory.give_back()
    assert not memory.idle_bytes


def test_blocks_beyond_need_are_not_used_in_turn() -> None:
    """Copies that overlapped once, while a store was slow, do not keep all their blocks for ever."""
    memory = KeptMemory()
    at_once = [memory.copy(of(number)) for number in range(4)]
    del at_once
    four_idle = memory.idle_bytes
    for second in range(2 * int(KEPT_SECONDS_MAX)):
        memory.copy(of(5))
        memory.release_idle(float(second))
    assert 0 < memory.idle_bytes < four_idle / 3


def test_a_growing_state_gives_back_what_it_outgrew_and_no_more() -> None:
    """Of four small blocks that were in use at once, a block of twice their size replaces two."""
    memory = KeptMemory()
    at_once = [memory.copy(of(number)) for number in range(4)]
    del at_once
    four_idle = memory.idle_bytes
    larger = memory.copy(of(5, 2 * SIZE))
    assert larger.nbytes == 2 * SIZE and memory.idle_bytes == four_idle // 2


def test_a_small_state_that_grows_does_not_cost_a_large_one_its_block() -> None:
    """Only what is too small makes room for a new block."""
    memory = KeptMemory()
    place = place_of(memory.copy(of(1, 8 * SIZE)))
    for number in range(1, 7):
        memory.copy(of(2, number * KEPT_BYTES_MIN))
        assert place_of(memory.copy(of(1, 8 * SIZE))) == place
        assert memory.idle_bytes < 14 * SIZE


def test_what_is_lent_when_all_is_given_back_goes_too() -> None:
    """An upload of what was rolled back ends while its state is restored."""
    memory = KeptMemory()
    copy = memory.copy(of(1))
    memory.give_back()
    del copy
    assert not memory.idle_bytes


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2)), max_size=40))
def test_copies_are_whole(steps: list[tuple[int, int]]) -> None:
    """Any order of making and dropping: no copy is written to, and nothing is kept beyond need."""
    memory = KeptMemory()
    held: dict[int, memoryview] = {}
    most = 0
    for number, (size, dropped) in enumerate(steps):
        held[number] = memory.copy(of(number, KEPT_BYTES_MIN * (size + 1) - 1))
        most = max(most, sum(view.nbytes for view in held.values()))
        if dropped:
            del held[list(held)[dropped % len(held)]]
        for value, view in held.items():
            assert (np.frombuffer(view, np.uint8) == value).all()
        assert memory.idle_bytes <= 3 * most


def test_other_threads_let_go() -> None:
    """What is read and dropped on one thread, while another makes copies, is whole to its end."""
    memory, read = KeptMemory(), []
    passed: queue.SimpleQueue[tuple[int, memoryview] | None] = queue.SimpleQueue()

    def reader() -> None:
        while (item := passed.get()) is not None:
            value, view = item
            del item
            read.append(bool((np.frombuffer(view, np.uint8) == value).all()))
            del view

    threads = [threading.Thread(target=reader) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(300):
        passed.put((number % 251, memory.copy(of(number % 251))))
    for _ in threads:
        passed.put(None)
    for thread in threads:
        thread.join()
    assert read == [True] * 300
    assert memory.idle_bytes


@pytest.mark.parametrize("is_batch", [False, True])
def test_states_use_it(is_batch: bool) -> None:
    """A state's array, or record batch, is copied to where that of the last snapshot was, once that one is stored."""
    memory = KeptMemory()
    codec = Codec(memory=memory)
    for number in range(3):
        array = np.full(SIZE // 8, number)
        state = pa.record_batch({"x": array}) if is_batch else array
        stored = codec.encode_state({"state": state})
        assert not memory.idle_bytes
        found = codec.decode_state(b"".join(stored))["state"]
        assert found.equals(state) if is_batch else (found == state).all()
        del stored
        assert 0 < memory.idle_bytes < 2 * SIZE
