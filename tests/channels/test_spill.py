"""The FIFO on disk."""

from __future__ import annotations

import os
from collections import deque
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutline.channels.spill import SpillFile
from cutline.channels.wire import HEADER_BYTES
from cutline.snapshot.channel.channel_sender import ChannelSender
from cutline.snapshot.channel.frame import Frame, PayloadKind
from cutline.snapshot.channel.output_buffer import BUFFER_BYTES_MAX, BackpressureFlag
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.errors import ChannelError
from cutline.snapshot.ids import ChannelId, Subtask


@given(st.lists(st.one_of(st.none(), st.binary(max_size=80)), max_size=60))
def test_fifo(tmp_path_factory: pytest.TempPathFactory, steps: list[bytes | None]) -> None:
    """Against a deque: the same frames in the same order, by `popleft` and by iterating, over many small files."""
    spill = SpillFile("a->b", str(tmp_path_factory.getbasetemp()), segment_bytes=100)
    model: deque[Frame] = deque()
    for number, payload in enumerate(steps, 1):
        if payload is not None:
            model.append(Frame(number, 1, PayloadKind.VALUES, payload))
            spill.append(model[-1])
        elif model:
            assert spill.popleft() == model.popleft()
        assert list(spill) == list(model)
        assert len(spill) == len(model)
        assert spill.waiting_bytes == sum(HEADER_BYTES + len(f.payload) for f in model)
    spill.close()


def test_a_disk_that_takes_few_bytes_at_a_time_gets_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write may be cut off anywhere, inside the header and inside the payload."""
    write = os.pwritev
    few = 7  # divides neither the header nor the payload
    monkeypatch.setattr(
        "cutline.channels.spill.os.pwritev",
        lambda descriptor, pieces, at: write(descriptor, [piece[:few] for piece in pieces[:1]], at),
    )
    spill = SpillFile("a->b", str(tmp_path))
    frames = [Frame(number, 1, PayloadKind.VALUES, bytes(range(number, 100))) for number in (1, 2)]
    for frame in frames:
        spill.append(frame)
    assert list(spill) == frames
    spill.close()


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    """No file has a name, and what is read gives its descriptors back."""
    before = len(os.listdir("/proc/self/fd"))
    spill = SpillFile("a->b", str(tmp_path), segment_bytes=1000)
    for number in range(1, 50):
        spill.append(Frame(number, 1, PayloadKind.VALUES, bytes(500)))
    assert list(tmp_path.iterdir()) == []
    assert len(os.listdir("/proc/self/fd")) > before + 10
    while len(spill):
        spill.popleft()
    assert len(os.listdir("/proc/self/fd")) == before
    spill.close()


def test_a_file_is_full_at_16_mib(tmp_path: Path) -> None:
    """So few files are open, and no more than that much of the disk is held in vain."""
    before = len(os.listdir("/proc/self/fd"))
    spill = SpillFile("a->b", str(tmp_path))
    counts = []
    for number, size in enumerate((8 * 1024 * 1024, 8 * 1024 * 1024 - 1, HEADER_BYTES, HEADER_BYTES), 1):
        spill.append(Frame(number, 1, PayloadKind.VALUES, bytes(size - HEADER_BYTES)))
        counts.append(len(os.listdir("/proc/self/fd")) - before)
    assert counts == [1, 1, 1, 2]
    spill.close()


def test_the_cap_is_a_named_error(tmp_path: Path) -> None:
    """It names the channel and the setting; what waits is still there."""
    spill = SpillFile("a[0]->b[1]", str(tmp_path), bytes_max=1000)
    spill.append(Frame(1, 1, PayloadKind.VALUES, bytes(700)))
    with pytest.raises(ChannelError, match=r"a\[0\]->b\[1\].*spill_bytes_max"):
        spill.append(Frame(2, 1, PayloadKind.VALUES, bytes(700)))
    assert spill.popleft().first == 1
    spill.close()


def test_the_cap_itself_may_wait(tmp_path: Path) -> None:
    """A file may hold as many bytes as the setting says, headers included, and no byte more."""
    spill = SpillFile("a->b", str(tmp_path), bytes_max=2 * (HEADER_BYTES + 10))
    for number in (1, 2):
        spill.append(Frame(number, 1, PayloadKind.VALUES, bytes(10)))
    with pytest.raises(ChannelError, match="spill_bytes_max"):
        spill.append(Frame(3, 1, PayloadKind.VALUES, b""))
    assert spill.popleft().first == 1
    spill.append(Frame(3, 1, PayloadKind.VALUES, bytes(10)))
    spill.close()


def test_a_disk_that_refuses_is_a_named_error() -> None:
    """The channel and the place are in the text."""
    spill = SpillFile("a->b", "/nonexistent")
    with pytest.raises(ChannelError, match="a->b: cannot spill to /nonexistent"):
        spill.append(Frame(1, 1, PayloadKind.VALUES, b"x"))


def test_a_sending_end_spills_and_comes_back(tmp_path: Path) -> None:
    """An out-buffer inside a cycle holds its bound in memory, the rest on disk, and gives all in order."""
    spill = SpillFile("a->b", str(tmp_path))
    backpressure = BackpressureFlag()
    end = ChannelSender(ChannelId(Subtask("a"), Subtask("b")), Codec(), backpressure, spill=spill)
    for _ in range(64):
        end.send(bytes(64 * 1024))
    end.validate()
    assert end.buffer.spilling
    assert backpressure.closed == 0
    assert end.buffer.buffered_bytes < BUFFER_BYTES_MAX + 128 * 1024
    taken = []
    while end.buffer.has_data:
        frame = end.buffer.take()
        assert isinstance(frame, Frame)
        taken.append(frame.first)
    assert taken == list(range(1, 65))
    spill.close()
