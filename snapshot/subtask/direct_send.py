"""`Context.send` in one function, for a node whose only edge goes by hash: the hot path of keyed streams.

It does what `Context.send`, `OutputEdge.emit` and `ChannelSender.send` do one after the other, without their calls, for
messages that name no receiver and have a key that was seen before; everything else goes the ordinary way, and so does
whatever fails, which says there what is wrong. ``tests/snapshot/subtask/test_direct_send.py`` holds both ways together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from snapshot.channel.channel_sender import CHECKED_BYTES, ChannelSender
from snapshot.channel.frame import PayloadKind
from snapshot.channel.partitioning import PLAIN_KEYS, HashPartitioner
from snapshot.subtask.output_edge import OutputEdge

_RecordBatch = pa.RecordBatch
_VALUES, _TUPLES = PayloadKind.VALUES, PayloadKind.TUPLES

#: `Context.send`
Send = Callable[..., None]


def direct_send(edge: OutputEdge, pack: Callable[[Any], bytes], otherwise: Send) -> Send | None:
    """The function; None where only the ordinary way does.

    Parameters
    ----------
    edge : OutputEdge
        The only one that leaves the subtask.
    pack : callable
        Encodes a message as the edge's ends do.
    otherwise : callable
        The ordinary way.
    """
    if edge.transforms:
        return None
    ends = {index: end for index, end in edge.ends.items() if isinstance(end, ChannelSender)}
    if len(ends) < len(edge.ends):  # an observer is to see each message
        return None
    if isinstance(edge.partitioner, HashPartitioner):
        return _by_key(edge.partitioner, ends, pack, otherwise)
    return None


def _by_key(
    partitioner: HashPartitioner, ends: dict[int, ChannelSender], pack: Callable[[Any], bytes], otherwise: Send
) -> Send:
    key_of, targets = partitioner.key_of, partitioner.remembered

    def send(message: Any, to: Any = None) -> None:
        try:
            key = key_of(message)
            index = targets.get(key) if to is None and type(key) in PLAIN_KEYS else None
            if index is None:
                pass
            elif type(message) is tuple:
                kind, piece = _TUPLES, pack([*message])
            elif type(message) is _RecordBatch:
                index = None
            else:
                kind, piece = _VALUES, pack(message)
        except Exception:  # noqa: BLE001  # the ordinary way meets it again, and says what it is
            index = None
        if index is None or (end := ends[index]).open_kind is not kind:
            otherwise(message, to)
            return
        pieces = end.open_pieces
        pieces.append(piece)
        if len(piece) > CHECKED_BYTES or len(pieces) >= end.check_at:
            end.check_frame_size(piece)

    return send
