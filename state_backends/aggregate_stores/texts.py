"""Write keys and values of a store of aggregates as JSON text, which other programs can read, and read them back.

None, bool, int, float and str are written as JSON has them, and a tuple is an array. What JSON lacks is an object with
one member: ``{"bytes": base64}``, ``{"fraction": [3, 4]}``, and ``{"int": "0x…"}`` for an integer of more than 600
digits. Equal keys have equal texts. 1, 1.0 and true have three.
"""

from __future__ import annotations

import json
import math
from base64 import b64decode, b64encode
from fractions import Fraction
from typing import Any, Final

#: Bits of an integer that is written in decimal digits. Python can be set to convert no more than 640 digits.
_DECIMAL_BITS_MAX: Final = 2_000

_SEPARATORS: Final = (",", ":")

_encode = json.JSONEncoder(ensure_ascii=False, separators=_SEPARATORS).encode
_encode_ascii = json.JSONEncoder(separators=_SEPARATORS).encode
_decode = json.JSONDecoder().decode


def to_text(value: Any) -> str:
    """Return the JSON text of a key or value.

    Raises
    ------
    TypeError
        if the value, or a value in it, is of another type than the contract of a store lists.
    ValueError
        if a float is not a number or infinite.
    """
    text = _encode(_to_json(value))
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:  # because half of a surrogate pair has no bytes, but JSON has an escape for it
            return _encode_ascii(_to_json(value))
    return text


def from_text(text: str) -> Any:
    """Return the key or value of a JSON text."""
    value = _decode(text)
    return _from_json(value) if type(value) in (list, dict) else value


def _to_json(value: Any) -> Any:
    kind = type(value)
    if kind is int:
        return value if value.bit_length() <= _DECIMAL_BITS_MAX else {"int": hex(value)}
    if kind is float:
        if not math.isfinite(value):
            raise ValueError(f"{value} is no number that can be written as JSON")
        return value
    if value is None or kind in (str, bool):
        return value
    if kind is tuple:
        return [_to_json(each) for each in value]
    if kind is bytes:
        return {"bytes": b64encode(value).decode()}
    if kind is Fraction:
        return {"fraction": [_to_json(value.numerator), _to_json(value.denominator)]}
    raise TypeError(f"{kind.__module__}.{kind.__qualname__} is none of the types of a store: convert it")


def _from_json(value: Any) -> Any:
    if type(value) is list:
        return tuple(map(_from_json, value))
    if type(value) is not dict:
        return value
    [(tag, content)] = value.items()
    if tag == "bytes":
        return b64decode(content)
    if tag == "fraction":
        return Fraction(*map(_from_json, content))
    assert tag == "int", tag
    return int(content, 16)
