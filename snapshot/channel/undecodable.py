"""Stored messages that the program cannot decode, and the decoding of a frame around them.

Owns what stands in the place of such a message. Each message is encoded alone in its frame, so the others are decoded.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from cutline.snapshot.channel.frame import Frame, PayloadKind
from cutline.snapshot.channel.frame_codec import encoded_messages, messages_of
from cutline.snapshot.channel.object_frame import AnyFrame
from cutline.snapshot.channel.pickles import NotSerialisable
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.channel.stored_references import may_have_references, references_in
from cutline.snapshot.naming.reference import decode_references

#: Kinds of frames whose messages may be pickles.
_MAY_FAIL = (PayloadKind.VALUES, PayloadKind.TUPLES)


@dataclass(frozen=True, slots=True)
class Undecodable:
    """A stored message that the program cannot decode."""

    #: names of the classes and functions to which the message refers
    names: tuple[str, ...]
    #: the message, as it is stored
    bytes: bytes
    error: str


def decoded_messages(frame: AnyFrame, codec: Codec) -> list[Any] | pa.RecordBatch:
    """Return the messages of a frame, or its record batch, with an `Undecodable` for each that cannot be decoded.

    Raises
    ------
    NotSerialisable
        if the frame itself cannot be read.
    """
    try:
        return messages_of(frame, codec)
    except NotSerialisable:
        if not isinstance(frame, Frame) or frame.kind not in _MAY_FAIL:
            raise
    return [_decoded(piece, frame.kind, codec) for piece in encoded_messages(frame)]


def unbound_messages(frames: Iterable[Frame], codec: Codec) -> list[tuple[int, str]]:
    """Return (number, error) of the messages that refer to classes or functions that the program does not have.

    No message is decoded. Frames without references cost one search.
    """
    found: list[tuple[int, str]] = []
    for frame in frames:
        if frame.kind not in _MAY_FAIL or not may_have_references(frame.payload):
            continue
        try:
            codec.require(references_in(frame.payload))
        except NotSerialisable:
            found += _unbound(frame, codec)
    return found


def _unbound(frame: Frame, codec: Codec) -> list[tuple[int, str]]:
    found = []
    for number, piece in enumerate(encoded_messages(frame), frame.first):
        try:
            codec.require(references_in(piece))
        except NotSerialisable as error:
            found.append((number, str(error)))
    return found


def _decoded(piece: bytes, kind: PayloadKind, codec: Codec) -> Any:
    try:
        message = codec.decode(piece)
    except NotSerialisable as error:
        return Undecodable(_names_in(piece), piece, str(error))
    return tuple(message) if kind is PayloadKind.TUPLES else message


def _names_in(piece: bytes) -> tuple[str, ...]:
    references = (each for encoded in references_in(piece) for each in decode_references(encoded))
    return tuple(sorted({each.name for each in references}))
