"""Edits of encoded frames: every kind of frame keeps the messages that are not meant, byte by byte."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutline.snapshot.channel.control_frames import StreamEnd, control_frame
from cutline.snapshot.channel.edited_frames import (
    by_content,
    by_number,
    dropped,
    renumbered,
    renumbered_waves,
    replaced,
)
from cutline.snapshot.channel.frame import Frame
from cutline.snapshot.channel.frame_codec import encoded_messages, messages_of
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.errors import GraphError
from tests.snapshot import sample

CODEC = Codec()

#: A frame of each kind, and the end of the stream.
FRAMES = [
    sample.values(1, "one", {"two": 2}, [3], ("four", [4])),
    sample.tuples(5, (5, [5]), (6, ("six",))),
    sample.flat(7, (7, "seven"), (8, "eight")),
    sample.batch(9, 3),
    control_frame(12, StreamEnd()),
]


def decode(frame: Frame) -> Any:
    """The messages of a frame."""
    return messages_of(frame, CODEC)


def listed(frames: list[Frame]) -> list[Any]:
    """All messages; the end of the stream is shown as END."""
    found: list[Any] = []
    for frame in frames:
        messages = decode(frame)
        found += messages.to_pylist() if isinstance(messages, pa.RecordBatch) else messages
        found += ["END"] if frame.is_control else []
    return found


@given(st.sets(st.integers(0, 10)))
def test_any_messages_are_dropped_and_the_others_stay(places: set[int]) -> None:
    """What is left is what was there without those meant, in order; the end stays, and numbers have no gap."""
    before = listed(FRAMES)
    meant = [before[place] for place in places]
    edited = dropped(FRAMES, by_content(lambda message: message in meant), CODEC)
    assert edited.message_count == len(meant)
    assert listed(edited.frames) == [message for message in before if message not in meant]
    numbered = renumbered(edited.frames, 40)
    assert [frame.first for frame in numbered] == [
        40 + sum(f.count for f in numbered[:n]) for n in range(len(numbered))
    ]


@given(st.sets(st.integers(0, 10)))
def test_any_messages_are_replaced(places: set[int]) -> None:
    """Each new message is in the place of the old one, of its own type."""
    before = listed(FRAMES)
    meant = [before[place] for place in places]

    def new(message: Any) -> Any:
        if isinstance(message, dict) and "x" in message:
            return {"x": -message["x"]}
        return ("new", message) if isinstance(message, str) else "new"

    edited = replaced(FRAMES, by_content(lambda message: message in meant), new, CODEC)
    assert edited.message_count == len(meant)
    assert listed(edited.frames) == [new(message) if message in meant else message for message in before]


@given(st.sets(st.integers(1, 11)))
def test_numbers_mean_the_same_messages(numbers: set[int]) -> None:
    """A number means its message, whatever is in it."""
    before = listed(FRAMES)
    left = [message for number, message in enumerate(before, 1) if number not in numbers]
    assert listed(dropped(FRAMES, by_number(numbers), CODEC).frames) == left


def test_frames_without_a_meant_message_are_kept_as_they_are() -> None:
    """Nothing is encoded anew."""
    assert dropped(FRAMES, by_content(lambda _: False), CODEC).frames == FRAMES


def test_each_message_has_bytes_of_its_own() -> None:
    """The bytes of a message are what a codec decodes alone."""
    assert [CODEC.decode(piece) for piece in encoded_messages(FRAMES[0])] == ["one", {"two": 2}, [3], ("four", [4])]


@pytest.mark.parametrize(
    ("new", "text"),
    [
        ({"y": 1}, r"\{'y': 1\} \(a dict\) lacks \['x'\] and has \['y'\], where the names are \['x'\]"),
        (5, r"5 \(a int\) is no dict with the keys \['x'\]"),
        ({"x": "text"}, r"column x: 'text' \(a str\) is no integer, as int64 holds"),
        ({"x": 1.5}, r"column x: 1\.5 \(a float\) is no integer, as int64 holds"),
    ],
)
def test_a_row_that_does_not_fit_its_batch_is_refused(new: Any, text: str) -> None:
    """Columns are never lost or invented."""
    with pytest.raises(GraphError, match=text):
        replaced(FRAMES, by_content(lambda message: message == {"x": 10}), lambda _: new, CODEC)


def test_a_message_that_cannot_be_stored_is_refused() -> None:
    """The text shows the message."""
    with pytest.raises(GraphError, match="cannot be stored"):
        replaced(FRAMES, by_content(lambda message: message == "one"), lambda _: memoryview(b""), CODEC)


@given(
    marks=st.lists(st.integers(11, 20), unique=True).map(sorted),
    gone=st.sets(st.integers(11, 20)),
)
def test_waves_stay_with_their_messages(marks: list[int], gone: set[int]) -> None:
    """After messages 11 to 20 each message that is left has the wave that it had (PROTOCOL 6.11, waves)."""
    waves = [(through, 5 + place) for place, through in enumerate(marks)]

    def wave_of(number: int, marks: Sequence[tuple[int, int]]) -> int | None:
        return next((wave for through, wave in marks if number <= through), None)

    kept = [number for number in range(11, 21) if number not in gone]
    new = renumbered_waves(waves, (10, 20 - len(kept)), sorted(gone))
    assert [wave_of(20 - len(kept) + place, new) for place in range(1, len(kept) + 1)] == [
        wave_of(number, waves) for number in kept
    ]
    assert [through for through, _ in new] == sorted({through for through, _ in new})
