"""Signed backend: the door through which a run with a signing key writes and reads every stored file.

Owns the layout of signed files and the check of their signatures. Must not know what the files hold. A signature covers
the path of its file. So a file that is copied to another run, another id or another kind of record is refused, although
none of its bytes changed. Content is returned only after the check, because whoever reads it may unpickle it.

::

    0   4   magic: CLSG
    4   2   version of this layout
    6   8   key id, so that a wrong key is distinguished from a wrong signature
    14      blocks, each:
            1      1 for the last block of the file, else 0
            32     signature: HMAC-SHA256 of version, path, number of the block, the byte before, and the content
            ...    content: 262,144 bytes, fewer or none in the last block

A signature cannot show that files are missing, nor that the whole store is an older copy of itself (PROTOCOL 7.8).
"""

from __future__ import annotations

import hmac
import struct
from collections.abc import Sequence

from snapshot.channel.frame import Buffer
from snapshot.errors import CutlineError, RestoreRefused, SnapshotCorrupt
from snapshot.stored import layout
from snapshot.stored.backend import StateBackend
from snapshot.stored.envelope import SIGNED_MAGIC

#: Bytes of content under one signature. One part of a large file is read with at most two blocks too many. A gigabyte
#: has 4,096 signatures.
BLOCK_BYTES = 256 * 1024

#: Least bytes of a signing key. A shorter key could be found by trying all keys on one stored file.
SIGNING_KEY_BYTES_MIN = 16

_VERSION = 1
_HEAD = struct.Struct(">4sH8s")
_BLOCK_HEAD = struct.Struct(">B32s")
_BLOCK_PLACE = struct.Struct(">QB")
_STRIDE_BYTES = _BLOCK_HEAD.size + BLOCK_BYTES
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
        signed: list[Buffer] = [self._head]
        signer = self._signer(path)
        blocks = _blocks(chunks)
        for number, block in enumerate(blocks):
            is_last = number == len(blocks) - 1
            signed += [_BLOCK_HEAD.pack(is_last, _signature(signer, number, is_last, block)), *block]
        return self.unsigned.put_if_absent(path, signed)

    def _get(self, path: str, offset: int, size: int | None) -> bytes:
        first = offset // BLOCK_BYTES
        count = None if size is None else max(offset + size - 1, offset) // BLOCK_BYTES - first + 1
        skipped = offset - first * BLOCK_BYTES
        stop = None if size is None else skipped + size
        if first == 0:
            wanted = None if count is None else len(self._head) + count * _STRIDE_BYTES
            stored = self.unsigned.get(path, 0, wanted)
            if stored[: len(self._head)] != self._head:
                raise self._refusal(path, 0)
            return _joined(self._check(path, 0, memoryview(stored)[len(self._head) :], count), skipped, stop)
        start = len(self._head) + first * _STRIDE_BYTES
        stored = self.unsigned.get(path, start, None if count is None else count * _STRIDE_BYTES)
        if not stored:
            return self._get(path, 0, None)[offset:]  # empty, because only the whole file proves where it ends
        return _joined(self._check(path, first, memoryview(stored), count), skipped, stop)

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
        return hmac.new(self._key, struct.pack(">4sHQ", SIGNED_MAGIC, _VERSION, len(name)) + name, _HASH)

    def _check(self, path: str, first: int, stored: memoryview, count: int | None) -> list[memoryview]:
        """Return the contents of the blocks in `stored`, from block `first` on, after checking each signature.

        Raises
        ------
        SnapshotCorrupt, RestoreRefused
            if a signature does not hold, or blocks are missing: `count` blocks were asked for, or all if it is None.
        """
        signer, contents, is_last = self._signer(path), [], False
        for number, start in enumerate(range(0, len(stored), _STRIDE_BYTES), first):
            block = stored[start : start + _STRIDE_BYTES]
            if is_last or len(block) < _BLOCK_HEAD.size:
                raise self._refusal(path, number)
            is_last, found = _BLOCK_HEAD.unpack_from(block)
            content = block[_BLOCK_HEAD.size :]
            if not hmac.compare_digest(found, _signature(signer, number, is_last, [content])):
                raise self._refusal(path, number)
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


def _signature(signer: hmac.HMAC, number: int, is_last: int, content: Sequence[memoryview]) -> bytes:
    signing = signer.copy()
    signing.update(_BLOCK_PLACE.pack(number, is_last))
    for piece in content:
        signing.update(piece)
    return signing.digest()


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
