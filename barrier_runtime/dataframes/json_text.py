"""Text of keys and values, as DataFrames of snapshots show them: JSON where JSON can say it, else `repr`."""

from __future__ import annotations

import base64
import json
import math
from typing import Any


def text_of_value(value: Any) -> str:
    """Return the JSON of plain values, lists, tuples and dicts with text keys, and the `repr` of all else."""
    try:
        is_plain = _is_plain(value)
    except RecursionError:
        is_plain = False
    return _json(value) if is_plain else _encodable(repr(value))


def text_of_key(key: Any) -> str:
    """Return the JSON of a key. Tuples are arrays, and bytes are ``{"base64": "..."}``, because JSON has no bytes."""
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
