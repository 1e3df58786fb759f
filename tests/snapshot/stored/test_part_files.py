"""The files of parts of lists: a file each, written once, whatever is repeated."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutline import FileSystemBackend
from cutline.snapshot.errors import SnapshotCorrupt
from cutline.snapshot.stored import layout
from cutline.snapshot.stored.part import Part, own_part, rows_part
from cutline.snapshot.stored.part_files import PartFiles
from tests.snapshot import sample
from tests.snapshot.stored.test_run_store import Apart

ORIGIN = (sample.RUN, sample.INCARNATION, sample.SNAPSHOT_ID, sample.P)


def pieces(*bodies: bytes) -> list[Part]:
    """Pieces of a generation, one key group each."""
    return [rows_part(*ORIGIN, (1, 1), (at, at + 1), [body], 1) for at, body in enumerate(bodies)]


@given(st.lists(st.binary(max_size=100), max_size=4), st.booleans())
def test_pieces_come_back_inline_or_each_in_a_file(bodies: list[bytes], inline: bool) -> None:
    """In order, whatever the backend would take inline."""
    files = PartFiles(Apart(), sample.RUN)
    parts = [*pieces(*bodies), own_part(*ORIGIN, (0, 3), [b"own"])]
    handles = files.put_rows(parts, inline=inline)
    assert [bytes(files.read_part(handle)) for handle in handles] == [*bodies, b"own"]
    assert all((handle.path is None) == inline and handle.offset == 0 for handle in handles)
    assert len(files.backend.files()) == (0 if inline else len(parts))


def test_a_piece_may_be_put_twice() -> None:
    """A retry finds its own bytes, so a generation is stored once, whatever becomes of its snapshot."""
    files = PartFiles(Apart(), sample.RUN)
    handles = files.put_rows(pieces(b"one", b"two"), inline=False)
    assert files.put_rows(pieces(b"one", b"two"), inline=False) == handles
    assert len(files.backend.files()) == 2


def test_a_torn_piece_is_not_taken_for_a_stored_one() -> None:
    """A store that holds half a file under the name of a whole one is refused, before a snapshot lists the file."""
    files = PartFiles(Apart(), sample.RUN)
    (part,) = pieces(b"one")
    whole = b"".join(part.buffers)
    files.backend.put_if_absent(f"{sample.RUN}/{layout.rows_path(part.handle)}", [whole[: len(whole) // 2]])
    with pytest.raises(SnapshotCorrupt, match=r"-rows-P-0-.*offset 0"):
        files.put_rows([part], inline=False)


def test_a_missing_piece_is_corruption(tmp_path: Path) -> None:
    """A listed file that is gone is named, with the store."""
    files = PartFiles(FileSystemBackend(tmp_path), sample.RUN)
    (handle,) = files.put_rows(pieces(b"one"), inline=False)
    files.backend.delete(f"{sample.RUN}/{handle.path}")
    with pytest.raises(SnapshotCorrupt, match=f"file://{tmp_path}/{sample.RUN}/{handle.path}: the file is missing"):
        files.read_part(handle)


def test_a_swapped_piece_is_found() -> None:
    """A whole piece under the name of another is found at the restore, and named."""
    files = PartFiles(backend := Apart(), sample.RUN)
    one, other = files.put_rows(pieces(b"one", b"two"), inline=False)
    swapped = backend.get(f"{sample.RUN}/{other.path}")
    backend.delete(f"{sample.RUN}/{one.path}")
    backend.put_if_absent(f"{sample.RUN}/{one.path}", [swapped])
    with pytest.raises(SnapshotCorrupt, match=f"{one.path} .rows part of P.*not the one that the manifest lists"):
        files.read_part(one)
