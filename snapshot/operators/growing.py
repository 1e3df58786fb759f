"""Arrays that grow by doubling, so that one more group costs nothing to speak of."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def grown(array: npt.NDArray[Any], length: int, fill: Any) -> npt.NDArray[Any]:
    """`array` itself if it has `length` elements, else a longer copy; `fill` is what the new ones hold."""
    if length <= len(array):
        return array
    longer = np.full(max(length, 2 * len(array)), fill, dtype=array.dtype)
    longer[: len(array)] = array
    return longer
