"""Manifests: plain data, and every bit of them counts."""

from __future__ import annotations

from dataclasses import replace

import msgpack
import pytest

from cutline.snapshot.errors import SnapshotCorrupt
from cutline.snapshot.stored.certificate import ChannelWaves, OwnStateKind
from cutline.snapshot.stored.envelope import MANIFEST_MAGIC, seal
from cutline.snapshot.stored.manifest import (
    SUBTASK_RECORD,
    Aborted,
    decode_manifest,
    encode_manifest,
)
from tests.snapshot import sample

DATA = b"".join(encode_manifest(sample.manifest()))


def test_a_manifest_comes_back() -> None:
    """All fields, all records, all handles, equal and of the same types."""
    again = decode_manifest(DATA, "m")
    assert again == sample.manifest()
    assert [
        SUBTASK_RECORD.read(msgpack.unpackb(msgpack.packb(SUBTASK_RECORD.write(r)))) for r in sample.records()
    ] == list(sample.records())


def test_waves_and_the_kind_of_own_state_come_back() -> None:
    """Both are stored only where they have a value."""
    plain = sample.records()[0]
    assert "waves" not in SUBTASK_RECORD.write(plain)
    assert plain.waves is None and plain.status.own_state is None
    for kind in OwnStateKind:
        record = replace(
            plain,
            waves=(ChannelWaves(sample.QP, ((3, 1), (9, 4))),),
            status=replace(plain.status, own_state=kind),
        )
        again = SUBTASK_RECORD.read(msgpack.unpackb(msgpack.packb(SUBTASK_RECORD.write(record))))
        assert again == record
        assert again.status.own_state is kind


def test_it_is_plain_data() -> None:
    """No extension, hence no pickle, is in a manifest: it can be read where no user module can be imported."""

    def refuse(code: int, data: bytes) -> object:
        raise AssertionError(f"extension {code}")

    assert msgpack.unpackb(DATA[30:], ext_hook=refuse)["run"] == sample.RUN


def test_an_aborted_record_comes_back() -> None:
    """What stands in a manifest's place is told from a manifest."""
    aborted = Aborted("bank", 42)
    assert decode_manifest(b"".join(encode_manifest(aborted)), "m") == aborted


@pytest.mark.parametrize("data", [DATA, b"".join(encode_manifest(Aborted("bank", 42)))], ids=["manifest", "aborted"])
def test_every_flipped_bit_and_every_length_is_found(data: bytes) -> None:
    """Any single flipped bit and any truncation is SnapshotCorrupt and names the file."""
    for position in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[position // 8] ^= 1 << position % 8
        with pytest.raises(SnapshotCorrupt, match=r"the-file: .*offset"):
            decode_manifest(bytes(flipped), "the-file")
    for length in range(len(data)):
        with pytest.raises(SnapshotCorrupt, match=r"the-file: .*offset"):
            decode_manifest(data[:length], "the-file")


@pytest.mark.parametrize("content", [b"\xc1", msgpack.packb(None), msgpack.packb({"run": "x"}), msgpack.packb([1])])
def test_sealed_nonsense_is_named(content: bytes) -> None:
    """Whole bytes that are no manifest are SnapshotCorrupt, never another error."""
    with pytest.raises(SnapshotCorrupt, match="the-file"):
        decode_manifest(b"".join(seal(MANIFEST_MAGIC, [content])), "the-file")
