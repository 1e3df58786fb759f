"""What a user's hook raises, told with the place where it was raised."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from snapshot.errors import NodeError
from snapshot.ids import Subtask


@contextmanager
def calling(hook: str, subtask: Subtask) -> Iterator[None]:
    """Turn whatever `hook` raises into a NodeError that names it and the subtask."""
    try:
        yield
    except Exception as error:
        raise NodeError(f"{hook} of {subtask}: {story(error)}") from error


def story(error: BaseException) -> str:
    """An error as one line, followed by its traceback."""
    text = "".join(traceback.format_exception(error)).rstrip()
    return f"{type(error).__name__}: {error}\n{text}"
