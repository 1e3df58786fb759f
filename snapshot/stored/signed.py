"""Signed backend: the door through which a run with a signing key writes and reads every stored file.

Owns the layout of signed files and the check of their signatures. Must not know what the files hold. A signature covers
the path of its file. So a file that is copied to another run, another id or another kind of record is refused, although
none of its bytes changed. Content is returned only after the check, because whoever reads it may unpickle it.

::

    0   4   magic: CLSG
    4   2   version of this layout
    6   8   key id, so that a wrong key is distinguished from a wrong signature
    14      blocks, each:
            ...    content: 262,144 bytes, fewer or none in the last block
            1      1 for the last block of the file, else 0
            32     signature: HMAC-SHA256 of path, number of the block, that byte, the 33 bytes before the block (of the
                   first block: the 14), and the content

A signature covers the one before, so that no file can be joined from two validly signed files of one path. A signature
cannot show that files are missing, nor that a file or the whole store is an older copy of itself (PROTOCOL 7.9).
"""

from __future__ import annotations

import hmac
import struct
from collections.abc import Sequence

from cutline.snapshot.channel.frame import Buffer
from cutline.snapshot.errors import CutlineError, RestoreRefused, SnapshotCorrupt
from cutline.snapshot.stored import layout
from cutline.snapshot.stored.backend import StateBackend
from cutline.snapshot.stored.envelope import SIGNED_MAGIC

#: Bytes of content under one signature. One part of a large file is read with at most two blocks too many. A gigabyte
#: has 4,096 signatures.
BLOCK_BYTES = 256 * 1024

#: Least bytes of a signing key. A shorter key could be found by trying all keys on one stored file.
SIGNING_KEY_BYTES_MIN = 16

_VERSION = 1
_HEAD = struct.Struct(">4sH8s")
_SIGNER = struct.Struct(">4sHQ")
_PLACE = struct.Struct(">QB")
_TAIL_BYTES = 33
_STRIDE_BYTES = BLOCK_BYTES + _TAIL_BYTES
_HASH = "sha256"


