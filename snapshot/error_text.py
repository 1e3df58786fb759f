"""Describe values and errors of user code as text that is bounded, printable, and made without raising.

The text of an error crosses processes as a control message, and ends on consoles and pages. Python would pass on any
size, halves of surrogate pairs, which no UTF-8 holds, and control characters, which steer terminals. Reading a text
runs user code (`__str__`, `__repr__`), which may raise anything.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from typing import Any, Final

#: characters of one exception's text, or of one value: a few screens, so that the report has room for other causes
TEXT_CHARACTERS_MAX: Final = 4_000

#: characters of a whole report; a status holds a hundred reports, and a page shows some of them
REPORT_CHARACTERS_MAX: Final = 32_000

#: innermost frames of a traceback; an endless recursion has a thousand that say the same
_FRAMES_MAX = 50

#: exceptions shown of each end of a chain of causes
_ENDS_SHOWN = 4

#: exceptions of a chain of causes that are visited; the rest is not counted either
_CAUSES_MAX = 10_000

_LED_TO = "\n\nThe error above is a cause of the next error:\n\n"

#: {control character: escape}; a line feed and a tab stay, because tracebacks have them
_ESCAPES = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}


def describe(error: BaseException) -> str:
    """Describe an error and its causes: type and text in the first line, then the tracebacks, the root cause first."""
    chain = list(_causes(error))
    left_out = len(chain) - 2 * _ENDS_SHOWN
    shown_errors = chain if left_out <= 0 else [*chain[:_ENDS_SHOWN], *chain[-_ENDS_SHOWN:]]
    blocks = [_block(each) for each in shown_errors]
    if left_out > 0:
        blocks.insert(_ENDS_SHOWN, f"... {left_out:,} errors in between are left out ...")
    return _cut(f"{headline(error)}\n{_LED_TO.join(reversed(blocks))}", REPORT_CHARACTERS_MAX)


def headline(error: BaseException) -> str:
    """Return type and text of an error, as the last line of a traceback."""
    return f"{_cut(_NAME(type(error)), TEXT_CHARACTERS_MAX)}: {_read(lambda: str(error))}"


def without_traceback(text: str) -> str:
    """Return the part of an error's text before the traceback. The console shows this part, and the status all."""
    return text.partition("\nTraceback (most recent call last):\n")[0]


def shown(value: object) -> str:
    """Return the `repr` of a value. Never raises."""
    return _read(lambda: repr(value))


def printable(text: str, limit: int = REPORT_CHARACTERS_MAX) -> str:
    """Return `text` with escapes for what cannot be encoded or would steer a terminal, cut to about `limit`."""
    escaped = _cut(text, limit).encode("utf-8", "backslashreplace").decode("utf-8").translate(_ESCAPES)
    return _cut(escaped, limit)


def _read(text: Callable[[], str]) -> str:
    try:
        # A subclass of str may override any method, so the characters are joined to a plain str.
        return printable("".join(["", text(), ""]), TEXT_CHARACTERS_MAX)
    except BaseException as error:  # noqa: BLE001  # because user code may raise anything
        return f"<no text, because reading it raises {_NAME(type(error))}>"


def _block(error: BaseException) -> str:
    """Return one exception as Python prints an exception, without its causes."""
    try:
        frames = "".join(traceback.format_tb(_TRACEBACK(error), -_FRAMES_MAX))
    except BaseException as failure:  # noqa: BLE001  # because a source file may be anything by now
        frames = f"  <no traceback, because reading it raises {_NAME(type(failure))}>\n"
    return f"Traceback (most recent call last):\n{printable(frames)}{headline(error)}"


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, its causes, their causes and so on, each once, nearest first. Members of a group are causes."""
    seen = {id(error)}
    found = [error]
    for each in found:
        yield each
        for cause in _direct_causes(each):
            if id(cause) not in seen and len(found) < _CAUSES_MAX:
                seen.add(id(cause))
                found.append(cause)


def _direct_causes(error: BaseException) -> list[BaseException]:
    members: list[Any] = list(_GROUP_MEMBERS(error)) if isinstance(error, BaseExceptionGroup) else []
    # Attributes are read from the base class, because a user's class may override them.
    cause = _CAUSE(error) or (None if _IS_SUPPRESSED(error) else _CONTEXT(error))
    return members if cause is None else [cause, *members]


_CAUSE, _CONTEXT, _IS_SUPPRESSED, _TRACEBACK = (
    vars(BaseException)[name].__get__ for name in ("__cause__", "__context__", "__suppress_context__", "__traceback__")
)
_GROUP_MEMBERS = vars(BaseExceptionGroup)["exceptions"].__get__
_NAME = vars(type)["__name__"].__get__  # a metaclass may override this attribute, too


def _cut(text: str, limit: int) -> str:
    """Return `text` without its middle if it is longer than `limit`."""
    if len(text) <= limit:
        return text
    half = (limit - 50) // 2  # 50 characters for the note
    return f"{text[:half]} ... {len(text) - 2 * half:,} characters left out ... {text[len(text) - half :]}"
