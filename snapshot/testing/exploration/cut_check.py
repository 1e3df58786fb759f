"""Check a complete snapshot against the log of what really happened at its cuts.

The core's own certificate is checked first. The log is checked next, because it knows nothing of the core's numbers.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from cutline.snapshot.channel.frame import Buffer
from cutline.snapshot.channel.frame_codec import messages_of
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.plan.declarations import Invariant
from cutline.snapshot.plan.topology import Topology
from cutline.snapshot.stored.manifest import Manifest
from cutline.snapshot.stored.part import Handle, PartKind, decode_frames, decode_part
from cutline.snapshot.stored.snapshot import Snapshot
from cutline.snapshot.testing.checking.verdict import CheckFailed
from cutline.snapshot.testing.exploration.node_log import END_OF_STREAM, LoggedCut
from cutline.snapshot.testing.payload import pack, pack_rows


@dataclass(frozen=True, slots=True)
class CheckedCuts:
    """The cuts of an exploration that were checked, because the same cut arises in many ways."""

    codec: Codec  #: the codec of the graph
    sound: dict[Hashable, None] = field(default_factory=dict)


def check_cut(topology: Topology, manifest: Manifest, cuts: Mapping[Subtask, LoggedCut], codec: Codec) -> None:
    """Check per channel, in order: sent before the sender's cut == handled before the receiver's cut + stored.

    Then no message is handled before its cut that was sent after the sender's cut: the cut is consistent, and exact.

    Raises
    ------
    CheckFailed
        if a channel differs. The text names channel and messages.
    """
    parts = {(h.kind, h.channel): h for record in manifest.records for h in record.handles}
    for channel in topology.channels:
        sent = list(dict(cuts[channel.source].sent)[channel])
        handled = list(dict(cuts[channel.target].handled)[channel])
        handles = [parts.get((kind, channel)) for kind in (PartKind.RECEIVED, PartKind.SENT)]
        stored = [message for handle in handles if handle for message in _stored(handle, codec)]
        if handled + stored != sent:
            text = f"{channel} at snapshot {manifest.snapshot_id}: sent {sent}, handled {handled}, stored {stored}"
            raise CheckFailed("exact cut", text)


def check_order(snapshot_id: int, published: Iterable[int], cuts: Mapping[Subtask, LoggedCut]) -> None:
    """Check that all subtasks cut the published snapshots in the order of ids (PROTOCOL 3.3, ascending cuts).

    Parameters
    ----------
    published : iterable of int
        Ids of published snapshots of this incarnation, all lower than `snapshot_id`.
    """
    for lower in published:
        for subtask, cut in cuts.items():
            if lower not in cut.earlier:
                raise CheckFailed("order", f"{subtask} cut {snapshot_id} before {lower}")


def check_invariants(manifest: Manifest, invariants: Mapping[str, Invariant], codec: Codec) -> None:
    """Check the graph's own invariants (`Graph.addInvariant`) on the snapshot as users see it."""
    snapshot = Snapshot(manifest, _nothing_is_stored, codec)
    for name, holds in invariants.items():
        if not holds(snapshot):
            raise CheckFailed("invariant", f"{name!r} does not hold in {snapshot}")


def _nothing_is_stored(handle: Handle) -> Buffer:
    raise AssertionError(f"{handle.name}: all parts are inline")


def _stored(handle: Handle, codec: Codec) -> Sequence[bytes]:
    packed: list[bytes] = []
    for frame in decode_frames(handle, decode_part(handle, handle.inline or b"")):
        messages = messages_of(frame, codec)
        if frame.is_control:
            packed.append(END_OF_STREAM)
        elif isinstance(messages, pa.RecordBatch):
            packed += pack_rows(messages, codec)
        else:
            packed += [pack(message, codec) for message in messages]
    return packed


def check_delivery(sent: Mapping[ChannelId, list[bytes]], handled: Mapping[ChannelId, list[bytes]]) -> str:
    """Return "" if everything that was sent was handled, once and in order, else the first difference. Call at rest."""
    for channel, messages in sent.items():
        if handled[channel] != messages:
            return f"delivery: {channel}: sent {messages}, handled {handled[channel]}"
    return ""