class SignedBackend(StateBackend):
    """Sign every file that is written to a backend, and check every file that is read.

    Parameters
    ----------
    unsigned : StateBackend
        The backend that holds the signed files.
    key : bytes
        The signing key. Pickled with the backend, and in no text.

    Raises
    ------
    TypeError
        if the key is no bytes.
    ValueError
        if the key has fewer than `SIGNING_KEY_BYTES_MIN` bytes.
    """

    def __init__(self, unsigned: StateBackend, key: bytes) -> None:
        super().__init__(inline_bytes_max=unsigned.inline_bytes_max)
        if not isinstance(key, bytes):
            raise TypeError(f"a signing key is bytes, as of secrets.token_bytes(32), and not {type(key).__name__}")
        if len(key) < SIGNING_KEY_BYTES_MIN:
            raise ValueError(f"a signing key of {len(key)} bytes can be guessed; give {SIGNING_KEY_BYTES_MIN} or more")
        self.unsigned = unsigned
        self._key = key
        self._head = _HEAD.pack(SIGNED_MAGIC, _VERSION, hmac.digest(key, b"cutline key id", _HASH)[:8])

    def __str__(self) -> str:
        return str(self.unsigned)

    def _put_if_absent(self, path: str, chunks: Sequence[memoryview]) -> bool:
        return self.unsigned.put_if_absent(path, self._signed(path, chunks))

    def _put_alone(self, path: str, chunks: Sequence[memoryview]) -> bool:
        return self.unsigned.put_alone(path, self._signed(path, chunks))

    def _signed(self, path: str, chunks: Sequence[memoryview]) -> list[Buffer]:
        signer, before = self._signer(path), self._head
        signed: list[Buffer] = [before]
        blocks = _blocks(chunks)
        for number, block in enumerate(blocks):
            before = _tail(signer, number, number == len(blocks) - 1, before, block)
            signed += [*block, before]
        return signed

    def _get(self, path: str, offset: int, size: int | None) -> bytes:
        first, skipped = divmod(offset, BLOCK_BYTES)
        count = None if size is None else -(-(skipped + max(size, 1)) // BLOCK_BYTES)
        head_bytes = _TAIL_BYTES if first else _HEAD.size
        start = _HEAD.size + first * _STRIDE_BYTES - head_bytes
        stored = memoryview(
            self.unsigned.get(path, start, None if count is None else head_bytes + count * _STRIDE_BYTES)
        )
        if first and len(stored) <= head_bytes:
            return self._get(path, 0, None)[offset:]  # empty, because only the whole file proves where it ends
        contents = self._check(path, first, bytes(stored[:head_bytes]), stored[head_bytes:], count)
        return _joined(contents, skipped, None if size is None else skipped + size)

    def _exists(self, path: str) -> bool:
        return self.unsigned.exists(path)

    def _files(self, prefix: str) -> list[str]:
        return self.unsigned.files(prefix)

    def _delete(self, paths: Sequence[str]) -> None:
        self.unsigned.delete(*paths)

    def _leftovers(self, prefix: str) -> list[str]:
        return self.unsigned.leftovers(prefix)

    def _probe(self, folder: str, token: str) -> None:
        self.unsigned.probe(folder, token)

    def _signer(self, path: str) -> hmac.HMAC:
        name = path.encode("utf-8", "surrogateescape")
        return hmac.new(self._key, _SIGNER.pack(SIGNED_MAGIC, _VERSION, len(name)) + name, _HASH)

    def _check(self, path: str, first: int, before: bytes, stored: memoryview, count: int | None) -> list[memoryview]:
        """Return the contents of the blocks in `stored`, from block `first` on, after checking each signature.

        Raises
        ------
        SnapshotCorrupt, RestoreRefused
            if a signature does not hold, or blocks are missing: `count` blocks were asked for, or all if it is None.
        """
        signer, contents, is_last = self._signer(path), [], False
        for number, start in enumerate(range(0, len(stored), _STRIDE_BYTES), first):
            block = stored[start : start + _STRIDE_BYTES]
            content, tail = block[:-_TAIL_BYTES], bytes(block[-_TAIL_BYTES:])
            is_last = tail[0] == 1
            if not hmac.compare_digest(tail, _tail(signer, number, is_last, before, [content])):
                raise self._refusal(path, number)
            before = tail
            contents.append(content)
        if not is_last and len(contents) != count:
            raise self._refusal(path, first + len(contents))
        return contents

    def _refusal(self, path: str, block: int) -> CutlineError:
        """Return the error about a file whose block does not hold."""
        split = layout.split_run(path)
        name = f"{self}/{path}" + (f" of run {split[0]!r}" if split else "")
        head = self.unsigned.get(path, 0, len(self._head))
        if head[: len(SIGNED_MAGIC)] != SIGNED_MAGIC:
            return RestoreRefused(
                f"{name}: is not signed, so it is not of a holder of the signing key. Remove it, or put a signed copy "
                "in its place. If the whole run was stored without a key, read it without one, or use another name"
            )
        if head == self._head:
            return SnapshotCorrupt(
                f"{name}: offset {len(head) + block * _STRIDE_BYTES}: the signature does not hold, so the file was "
                "changed after it was signed, or it is the copy of another file. Put a copy of the right file in its "
                "place, or go on from an older snapshot with restoreFrom=<its id>"
            )
        if head[:6] != self._head[:6]:
            return RestoreRefused(f"{name}: is signed in a form that this Cutline does not read; use a newer release")
        return RestoreRefused(f"{name}: is signed with another key. Give the key with which the run was stored")


def with_signing_key(backend: StateBackend, key: bytes | None) -> StateBackend:
    """Return `backend` behind the check of signatures, or `backend` itself if `key` is None."""
    return backend if key is None else SignedBackend(backend, key)


def _tail(signer: hmac.HMAC, number: int, is_last: bool, before: bytes, content: Sequence[memoryview]) -> bytes:
    """Return the 33 bytes after the content of a block."""
    signing = signer.copy()
    signing.update(_PLACE.pack(number, is_last) + before)
    for piece in content:
        signing.update(piece)
    return bytes([is_last]) + signing.digest()


def _blocks(chunks: Sequence[memoryview]) -> list[list[memoryview]]:
    """Split `chunks` into blocks of `BLOCK_BYTES`, without a copy. There is always a last block."""
    blocks: list[list[memoryview]] = [[]]
    room = BLOCK_BYTES
    for chunk in chunks:
        rest = chunk
        while rest:
            if not room:
                blocks.append([])
                room = BLOCK_BYTES
            blocks[-1].append(rest[:room])
            rest = rest[len(blocks[-1][-1]) :]
            room -= len(blocks[-1][-1])
    return blocks


def _joined(contents: Sequence[memoryview], start: int, stop: int | None) -> bytes:
    """Return bytes `start` to `stop` of the joined contents. The bytes are copied once."""
    if len(contents) == 1:
        return bytes(contents[0][start:stop])
    if stop is not None:
        before = sum(map(len, contents[:-1]))
        contents = [*contents[:-1], contents[-1][: max(stop - before, 0)]]
    return b"".join([contents[0][start:], *contents[1:]])
