"""Convert the arguments of bulk calls to lists of Python values, because rows hold no NumPy and no Arrow scalars."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

_ARROW: Final = (pa.Array, pa.ChunkedArray)
#: Types of columns.
COLUMNS: Final = (*_ARROW, np.ndarray)


def key_list(keys: Any) -> list[Any]:
    """Return keys as a list: the values of a column or a sequence, or one tuple for each row of a list of columns.

    Raises
    ------
    TypeError
        if `keys` is none of them.
    ValueError
        if the columns have different lengths.
    """
    if type(keys) in (list, tuple) and keys and all(isinstance(each, COLUMNS) for each in keys):
        return list(zip(*map(value_list, keys), strict=True))
    return value_list(keys)


def value_list(values: Any) -> list[Any]:
    """Return the values of a column or a sequence. A list is returned as it is, and must not be changed.

    Raises
    ------
    TypeError
        if `values` is neither a column nor a sequence.
    """
    if type(values) is list:
        return values
    if isinstance(values, _ARROW):
        return list(values.to_pylist())
    if isinstance(values, np.ndarray):
        return list(values.tolist())
    if isinstance(values, str | bytes):
        raise TypeError(f"many keys or values are a sequence or a column, not one {type(values).__qualname__}")
    return list(values)
