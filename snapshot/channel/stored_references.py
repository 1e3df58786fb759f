"""Find the references to classes and functions in encoded values, without reading a pickle.

A restore binds them before anything runs, because a row of a class that is gone would otherwise fail hours later.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgpack

from cutline.snapshot.channel.extensions import EXT_NAMING_PICKLE
from cutline.snapshot.channel.frame import Buffer
from cutline.snapshot.naming.bound import bind
from cutline.snapshot.naming.reference import split_references

#: In each pickle that has references, because the pickle calls `bind` for each.
_CALLED: Final = re.compile(re.escape(bind.__module__.encode()))


def may_have_references(data: Buffer) -> bool:
    """Return whether bytes may hold a pickle with references."""
    return _CALLED.search(data) is not None


def references_in(data: Buffer) -> set[bytes]:
    """Return the encoded references of each pickle in MessagePack bytes.

    Raises
    ------
    ValueError, msgpack.UnpackException
        if the bytes hold no MessagePack value.
    """
    found: set[bytes] = set()

    def note(code: int, content: bytes) -> Any:
        if code == EXT_NAMING_PICKLE:
            found.add(split_references(content)[0])

    msgpack.unpackb(data, ext_hook=note, strict_map_key=False, use_list=False, unicode_errors="surrogatepass")
    return found
