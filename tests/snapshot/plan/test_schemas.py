"""DDL to Arrow schemas."""

from __future__ import annotations

import pyarrow as pa
import pytest

from cutline.snapshot.plan.schemas import to_arrow_schema


def test_every_type_is_read() -> None:
    """Spark's names and their synonyms, in any case, with or without a colon or backquotes."""
    ddl = (
        "a string, b INT, c: long, d bigint NOT NULL, e short, f byte, g float, h double, i boolean, j binary,"
        "k date, l timestamp, m decimal(10, 2), `n o` Decimal, p decimal( 5 )"
    )
    assert to_arrow_schema(ddl) == pa.schema(
        [
            ("a", pa.string()),
            ("b", pa.int32()),
            ("c", pa.int64()),
            pa.field("d", pa.int64(), nullable=False),
            ("e", pa.int16()),
            ("f", pa.int8()),
            ("g", pa.float32()),
            ("h", pa.float64()),
            ("i", pa.bool_()),
            ("j", pa.binary()),
            ("k", pa.date32()),
            ("l", pa.timestamp("us", tz="UTC")),
            ("m", pa.decimal128(10, 2)),
            ("n o", pa.decimal128(10, 0)),
            ("p", pa.decimal128(5, 0)),
        ]
    )


def test_an_arrow_schema_is_itself() -> None:
    """Nothing is lost on the way."""
    schema = pa.schema([("a", pa.list_(pa.int8()))], metadata={"k": "v"})
    assert to_arrow_schema(schema) is schema


@pytest.mark.parametrize(
    ("ddl", "problem"),
    [
        ("", "'' is not a column"),
        ("a", "'a' is not a column"),
        ("a int,", "'' is not a column"),
        ("a strin", "unknown type 'strin'"),
        ("a map<int,int>", "only NOT NULL"),
        ("a int unsigned", "'unsigned' behind the type"),
        ("a int, a long", "column 'a' twice"),
        ("a decimal(39, 2)", "p from 1 to 38"),
        ("a decimal(3, 4)", "s up to p"),
        ("a decimal(x)", "unknown type"),
    ],
)
def test_what_cannot_be_read_is_said(ddl: str, problem: str) -> None:
    """With the part that is wrong."""
    with pytest.raises(ValueError, match=problem.replace("(", r"\(").replace(")", r"\)")):
        to_arrow_schema(ddl)
