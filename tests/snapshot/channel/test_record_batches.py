"""Record batches as streams: of the exact size, and back as they were, with as few copies as can be."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutline.snapshot.channel.record_batches import decode_batch, decode_rows, encode_batch, new_memory

TYPES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.bool_(): st.booleans(),
    pa.string(): st.text(max_size=8),
    pa.string_view(): st.text(max_size=20),
    pa.list_(pa.int8()): st.lists(st.integers(-128, 127), max_size=3),
    pa.struct([("a", pa.float64())]): st.fixed_dictionaries({"a": st.floats(allow_nan=False)}),
    pa.dictionary(pa.int8(), pa.string()): st.sampled_from("abc"),
    pa.list_(pa.dictionary(pa.int32(), pa.string())): st.lists(st.sampled_from("ab"), max_size=2),
    pa.null(): st.none(),
}


@st.composite
def record_batches(draw: st.DrawFn) -> pa.RecordBatch:
    """Of up to three columns, perhaps a part of a larger one."""
    types = draw(st.lists(st.sampled_from(list(TYPES)), min_size=1, max_size=3))
    rows = draw(st.integers(0, 20))
    values = [st.lists(st.none() | TYPES[kind], min_size=rows, max_size=rows) for kind in types]
    columns = [pa.array(draw(column), kind) for column, kind in zip(values, types, strict=True)]
    batch = pa.record_batch(columns, names=[str(number) for number in range(len(columns))])
    if draw(st.booleans()):
        batch = batch.replace_schema_metadata({"key": draw(st.text(max_size=9))})
    start = draw(st.integers(0, rows))
    return batch.slice(start, draw(st.integers(0, rows - start)))


def streamed(*batches: pa.RecordBatch) -> bytes:
    """What Arrow's own writer makes of them."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(sink.getvalue())


@given(record_batches())
def test_a_batch_is_what_arrow_writes(batch: pa.RecordBatch) -> None:
    """Byte by byte, in room of exactly that size; and comes back from any memory."""
    asked: list[int] = []

    def allocate(size: int) -> memoryview:
        asked.append(size)
        return new_memory(size)

    encoded = encode_batch(batch, allocate)
    assert bytes(encoded) == streamed(batch)
    assert asked[-1] == len(encoded) and encoded.readonly
    for data in (encoded, bytes(encoded), memoryview(b"x" + encoded)[1:]):
        assert decode_batch(data).equals(batch, check_metadata=True)
        assert decode_rows(data, batch.num_rows).equals(batch, check_metadata=True)


@given(record_batches(), st.integers(1, 4))
def test_batches_that_share_a_stream_come_back_as_one(batch: pa.RecordBatch, count: int) -> None:
    """Whatever is in them."""
    data = streamed(*[batch] * count)
    assert decode_rows(data, batch.num_rows * count).to_pylist() == batch.to_pylist() * count


@pytest.mark.parametrize("is_encoded", [False, True])
def test_columns_refer_to_the_stream(is_encoded: bool) -> None:
    """No copy is made of a batch that is alone in its stream, with a dictionary or without."""
    column = pa.array([1, 2, 3])
    batch = pa.record_batch({"x": column.dictionary_encode() if is_encoded else column})
    data = bytes(encode_batch(batch))
    before = pa.total_allocated_bytes()
    decoded = decode_rows(data, 3)
    assert pa.total_allocated_bytes() == before
    assert decoded.equals(batch)


def test_columns_that_lie_at_odd_addresses_are_moved() -> None:
    """Arrow computes on them as on any."""
    batch = pa.record_batch({"x": pa.array([1, 2, 3])})
    decoded = decode_rows(memoryview(b"x" + encode_batch(batch))[1:], 3)
    assert decoded.column(0).buffers()[1].address % 8 == 0
