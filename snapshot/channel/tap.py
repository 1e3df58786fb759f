"""Hears what a sending end is given, without a hook in it: the methods of that one instance are replaced.

So an end that nobody listens to pays nothing. For whoever writes down what happens: the simulator's witness, the trace
of a real run. Must not know what they write.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import pyarrow as pa

from snapshot.channel.sending_end import SendingEnd

#: What a listener makes of a message before it is sent, for afterwards it is the receiver's.
Heard = TypeVar("Heard")


def tap(
    end: SendingEnd,
    *,
    pack: Callable[[Any], Heard],
    pack_rows: Callable[[pa.RecordBatch], Sequence[Heard]],
    on_message: Callable[[Heard], object],
    on_rows: Callable[[Sequence[Heard]], object],
    on_end: Callable[[], object],
) -> None:
    """Listen to an end from now on.

    Parameters
    ----------
    pack, pack_rows : callable
        Given a message, or a batch of them, before it is sent.
    on_message, on_rows, on_end : callable
        Given what `pack` or `pack_rows` returned once the end has numbered it; not where the end refused.
    """
    send, send_batch, send_end = end.send, end.send_batch, end.send_end

    def heard_send(message: Any) -> None:
        packed = pack(message)
        send(message)
        on_message(packed)

    def heard_batch(batch: pa.RecordBatch) -> None:
        rows = pack_rows(batch)
        send_batch(batch)
        on_rows(rows)

    def heard_end() -> None:
        send_end()
        on_end()

    taps: Any = end  # a method is not meant to be assigned to
    taps.send, taps.send_batch, taps.send_end = heard_send, heard_batch, heard_end
    end.is_heard = True
