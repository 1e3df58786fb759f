"""Find the references to classes and functions in encoded values, without reading a pickle.

A restore binds them before anything runs, because a row of a class that is gone would otherwise fail hours later.
"""

from __future__ import annotations

import io
import pickletools
import re
from contextlib import suppress
from itertools import pairwise
from typing import Any, Final

import msgpack

from cutline.snapshot.channel.extensions import EXT_NAMING_PICKLE, EXT_PICKLE
from cutline.snapshot.channel.frame import Buffer
from cutline.snapshot.naming.bound import bind
from cutline.snapshot.naming.reference import CODE, Reference, encode_references, split_references

#: Module that makes classes and functions of code.
_MODULE: Final = "cloudpickle.cloudpickle"

#: In each pickle that holds code.
_CODE: Final = re.compile(re.escape(_MODULE.encode()))

#: In each pickle that has references, because the pickle calls `bind` for each; and in each pickle with code.
_CALLED: Final = re.compile(re.escape(bind.__module__.encode()) + b"|" + _CODE.pattern)

#: First byte of a pickle, and its protocol.
_PICKLE_START: Final = b"\x80\x05"

#: Opcodes that are read for the name of a class or function.
_OPCODES_MAX: Final = 200


def may_have_references(data: Buffer) -> bool:
    """Return whether bytes may hold a pickle with references, or with code."""
    return _CALLED.search(data) is not None


def code_in(data: Buffer) -> set[bytes]:
    """Return what stands for the references of pickles with code in some bytes, or nothing without code."""
    if _CODE.search(data) is None:
        return set()
    whole = bytes(data)
    starts = {whole.rfind(_PICKLE_START, 0, match.start()) for match in _CODE.finditer(whole)} - {-1}
    names = {name for start in starts if (name := _name_of_code(io.BytesIO(whole[start:]))) is not None}
    return {split_references(encode_references((Reference("", each, CODE, is_maker=False),)))[0] for each in names}


def _name_of_code(pickled: io.BytesIO) -> str | None:
    """Return the name of the first class or function whose code a pickle holds, or None without code."""
    opcodes: list[tuple[str, Any]] = []
    with suppress(ValueError):  # at the end of a pickle that was found among other bytes
        for opcode, argument, _ in pickletools.genops(pickled):
            if opcode.name == "MEMOIZE":
                continue
            opcodes.append((opcode.name, argument))
            if len(opcodes) == _OPCODES_MAX and not _is_made(opcodes):
                opcodes.pop(0)
    while opcodes and not _is_made(opcodes):
        opcodes.pop(0)
    texts = [argument for _, argument in opcodes if type(argument) is str]
    if not texts:
        return None
    if texts[1].startswith("_make_skeleton"):
        return texts[4]  # behind the metaclass, or behind the base of an Enum
    return next((one for one, two in pairwise(texts) if one == two), texts[1])


def _is_made(opcodes: list[tuple[str, Any]]) -> bool:
    """Return whether the first opcodes refer to a function of cloudpickle that makes classes or functions."""
    names = [name for name, _ in opcodes[:3]]
    return names[2:] == ["STACK_GLOBAL"] and opcodes[0][1] == _MODULE and str(opcodes[1][1]).startswith("_make_")


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
        elif code == EXT_PICKLE:
            found.update(code_in(content))

    msgpack.unpackb(data, ext_hook=note, strict_map_key=False, use_list=False, unicode_errors="surrogatepass")
    return found
