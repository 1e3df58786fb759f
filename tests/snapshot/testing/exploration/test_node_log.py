"""The log of a node: what is sent and what is handled is written alike, so that both can be compared."""

from __future__ import annotations

import pyarrow as pa

from cutline import Node
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.testing.exploration.node_log import NOWHERE, NodeLog
from tests.snapshot import sample

PQ = sample.PQ


def test_rows_that_are_sent_are_those_that_are_handled() -> None:
    """A batch is logged row by row, at both ends, among other messages."""
    batch = pa.RecordBatch.from_pylist([{"number": 1}, {"number": 2}])
    sender, receiver = NodeLog(NOWHERE, Codec()), NodeLog(NOWHERE, Codec())
    sender.attached(Node(), {}, {PQ: None})  # type: ignore[dict-item]
    receiver.attached(Node(), {PQ: None}, {})  # type: ignore[dict-item]
    sender.message_sent(PQ, sender.message_sending(PQ, "first"))
    receiver.message_received(PQ, "first")
    sender.rows_sent(PQ, sender.rows_sending(PQ, batch))
    receiver.rows_received(PQ, batch)
    assert len(sender.sent[PQ]) == 3
    assert sender.sent == receiver.handled
