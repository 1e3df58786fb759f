"""Mutants of the rules of keyed rows: what is encoded, which row counts, what is dropped, who owns a group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgpack
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from cutline.snapshot.channel import key_hash
from cutline.snapshot.keyed import decoding, encoding, merging, rows_codec, segment
from cutline.snapshot.keyed.rows import CapturedRows
from cutline.snapshot.keyed.segment import Segment
from cutline.snapshot.plan.topology import KEY_GROUPS
from tests.snapshot.keyed import histories, properties

Patch = pytest.MonkeyPatch


def tombstones_always_dropped(patch: Patch) -> None:
    """A merge of the newest segments drops the tombstones that hide rows of the base."""
    united = merging.merged

    def mutant(segments: Sequence[Segment], *, is_whole: bool) -> Segment:
        found = united(segments, is_whole=is_whole)
        is_value = pc.is_valid(found.rows.column("value"))
        return replace(found, rows=segment.row_batch(found.rows.filter(is_value).columns))

    patch.setattr(merging, "merged", mutant)


def expired_always_dropped(patch: Patch) -> None:
    """A merge of the newest segments drops the expired rows that hide rows of the base."""
    united = merging.merged

    def mutant(segments: Sequence[Segment], *, is_whole: bool) -> Segment:
        found = united(segments, is_whole=is_whole)
        expires = found.rows.column("expires")
        if expires.type == pa.null():
            return found
        is_fresh = pc.fill_null(pc.greater(expires, found.now), True)
        return replace(found, rows=segment.row_batch(found.rows.filter(is_fresh).columns))

    patch.setattr(merging, "merged", mutant)


def nothing_dropped(patch: Patch) -> None:
    patch.setattr(merging, "_live", lambda rows, now: rows)


def expiry_by_the_oldest_now(patch: Patch) -> None:
    united = merging.merged

    def mutant(segments: Sequence[Segment], *, is_whole: bool) -> Segment:
        now = min(each.now for each in segments)
        return united([replace(each, now=now) for each in segments], is_whole=is_whole)

    patch.setattr(merging, "merged", mutant)


def expired_row_left_out(patch: Patch) -> None:
    """A row that has expired at its own capture is not stored, so an older row with a longer time-to-live is back."""
    encode = encoding._encode

    def mutant(chunk: encoding._Chunk, spec: Any, state: int, captured: CapturedRows, codec: Any) -> pa.RecordBatch:
        rows = encode(chunk, spec, state, captured, codec)
        kept = [e is None or e > captured.now for e in chunk.expires or [None] * rows.num_rows]
        return segment.row_batch(rows.filter(pa.array(kept, pa.bool_())).columns)

    patch.setattr(encoding, "_encode", mutant)


def oldest_row_kept(patch: Patch) -> None:
    newest = merging.newest_rows
    patch.setattr(merging, "newest_rows", lambda batches: newest(batches[::-1]))


def earlier_table_wins(patch: Patch) -> None:
    newest = merging.newest_rows
    patch.setattr(encoding, "newest_rows", lambda batches: newest(batches[::-1]))


def state_indexes_not_mapped(patch: Patch) -> None:
    patch.setattr(merging, "_with_states", lambda segment, states: segment.rows)


def sub_keys_ignored(patch: Patch) -> None:
    patch.setattr(merging, "_IDENTITY", ("group", "state", "key"))


def states_ignored(patch: Patch) -> None:
    patch.setattr(merging, "_IDENTITY", ("group", "key", "sub"))


def clips_ignored(patch: Patch) -> None:
    patch.setattr(merging, "clipped", lambda segment, lo, hi: segment)


def clip_one_short(patch: Patch) -> None:
    clip = segment.clipped
    patch.setattr(merging, "clipped", lambda segment, lo, hi: clip(segment, lo + 1, hi))


def piece_one_short(patch: Patch) -> None:
    """A piece says that it ends before its last group, so readers of that group do not read the piece."""
    pieces = segment.pieces_of

    def mutant(found: Segment, bytes_max: int = segment.PIECE_BYTES_MAX) -> list[segment.Piece]:
        return [replace(each, hi=max(each.hi - 1, each.lo + 1)) for each in pieces(found, bytes_max)]

    patch.setattr(properties, "pieces_of", mutant)


def range_one_short(patch: Patch) -> None:
    def mutant(index: int, parallelism: int) -> range:
        return range(-(-index * KEY_GROUPS // parallelism), -(-(index + 1) * KEY_GROUPS // parallelism) - 1)

    patch.setattr(properties, "groups_of", mutant)


def range_rounded_down(patch: Patch) -> None:
    def mutant(index: int, parallelism: int) -> range:
        return range(index * KEY_GROUPS // parallelism, (index + 1) * KEY_GROUPS // parallelism)

    patch.setattr(properties, "groups_of", mutant)


def foreign_keys_taken(patch: Patch) -> None:
    patch.setattr(encoding, "_require_groups", lambda segment, owned: None)


def end_of_the_range_taken(patch: Patch) -> None:
    require = encoding._require_groups

    def mutant(segment: Any, owned: range) -> None:
        require(segment, range(owned.start, owned.stop + KEY_GROUPS // 4))

    patch.setattr(encoding, "_require_groups", mutant)


def bool_is_its_own_key(patch: Patch) -> None:
    """True and 1 are two keys, as MessagePack has it."""
    patch.setattr(rows_codec, "_CANONICAL", rows_codec._CANONICAL | {bool})


def long_ints_everywhere(patch: Patch) -> None:
    """The column writes ints in 64 bits, and a single key in the shortest form."""
    encode = rows_codec.encode_keys

    def mutant(keys: list[Any]) -> list[bytes]:
        if keys and all(type(key) is int and -(2**63) <= key < 2**63 for key in keys):
            return [b"\xd3" + key.to_bytes(8, "big", signed=True) for key in keys]
        return encode(keys)

    patch.setattr(properties, "encode_keys", mutant)


def tuple_comes_back_as_list(patch: Patch) -> None:
    patch.setattr(properties, "decode_key", lambda data: msgpack.unpackb(data, ext_hook=rows_codec._long))


def text_is_hashed_as_bytes(patch: Patch) -> None:
    """A column of text is hashed with the seed of bytes, so a row lies where its messages are not."""
    from_each = key_hash.hash_keys

    def mutant(keys: list[Any]) -> Any:
        return from_each([key.encode("utf-8", "surrogatepass") if type(key) is str else key for key in keys])

    patch.setattr(encoding, "hash_keys", mutant)


def expiry_forgotten(patch: Patch) -> None:
    """Rows with sub-keys lose their expiry, so they live for ever."""
    read = encoding._TableReader.read

    def mutant(self: encoding._TableReader, count: int) -> encoding._Chunk | None:
        chunk = read(self, count)
        return chunk and chunk._replace(expires=chunk.expires if chunk.subs is None else None)

    patch.setattr(encoding._TableReader, "read", mutant)


def only_one_chunk(patch: Patch) -> None:
    """A table is read once, and the rest of its rows is forgotten."""
    patch.setattr(encoding, "CHUNK_ROWS", 1)
    read = encoding._TableReader.read

    def mutant(self: encoding._TableReader, count: int) -> encoding._Chunk | None:
        chunk = read(self, count)
        self._keys, self._values, self._rows = iter(()), iter(()), iter(())
        return chunk

    patch.setattr(encoding._TableReader, "read", mutant)


def wrong_state_read(patch: Patch) -> None:
    """Rows of all states are read as those of the first."""
    read = decoding.rows_of

    def mutant(found: Segment, state_name: str, *, chunk_rows: int) -> Any:
        return read(found, found.states[0].name, chunk_rows=chunk_rows)

    patch.setattr(histories, "rows_of", mutant)
