"""Put messages that were in flight in a snapshot on the channels of a graph with another parallelism.

Owns the contents of restored channels of a *reshaped* edge: an edge whose nodes have another parallelism than in the
snapshot, or whose partitioning or key differs. Must not know who decides which channels there are, nor where messages
are stored. `snapshot.coordinator.reshaping` makes the plan.

::

    old channels (i, j)                                          new channels (m, k) of one receiver k
    receiver's part, sender's part ─> in the order of waves ──> numbers (B - R, B], END last
                                      then of i, then of j        m is the heir of i

R is the number of messages that are restored on a channel. B is at least as large. The sender begins with B, and knows
nothing of R. So the channel is in a state that an ordinary channel can reach (PROTOCOL 6.8, reshaped edges).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

import msgpack
import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cutline.snapshot.channel.control_frames import StreamEnd, control_frame
from cutline.snapshot.channel.frame import Frame, PayloadKind
from cutline.snapshot.channel.frame_codec import cut_frame, frame_of_batch, frame_of_pieces, messages_of
from cutline.snapshot.channel.key_hash import hash_columns, hash_keys
from cutline.snapshot.channel.partitioning import key_function
from cutline.snapshot.channel.record_batches import encode_batch, take_rows
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.error_text import describe
from cutline.snapshot.errors import RestoreRefused
from cutline.snapshot.ids import ChannelId
from cutline.snapshot.plan.declarations import Key
from cutline.snapshot.plan.topology import KEY_GROUPS

#: Waves of a channel's messages: (number of the last message, wave) pairs, ascending.
Waves = tuple[tuple[int, int], ...]


class ChannelEnd(Enum):
    """State of a restored channel: how much of its stream is still to come."""

    OPEN = "open"  #: the sender runs
    ENDING = "ending"  #: the sender has ended, and its end is the last restored message
    CLOSED = "closed"  #: the receiver has processed the end


class Route(Enum):
    """Choice of the receiver of a message in flight."""

    WHOLE = "whole"  #: this receiver takes all messages of the old channels that it reads
    COPIES = "copies"  #: as WHOLE; of several old channels from one sender, which hold the same, one is taken
    BY_KEY = "by key"  #: the owner of the key; or the receiver that the sender named, where that was not the owner
    BY_NEW_KEY = "by new key"  #: the owner of the key, which the snapshot's graph did not have


@dataclass(frozen=True, slots=True)
class OldChannel:
    """A channel of the snapshot, as one receiver of the new graph reads it."""

    channel: ChannelId
    #: index of the new sender of its messages
    heir: int
    #: waves of its messages; messages after the last of them have the wave of the edge
    waves: Waves = ()


@dataclass(frozen=True, slots=True)
class NewChannel:
    """A channel of the new graph, of a reshaped edge."""

    channel: ChannelId
    #: number of the last message at the sender: B
    sent: int
    end: ChannelEnd


@dataclass(frozen=True, slots=True)
class ReshapedEdge:
    """Messages of a reshaped edge that one subtask restores, and the channels that they go on."""

    source: str
    target: str
    #: index of the subtask at `target`
    index: int
    route: Route
    #: parallelism of `target` in the snapshot, and now
    parallelism_before: int
    parallelism: int
    #: wave of the messages that had none
    wave: int
    #: channels to read, by the index of the sender, then of the receiver
    old: tuple[OldChannel, ...]
    #: channels of the subtask, by the index of the sender
    new: tuple[NewChannel, ...]

    def __str__(self) -> str:
        return f"{self.source}->{self.target}"


@dataclass(frozen=True, slots=True)
class ReroutedCount:
    """Number of messages of an old channel, as one reader has found it, and how many that reader has taken."""

    channel: ChannelId
    reader: int
    messages: int
    ends: int
    taken: int


@dataclass(frozen=True, slots=True)
class Rerouted:
    """Restored contents of the channels of one subtask from one reshaped edge."""

    frames: Mapping[ChannelId, tuple[Frame, ...]]
    #: {channel: number of the last message that counts as processed}
    processed: Mapping[ChannelId, int]
    waves: Mapping[ChannelId, Waves]
    counts: tuple[ReroutedCount, ...]


@dataclass(slots=True)
class _Run:
    """Messages of one wave for one new channel, in frames whose numbers are not final."""

    wave: int
    frames: list[Frame]


def reroute(
    edge: ReshapedEdge, contents: Mapping[ChannelId, Sequence[Frame]], key: Key | None, codec: Codec
) -> Rerouted:
    """Return the contents of the channels of one subtask.

    Parameters
    ----------
    edge : ReshapedEdge
    contents : mapping of ChannelId to frames
        Messages in flight of the old channels, the receiver's part before the sender's part. Empty channels may be
        left out.
    key : str, sequence of str, callable or None
        Key of the edge in the new graph; needed for routes by key.
    codec : Codec

    Raises
    ------
    RestoreRefused
        if the receiver of a message cannot be found or does not exist, or copies of a message differ.
    """
    runs: dict[int, list[_Run]] = {}
    counts: list[ReroutedCount] = []
    firsts: dict[int, OldChannel] = {}
    for old in edge.old:
        frames = contents.get(old.channel, ())
        messages = [frame for frame in frames if not frame.is_control]
        taken = data = sum(frame.count for frame in messages)
        first = firsts.setdefault(old.channel.source.index, old)
        if edge.route is Route.COPIES and first is not old:
            _require_equal_copies(edge, first.channel, old.channel, contents, codec)
        else:
            found = list(_runs(messages, old.waves, edge.wave))
            for run in found:
                run.frames = [each for frame in run.frames for each in _taken(edge, old, frame, key, codec)]
            taken = sum(frame.count for run in found for frame in run.frames)
            runs.setdefault(old.heir, []).extend(found)
        counts.append(ReroutedCount(old.channel, edge.index, data, len(frames) - len(messages), taken))
    return _numbered(edge, runs, tuple(counts))


def _runs(frames: Sequence[Frame], waves: Waves, last_wave: int) -> Iterator[_Run]:
    """Divide the messages of a channel by their waves, which ascend."""
    after = frames[0].first - 1 if frames else 0
    for through, wave in (*waves, (frames[-1].last if frames else 0, last_wave)):
        some = [cut_frame(frame, after, through) for frame in frames if frame.last > after and frame.first <= through]
        if some:
            yield _Run(wave, some)
        after = max(after, through)


def _numbered(edge: ReshapedEdge, runs: Mapping[int, list[_Run]], counts: tuple[ReroutedCount, ...]) -> Rerouted:
    found: dict[ChannelId, tuple[Frame, ...]] = {}
    processed: dict[ChannelId, int] = {}
    waves: dict[ChannelId, Waves] = {}
    for new in edge.new:
        # Stable: within a wave the sequence stays that of i, then of j.
        of_channel = sorted(runs.get(new.channel.source.index, ()), key=lambda run: run.wave)
        if new.end is ChannelEnd.ENDING:
            of_channel.append(_Run(edge.wave, [control_frame(0, StreamEnd())]))
        restored = sum(frame.count for run in of_channel for frame in run.frames)
        if new.end is ChannelEnd.CLOSED and restored:
            raise RestoreRefused(
                f"{new.channel}: {restored} messages in flight, but {edge.target}[{edge.index}] has processed the end "
                f"of {edge.source}: their sender had named another receiver than the owner of their key. "
                "Restore with the parallelism of the snapshot, or an earlier snapshot"
            )
        number = processed[new.channel] = new.sent - restored
        assert number >= 0, (new, restored)
        frames: list[Frame] = []
        marks: list[tuple[int, int]] = []
        for run in of_channel:
            for frame in run.frames:
                frames.append(msgspec.structs.replace(frame, first=number + 1))
                number += frame.count
            if run.frames:
                if marks and marks[-1][1] == run.wave:
                    marks.pop()
                marks.append((number, run.wave))
        found[new.channel], waves[new.channel] = tuple(frames), tuple(marks)
    return Rerouted(found, processed, waves, counts)


# ---------------------------------------------------------------- choice of the receiver


def _taken(edge: ReshapedEdge, old: OldChannel, frame: Frame, key: Key | None, codec: Codec) -> list[Frame]:
    """Return the messages of a frame that are for the reader, in frames with any numbers."""
    if edge.route in (Route.WHOLE, Route.COPIES):
        return [frame]
    try:
        messages = messages_of(frame, codec)
        groups = _groups(messages, key)
    except BaseException as error:  # because the key may be the user's own function
        raise RestoreRefused(
            f"edge {edge}: the key of a message in flight on {old.channel} cannot be read by the graph's key: "
            f"{describe(error)}\nRestore with the key and the parallelism of the snapshot"
        ) from error
    targets = groups * edge.parallelism // KEY_GROUPS
    if edge.route is Route.BY_KEY:
        named = groups * edge.parallelism_before // KEY_GROUPS != old.channel.target.index
        if named.any() and old.channel.target.index >= edge.parallelism:
            raise RestoreRefused(
                f"edge {edge}: {int(named.sum())} messages in flight on {old.channel} were sent to a subtask that the "
                f"sender named, but {edge.target} now has {edge.parallelism} subtasks. "
                "Restore with the parallelism of the snapshot"
            )
        targets[named] = old.channel.target.index
    return _rows_of(frame, messages, np.flatnonzero(targets == edge.index))


def _groups(messages: list[Any] | pa.RecordBatch, key: Key | None) -> npt.NDArray[np.int64]:
    assert key is not None, "a route by key without a key"
    if isinstance(messages, pa.RecordBatch) and not callable(key):
        columns = (key,) if isinstance(key, str) else tuple(key)
        hashes = hash_columns([messages.column(name) for name in columns], as_tuple=not isinstance(key, str))
    else:
        rows = messages.to_pylist() if isinstance(messages, pa.RecordBatch) else messages
        hashes = hash_keys(list(map(key_function(key), rows)))
    return (hashes % np.uint64(KEY_GROUPS)).astype(np.int64)


def _rows_of(frame: Frame, messages: list[Any] | pa.RecordBatch, rows: npt.NDArray[np.int64]) -> list[Frame]:
    if not len(rows):
        return []
    if len(rows) == frame.count:
        return [frame]
    if isinstance(messages, pa.RecordBatch):
        return [frame_of_batch(1, take_rows(messages, rows))]
    pieces = _pieces(frame)
    return [frame_of_pieces(1, frame.kind, [pieces[row] for row in rows])]


def _pieces(frame: Frame) -> list[bytes]:
    """Return the encoded messages of a frame, one by one."""
    payload = bytes(frame.payload)
    unpacker = msgpack.Unpacker(max_buffer_size=max(1, len(payload)))
    unpacker.feed(payload)
    unpacker.read_array_header()
    pieces, start = [], unpacker.tell()
    for _ in range(frame.count):
        unpacker.skip()
        pieces.append(payload[start : unpacker.tell()])
        start = unpacker.tell()
    return pieces


# ---------------------------------------------------------------- copies of a broadcast edge


def _require_equal_copies(
    edge: ReshapedEdge,
    first: ChannelId,
    other: ChannelId,
    contents: Mapping[ChannelId, Sequence[Frame]],
    codec: Codec,
) -> None:
    """Refuse two old channels of one sender that differ, because the reader takes over from both receivers."""
    if not _Copy.of(contents.get(first, ())).equals(_Copy.of(contents.get(other, ())), codec):
        raise RestoreRefused(
            f"edge {edge}: {first} and {other} hold different messages in flight, and "
            f"{edge.target}[{edge.index}] takes over from both receivers, so neither is right for it. "
            'Restore with the parallelism of the snapshot, or restore a snapshot with alignment="aligned"'
        )


#: Kinds of frames whose messages are encoded alike.
_ALIKE: Final = {PayloadKind.FLAT: PayloadKind.TUPLES}


@dataclass(slots=True)
class _Copy:
    """Messages of a channel, independent of how they share frames."""

    values: list[tuple[PayloadKind, bytes]] = field(default_factory=list)
    rows: list[pa.RecordBatch] = field(default_factory=list)

    @staticmethod
    def of(frames: Sequence[Frame]) -> _Copy:
        """Return the messages of frames, without control frames."""
        copy = _Copy()
        for frame in frames:
            if frame.kind is PayloadKind.BATCH:
                batch = messages_of(frame, Codec())
                assert isinstance(batch, pa.RecordBatch)
                copy.rows += [batch.slice(row, 1) for row in range(batch.num_rows)]
                copy.values += [(frame.kind, b"")] * frame.count
            elif not frame.is_control:
                copy.values += [(_ALIKE.get(frame.kind, frame.kind), piece) for piece in _pieces(frame)]
        return copy

    def equals(self, other: _Copy, codec: Codec) -> bool:
        """Return whether the messages are the same. Only those that are encoded otherwise are decoded."""
        if len(self.values) != len(other.values) or len(self.rows) != len(other.rows):
            return False
        return all(
            one == two or _as_tuple(*one, codec) == _as_tuple(*two, codec)
            for one, two in zip(self.values, other.values, strict=True)
        ) and all(
            one.equals(two) or encode_batch(one) == encode_batch(two)  # a row with NaN equals nothing
            for one, two in zip(self.rows, other.rows, strict=True)
        )


def _as_tuple(kind: PayloadKind, piece: bytes, codec: Codec) -> tuple[PayloadKind, bytes]:
    """Return an encoded message as it is encoded among tuples, because other messages in a frame change a tuple's."""
    if kind is PayloadKind.VALUES and type(message := codec.decode(piece)) is tuple:
        return PayloadKind.TUPLES, codec.encode_tuple(message)
    return kind, piece
