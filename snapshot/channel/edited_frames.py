"""Drop and replace messages in flight, in their encoded frames.

Owns the way from the frames of a channel to other frames. Must not know channels, nor how messages are numbered at
their ends. A control frame is never passed to a user's function, and stays in its place.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import pyarrow as pa
from msgspec import structs

from cutline.snapshot.channel.frame import Frame, PayloadKind
from cutline.snapshot.channel.frame_codec import encoded_messages, frame_of_batch, frame_of_pieces
from cutline.snapshot.channel.pickles import NotSerialisable
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.channel.undecodable import Undecodable, decoded_messages
from cutline.snapshot.errors import GraphError
from cutline.snapshot.ids import ChannelId
from cutline.snapshot.values.fitting import DoesNotFit, fit_rows

#: Function that says whether a message is meant. The rows of a batch are dicts.
Where = Callable[[Any], object]

#: Function from a message to the message that takes its place.
Replacement = Callable[[Any], Any]

#: Returns whether a message is meant, by its number and the message.
Meant = Callable[[int, Any], bool]


def by_content(where: Where) -> Meant:
    """Mean the messages for which `where` is true. A message that cannot be decoded is never passed to it."""
    return lambda _, message: not isinstance(message, Undecodable) and bool(where(message))


def by_number(numbers: Collection[int]) -> Meant:
    """Mean the messages of these numbers, whether they can be decoded or not."""
    return lambda number, _: number in numbers


class InFlight(NamedTuple):
    """A message in flight: its channel, its number there, and the message, or an `Undecodable` in its place."""

    channel: ChannelId
    number: int
    message: Any


class EditedFrames(NamedTuple):
    """Frames after an edit. Their numbers are those of `renumbered` only."""

    frames: list[Frame]
    #: messages that the edit has changed
    message_count: int
    #: numbers of the messages that are gone, ascending
    gone: list[int]


def renumbered(frames: Iterable[Frame], first: int) -> list[Frame]:
    """Number the messages of frames from `first` on, without a gap."""
    result = []
    for frame in frames:
        result.append(structs.replace(frame, first=first))
        first += frame.count
    return result


def renumbered_waves(
    waves: Sequence[tuple[int, int]], processed: tuple[int, int], gone: Sequence[int]
) -> tuple[tuple[int, int], ...]:
    """Return the waves of a channel without the messages that are gone (PROTOCOL 6.11, waves).

    Parameters
    ----------
    waves : sequence of tuple
        (number of the last message, wave), ascending.
    processed : tuple of int
        Number of the last message processed, before and after the messages were numbered anew.
    gone : sequence of int
        Old numbers of the messages that are gone, ascending.
    """
    before, end = processed
    result: list[tuple[int, int]] = []
    for through, wave in waves:
        last = processed[1] + (through - before) - bisect_right(gone, through)
        if last > end:
            result.append((last, wave))
            end = last
    return tuple(result)


def listed(channel: ChannelId, frames: Iterable[Frame], codec: Codec) -> Iterator[InFlight]:
    """Yield the messages of frames. The rows of a batch are dicts."""
    for frame in frames:
        for number, message in enumerate(_messages(frame, codec), frame.first):
            yield InFlight(channel, number, message)


def dropped(frames: Iterable[Frame], meant: Meant, codec: Codec) -> EditedFrames:
    """Leave out the messages that are meant."""
    kept: list[Frame] = []
    gone: list[int] = []
    for frame in frames:
        chosen = _chosen(frame, meant, codec)
        gone += [number for number, is_chosen in enumerate(chosen, frame.first) if is_chosen]
        if not any(chosen):
            kept.append(frame)
        elif not all(chosen):
            kept.append(_without(frame, chosen, codec))
    return EditedFrames(kept, len(gone), gone)


def replaced(
    frames: Iterable[Frame], meant: Meant, replacement: Replacement, codec: Codec, schema: pa.Schema | None = None
) -> EditedFrames:
    """Put other messages in the place of those that are meant.

    `schema` is that of new rows of batches; None: that of their batch.

    Raises
    ------
    GraphError
        if a new message cannot be encoded, or a row does not have the columns of its batch.
    """
    result: list[Frame] = []
    count = 0
    for frame in frames:
        chosen = _chosen(frame, meant, codec)
        count += sum(chosen)
        if not any(chosen):
            result.append(frame)
        elif frame.kind is PayloadKind.BATCH:
            result += _replaced_rows(decoded_messages(frame, codec), chosen, replacement, schema)
        else:
            result += _replaced_values(frame, chosen, replacement, codec)
    return EditedFrames(result, count, [])


def _messages(frame: Frame, codec: Codec) -> list[Any]:
    messages = decoded_messages(frame, codec)
    rows: list[Any] = messages.to_pylist() if isinstance(messages, pa.RecordBatch) else messages
    return rows


def _chosen(frame: Frame, meant: Meant, codec: Codec) -> list[bool]:
    """Return for each message of a frame whether it is meant."""
    if frame.is_control:
        return [False]
    return [meant(number, message) for number, message in enumerate(_messages(frame, codec), frame.first)]


def _without(frame: Frame, chosen: Sequence[bool], codec: Codec) -> Frame:
    if frame.kind is PayloadKind.BATCH:
        batch: Any = decoded_messages(frame, codec)
        return frame_of_batch(frame.first, batch.filter(pa.array([not each for each in chosen])))
    pieces = [piece for piece, is_chosen in zip(encoded_messages(frame), chosen, strict=True) if not is_chosen]
    return frame_of_pieces(frame.first, frame.kind, pieces)


def _replaced_rows(
    batch: Any, chosen: Sequence[bool], replacement: Replacement, schema: pa.Schema | None
) -> Iterator[Frame]:
    """Yield frames of the rows that stay, in slices without a copy of values, and of the new rows between them."""
    start = 0
    for is_chosen, run in groupby(chosen):
        rows = batch.slice(start, len(list(run)))
        start += rows.num_rows
        yield frame_of_batch(0, _new_rows(rows, replacement, schema) if is_chosen else rows)


def _new_rows(rows: pa.RecordBatch, replacement: Replacement, schema: pa.Schema | None) -> pa.RecordBatch:
    new = [replacement(row) for row in rows.to_pylist()]
    try:
        return fit_rows(new, rows.schema if schema is None else schema)
    except DoesNotFit as error:
        raise GraphError(f"a row that replaces another does not fit its batch: {error}") from error


def _replaced_values(frame: Frame, chosen: Sequence[bool], replacement: Replacement, codec: Codec) -> Iterator[Frame]:
    messages = decoded_messages(frame, codec)
    encoded = [
        _encoded(replacement(message), codec) if is_chosen else (frame.kind, piece)
        for message, piece, is_chosen in zip(messages, encoded_messages(frame), chosen, strict=True)
    ]
    for kind, same in groupby(encoded, key=lambda each: each[0]):
        yield frame_of_pieces(0, kind, [piece for _, piece in same])


def _encoded(message: Any, codec: Codec) -> tuple[PayloadKind, bytes]:
    try:
        if type(message) is tuple:
            return PayloadKind.TUPLES, codec.encode_tuple(message)
        return PayloadKind.VALUES, codec.encode(message)
    except NotSerialisable as error:
        raise GraphError(f"the message {message!r} cannot be stored: {error}") from error
