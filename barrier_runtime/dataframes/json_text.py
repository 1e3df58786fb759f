"""Text of keys and values, as DataFrames of snapshots show them: JSON where JSON can say it, else `repr`.

A value that has no such text hides no other value: its text states the reason.
"""

from __future__ import annotations

import base64
import json
import math
import sys
from itertools import chain
from typing import Any, Final

from cutline.snapshot.error_text import headline, printable

#: Characters of a text that holds parts of the value several times.
REPEATED_CHARACTERS_MAX: Final = 100_000

#: Characters of the reason why a value has no text.
_REASON_CHARACTERS_MAX: Final = 300

#: Bits of integers of which Python makes decimal text: a digit has more than three.
_PRINTED_BITS_MAX: Final = 3 * sys.int_info.default_max_str_digits

#: Characters of a number in a text, about.
_NUMBER_CHARACTERS: Final = 8


def text_of_value(value: Any) -> str:
    """Return the JSON of plain values, lists, tuples and dicts with text keys, and the `repr` of all else.

    A value that has neither, or that would show shared parts too many times, has a text in ``<...>`` with the reason.
    """
    try:
        if _repeats_too_much(value):
            return f"<no text, because it would show parts of a {type(value).__qualname__} many times>"
        return _json(value) if _is_plain_tree(value) else _encodable(str(repr(value)))
    except Exception as error:  # noqa: BLE001  # because `repr` runs code of users, and integers may be too large
        return f"<no text, because of {printable(headline(error), _REASON_CHARACTERS_MAX)}>"


def _is_plain_tree(value: Any) -> bool:
    try:
        return _is_plain(value)
    except RecursionError:
        return False


def _repeats_too_much(value: Any) -> bool:
    if not isinstance(value, list | tuple | dict | set | frozenset):
        return False
    extent = _Extent()
    try:
        shown = extent.of(value)
    except RecursionError:  # because the parts of so deep a value are not counted
        return False
    return shown > REPEATED_CHARACTERS_MAX and shown > 2 * extent.stored


class _Extent:
    """Counts the characters that a value has about, where each part is stored once and shown each time."""

    def __init__(self) -> None:
        self.stored = 0
        #: {id of a part: characters that the part shows}
        self._known: dict[int, int] = {}

    def of(self, value: Any) -> int:
        """Return the characters that `value` shows."""
        if id(value) in self._known:
            return self._known[id(value)]
        self._known[id(value)] = 0  # for a part that holds itself, which `repr` shows as ``...``
        kind = type(value)
        own = len(value) if kind in (str, bytes, bytearray) else _NUMBER_CHARACTERS
        self.stored += own
        parts: Any = ()
        if kind is dict:
            parts = chain(value.keys(), value.values())
        elif kind in (list, tuple, set, frozenset):
            parts = value
        self._known[id(value)] = shown = own + sum(map(self.of, parts))
        return shown


def text_of_key(key: Any) -> str:
    """Return the JSON of a key. Tuples are arrays, and bytes are ``{"base64": "..."}``, because JSON has no bytes.

    Integers of so many digits that Python makes no text of them are ``{"hex": "..."}``.
    """
    return _json(_plain_key(key))


def _is_plain(value: Any) -> bool:
    kind = type(value)
    if kind is float:
        return math.isfinite(value)
    if kind is list or kind is tuple:
        return all(map(_is_plain, value))
    if kind is dict:
        return all(type(key) is str for key in value) and all(map(_is_plain, value.values()))
    return value is None or kind in (bool, int, str)


def _plain_key(key: Any) -> Any:
    if isinstance(key, tuple):
        return [_plain_key(element) for element in key]
    if isinstance(key, bytes):
        return {"base64": base64.b64encode(key).decode()}
    if isinstance(key, int) and key.bit_length() > _PRINTED_BITS_MAX:
        return {"hex": hex(key)}
    return key


def _json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    # Half of a surrogate pair has no UTF-8, so it is written as an escape.
    return text if _has_utf8(text) else json.dumps(value)


def _encodable(text: str) -> str:
    return text if _has_utf8(text) else text.encode("utf-8", "backslashreplace").decode()


def _has_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
