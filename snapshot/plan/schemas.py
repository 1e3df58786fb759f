"""Convert DDL, as Spark writes it, to an Arrow schema, without Spark: ``name TYPE, name TYPE NOT NULL, ...``."""

from __future__ import annotations

import re

import pyarrow as pa

_TYPES = {
    "string": pa.string(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "bigint": pa.int64(),
    "short": pa.int16(),
    "smallint": pa.int16(),
    "byte": pa.int8(),
    "tinyint": pa.int8(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "decimal": pa.decimal128(10, 0),  # Spark's defaults
}

#: Most digits that Spark's and Arrow's 128-bit decimals hold.
_DECIMAL_DIGITS_MAX = 38

_FIELD = re.compile(
    r"\s*(?:`(?P<quoted>[^`]+)`|(?P<plain>\w+))\s*:?\s+(?P<type>\w+(?:\s*\([^)]*\))?)(?P<rest>.*)", re.S
)
_DECIMAL = re.compile(r"(?:decimal|dec|numeric)\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)")
_COMMA = re.compile(r",(?![^(]*\))")  # not the comma inside decimal(p, s)


def to_arrow_schema(schema: str | pa.Schema) -> pa.Schema:
    """Return the Arrow schema of DDL. Return an Arrow schema unchanged.

    Raises
    ------
    ValueError
        when the DDL cannot be read. The message says where, and what is possible.
    """
    if isinstance(schema, pa.Schema):
        return schema
    if not isinstance(schema, str):
        raise ValueError(f"a schema is DDL or a pyarrow.Schema, not {type(schema).__qualname__}")
    fields = [_field(text) for text in _COMMA.split(schema)]
    names = [field.name for field in fields]
    repeated = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if repeated:
        raise ValueError(f"schema {schema!r} names column {repeated[0]!r} twice")
    return pa.schema(fields)


def _field(text: str) -> pa.Field:
    match = _FIELD.fullmatch(text)
    if match is None:
        raise ValueError(f"{text.strip()!r} is not a column: write 'name TYPE'")
    rest = " ".join(match["rest"].split()).upper()
    if rest not in ("", "NOT NULL"):
        raise ValueError(f"{match['rest'].strip()!r} behind the type in {text.strip()!r}: only NOT NULL can be there")
    return pa.field(match["quoted"] or match["plain"], _type(match["type"].lower()), nullable=not rest)


def _type(text: str) -> pa.DataType:
    if text in _TYPES:
        return _TYPES[text]
    match = _DECIMAL.fullmatch(text)
    if match is None:
        raise ValueError(
            f"unknown type {text!r}: use decimal(p,s) or one of {', '.join(_TYPES)}, or give an Arrow schema"
        )
    digits, scale = int(match[1]), int(match[2] or 0)
    if not 1 <= digits <= _DECIMAL_DIGITS_MAX or scale > digits:
        raise ValueError(f"{text!r}: decimal(p,s) takes p from 1 to {_DECIMAL_DIGITS_MAX} and s up to p")
    return pa.decimal128(digits, scale)
