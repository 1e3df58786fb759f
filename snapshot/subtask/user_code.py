"""Convert whatever a hook raises into a NodeError that names the hook and the subtask.

Errors that are no `Exception` are converted too, `SystemExit` and `KeyboardInterrupt` among them, because such an error
would otherwise end the worker without a reason. No signal raises in a worker (`barrier_runtime.worker.task`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cutline.snapshot.error_text import describe
from cutline.snapshot.errors import NodeError, RestoreRefused
from cutline.snapshot.failed_event import FailedEvent
from cutline.snapshot.ids import Subtask


@contextmanager
def calling(
    hook: str, subtask: Subtask, failed_event: Callable[[], FailedEvent | None] = lambda: None
) -> Iterator[None]:
    """Convert whatever `hook` raises into a NodeError that names the hook, the subtask and the `failed_event`."""
    try:
        yield
    except BaseException as error:
        raise NodeError(f"{hook} of {subtask}: {describe(error)}", failed_event()) from error


@contextmanager
def refusing(subtask: Subtask) -> Iterator[None]:
    """Pass a RestoreRefused of a hook on as itself, because more starts would meet the refusal again."""
    try:
        yield
    except NodeError as error:
        if isinstance(error.__cause__, RestoreRefused):
            text = str(error.__cause__)
            raise RestoreRefused(text if text.startswith(str(subtask)) else f"{subtask}: {text}") from error
        raise
