"""Write `Context.send` out for the edges of one subtask and the shapes of its messages, because sending is a hot path.

The written-out function sends messages by reference, and keyed messages to other workers by value, with one call. It
does `ChannelSender.send`'s work. Every other message, and every error, goes through the general `send`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

from cutline.snapshot.channel.channel_sender import CHECKED_BYTES, ChannelSender
from cutline.snapshot.channel.frame import PayloadKind
from cutline.snapshot.channel.partitioning import Directed, HashPartitioner
from cutline.snapshot.channel.plain_keys import PLAIN_KEYS
from cutline.snapshot.channel.serialization import Codec, are_atoms
from cutline.snapshot.channel.shapes import Shapes, function
from cutline.snapshot.subtask.output_edge import OutputEdge

#: type of `Context.send` as a method
Send = Callable[..., None]

_RecordBatch = pa.RecordBatch
_VALUES, _TUPLES = PayloadKind.VALUES, PayloadKind.TUPLES

#: Send `m` to the only target of edge {0}, which is in this worker.
_TO_ONE: Final = """\
append{0}(m)
if len(messages{0}) >= objects{0}.limit:
 end{0}.check_objects()
"""

#: Send `m` along the hash edge {0} to its only target, which is in this worker. `emit` raises the key's errors again.
_KEYED_TO_ONE: Final = """\
try:
 key = key_of{0}(m)
 is_plain = type(key) in PLAIN_KEYS
except BaseException:
 is_plain = False
if is_plain:
 append{0}(m)
 append_key{0}(key)
 if len(messages{0}) >= objects{0}.limit:
  end{0}.check_objects()
else:
 emit{0}(m)
"""

#: Send `m` along the hash edge {0} to the target of its key.
_BY_KEY: Final = """\
try:
 key = key_of{0}(m)
 index = targets{0}.get(key) if type(key) in PLAIN_KEYS else None
except BaseException:
 index = None
if index is None:
 emit{0}(m)
else:
 end = ends{0}[index]
 objects = end.objects
 if objects.limit:
  objects.messages.append(m)
  objects.keys.append(key)
  if len(objects.messages) >= objects.limit:
   end.check_objects()
 else:
  end.send_encoded(m)
"""

_EMIT: Final = "emit{0}(m)\n"


def written_send(edges: tuple[OutputEdge, ...], shapes: Shapes, otherwise: Send) -> Send | None:
    """Return a `send` for messages of the shapes that were learnt, or None where `otherwise` is as fast.

    Parameters
    ----------
    edges : tuple of OutputEdge
        All edges that leave the subtask.
    shapes : Shapes
    otherwise : callable
        The `send` that is called for all other messages, and for a named receiver.
    """
    names: dict[str, Any] = {**shapes.names(), "otherwise": otherwise, "PLAIN_KEYS": PLAIN_KEYS}
    sends, is_direct = "", False
    for number, edge in enumerate(edges):
        text, own_names = _code_of(edge)
        names |= {f"{name}{number}": value for name, value in own_names.items()}
        is_direct |= text is not _EMIT
        sends += text.format(number)
    sending = [*(f" {line}" for line in sends.splitlines()), " return"]
    found = shapes.lines(lambda has_shape, may_go: [f"if {has_shape} and {may_go}:", *sending])
    if not found or not is_direct:
        return None
    body = ["if to is None:", *(f" {line}" for line in found), "otherwise(self, m, to)"]
    return function("send", "self, m, to=None", body, names)


def _code_of(edge: OutputEdge) -> tuple[str, dict[str, Any]]:
    """Return the code that sends along an edge, and the values of its names."""
    ends, chooser = _senders(edge), edge.partitioner
    names: dict[str, Any] = {"emit": edge.emit}
    if isinstance(chooser, Directed) or not any(end.objects.are_taken for end in ends.values()):
        return _EMIT, names
    if len(ends) == 1:
        [end] = ends.values()
        names |= {"end": end, "objects": end.objects, "messages": end.objects.messages}
        names["append"] = end.objects.messages.append
        if not isinstance(chooser, HashPartitioner):
            return _TO_ONE, names
        return _KEYED_TO_ONE, names | {"key_of": chooser.key_of, "append_key": end.objects.keys.append}
    if isinstance(chooser, HashPartitioner):
        return _BY_KEY, names | {"ends": ends, "key_of": chooser.key_of, "targets": chooser.remembered}
    return _EMIT, names


def keyed_send(edges: tuple[OutputEdge, ...], codec: Codec, otherwise: Send) -> Send:
    """Return a shorter `send` for messages that are encoded for one hash edge, or `otherwise` for other edges.

    Parameters
    ----------
    edges : tuple of OutputEdge
        All edges that leave the subtask.
    codec : Codec
        The codec of the edges' channel senders.
    otherwise : callable
        The general `send`, called for messages that the short function cannot send.
    """
    if len(edges) != 1 or not isinstance(edges[0].partitioner, HashPartitioner) or not (ends := _senders(edges[0])):
        return otherwise
    partitioner = edges[0].partitioner
    key_of, targets, pack = partitioner.key_of, partitioner.remembered, codec.pack

    def send(self: Any, message: Any, to: Any = None) -> None:
        try:
            key = key_of(message)
            index = targets.get(key) if to is None and type(key) in PLAIN_KEYS else None
            if index is None:
                pass
            elif type(message) is tuple:
                kind = _TUPLES
                piece = pack(message) if are_atoms(map(type, message)) else codec.encode_tuple(message)
            elif type(message) is _RecordBatch:
                index = None
            else:
                kind, piece = _VALUES, codec.encode(message)
        except BaseException:  # noqa: BLE001  # because `otherwise` raises the error again, with its cause
            index = None
        if index is None or (end := ends[index]).open_kind is not kind or end.objects.limit:
            otherwise(self, message, to)
            return
        pieces = end.open_pieces
        pieces.append(piece)
        if len(piece) > CHECKED_BYTES or len(pieces) >= end.check_at:
            end.check_frame_size(piece)

    return send


def _senders(edge: OutputEdge) -> dict[int, ChannelSender]:
    """Return the senders of an edge that may be used directly: none if functions or an observer come before them."""
    ends = {index: end for index, end in edge.ends.items() if isinstance(end, ChannelSender)}
    return ends if len(ends) == len(edge.ends) and not edge.transforms else {}
