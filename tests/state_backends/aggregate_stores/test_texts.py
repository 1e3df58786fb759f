"""Keys and values as JSON text: what others read, and that nothing is lost."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from cutline.state_backends.aggregate_stores.texts import from_text, to_text

#: {value: its text}
_TEXTS: tuple[tuple[Any, str], ...] = (
    *((None, "null"), (True, "true"), (12, "12"), (1.0, "1.0"), (-0.0, "-0.0"), (1e22, "1e+22"), ("größe", '"größe"')),
    *(
        ('a"b\n', '"a\\"b\\n"'),
        ("\0", '"\\u0000"'),
        ("\ud800é", '"\\ud800\\u00e9"'),
        (("a", (1, None)), '["a",[1,null]]'),
    ),
    *((b"\xff", '{"bytes":"/w=="}'), (Fraction(-3, 4), '{"fraction":[-3,4]}'), (10**400, "1" + "0" * 400)),
    *((10**5000, '{"int":"' + hex(10**5000) + '"}'), ((-(10**5000),), '[{"int":"' + hex(-(10**5000)) + '"}]')),
)


@pytest.mark.parametrize(("value", "text"), _TEXTS, ids=lambda each: str(type(each).__name__))
def test_texts(value: Any, text: str) -> None:
    """JSON has the value where JSON can, and the same value comes back."""
    assert to_text(value) == text
    found = from_text(text)
    assert (type(found), found) == (type(value), value)


def test_what_is_refused_is_named() -> None:
    """An error says the value or its type. A subclass is refused, because it would not come back."""

    class Cents(int):
        pass

    for value, words in ((float("nan"), "nan is no number"), ([1], "builtins.list"), ((Cents(1),), "Cents is none of")):
        with pytest.raises((TypeError, ValueError), match=words):
            to_text(value)
