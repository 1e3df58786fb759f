"""References of a pickle to classes and functions. They stand before the pickle, so that they are known unread.

::

    4 bytes   length of the references, little-endian
    ...       MessagePack: [[module, qualified name, print, is_maker], ...]
    ...       pickle, which refers to them by number
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import msgpack

#: Print of a reference that stands for the code of a class or function, which an old pickle holds.
CODE: Final = "code"

#: Bytes of the length before references.
_LENGTH_BYTES = 4

#: Most lists of references that are kept encoded. A program has as many as it has kinds of values.
_KEPT = 4_096


class Reference(NamedTuple):
    """A class or function to which a pickle refers."""

    module: str
    qualname: str
    #: see `snapshot.naming.class_fields`; empty for a class or function that workers can import
    print: str
    #: whether the pickle calls what makes objects of the class, not the class
    is_maker: bool

    @property
    def name(self) -> str:
        """Module and qualified name. An old pickle with code does not say the module."""
        return f"{self.module}.{self.qualname}" if self.module else self.qualname


@lru_cache(_KEPT)
def encode_references(references: tuple[Reference, ...]) -> bytes:
    """Encode the references of a pickle, with their length."""
    data: bytes = msgpack.packb(references)
    return len(data).to_bytes(_LENGTH_BYTES, "little") + data


@lru_cache(_KEPT)
def decode_references(data: bytes) -> tuple[Reference, ...]:
    """Decode references without their length. Raises ValueError or msgpack.UnpackException for other bytes."""
    found = msgpack.unpackb(data)
    if not isinstance(found, list) or not all(isinstance(each, list) and len(each) == 4 for each in found):
        raise ValueError("no references")
    return tuple(Reference(*each) for each in found)


def split_references(data: Sequence[int]) -> tuple[bytes, memoryview]:
    """Return the encoded references before a pickle, without their length, and the pickle."""
    view = memoryview(data)  # type: ignore[arg-type]
    end = _LENGTH_BYTES + int.from_bytes(view[:_LENGTH_BYTES], "little")
    return bytes(view[_LENGTH_BYTES:end]), view[end:]
