"""Everything that user code may raise or return and should not, for the fuzzer of hooks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from decimal import Decimal
from typing import Any

import numpy as np

from cutline.snapshot.errors import ChannelError, Fenced, NodeError, RestoreRefused, SnapshotAborted
from cutline.testing import CheckFailed

CAUSES = 5_000


class Unsayable(Exception):
    """Has neither text nor repr."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class UnsayableWithSignals(Exception):
    """Reading its text interrupts whoever reads."""

    def __str__(self) -> str:
        raise KeyboardInterrupt

    __repr__ = __str__


class NotText(Exception):
    """Its text is no text."""

    def __str__(self) -> str:
        return 5  # type: ignore[return-value]


class _OddText(str):
    __slots__ = ()

    def __len__(self) -> int:
        return -1

    def __getitem__(self, key: Any) -> str:
        raise RuntimeError("no slice")

    def __format__(self, spec: str) -> str:
        raise RuntimeError("no format")

    def encode(self, *arguments: Any) -> bytes:
        raise RuntimeError("no bytes")


class OddText(Exception):
    """Its text is a str that does nothing that a str does."""

    def __str__(self) -> str:
        return _OddText("odd")


class Unpicklable(Exception):
    """Cannot be pickled."""

    def __reduce__(self) -> Any:
        raise SystemExit(5)


class _Nameless(type):
    def __getattribute__(cls, name: str) -> Any:
        raise RuntimeError(f"no {name}")


class Nameless(Exception, metaclass=_Nameless):
    """Its class has no name."""


def _refuse(_: object) -> Any:
    raise RuntimeError("not readable")


_unreadable: Any = property(_refuse)


class Opaque(Exception):
    """Its causes and its traceback cannot be read as attributes."""

    __cause__ = __context__ = __traceback__ = __suppress_context__ = _unreadable


def _long_chain() -> Exception:
    error = first = ValueError("root cause")
    for number in range(CAUSES):
        error = ValueError(f"caused {number}")
        error.__cause__, first = first, error
    return error


def _long_context() -> Exception:
    error = first = ValueError("root cause")
    for number in range(CAUSES):
        error = ValueError(f"in the context {number}")
        error.__context__, first = first, error
    return error


def _circle() -> Exception:
    one, other = ValueError("one"), ValueError("other")
    one.__cause__, other.__cause__ = other, one
    return one


def _deep_group() -> BaseException:
    group: BaseException = KeyboardInterrupt()
    for _ in range(400):
        group = BaseExceptionGroup("a group", [group, ValueError("beside")])
    return group


def _wide_group() -> BaseException:
    return ExceptionGroup("a group", [ValueError("x" * 1_000) for _ in range(CAUSES)])


def _recursion() -> Any:
    return _recursion()


def raising(make: Callable[[], BaseException]) -> Callable[[], Any]:
    """Return a function that raises a new error."""

    def act() -> Any:
        raise make()

    return act


#: {name: function that raises}; the name of the error's class is in the report
RAISES: dict[str, Callable[[], Any]] = {
    "ValueError": raising(lambda: ValueError("bad")),
    "ValueError, without text": raising(ValueError),
    "SystemExit": raising(lambda: SystemExit(3)),
    "KeyboardInterrupt": raising(KeyboardInterrupt),
    "GeneratorExit": raising(GeneratorExit),
    "StopIteration": raising(StopIteration),
    "StopAsyncIteration": raising(StopAsyncIteration),
    "CancelledError": raising(asyncio.CancelledError),
    "BaseException": raising(BaseException),
    "AssertionError": raising(AssertionError),
    "MemoryError": raising(MemoryError),
    "FileNotFoundError, with a file name of bytes": raising(lambda: OSError(2, "gone", "caf\udce9")),
    "UnicodeDecodeError": raising(lambda: UnicodeDecodeError("utf-8", b"\xff" * 100_000, 0, 1, "bad")),
    "BaseExceptionGroup": raising(_deep_group),
    "ExceptionGroup": raising(_wide_group),
    "ValueError, with causes": raising(_long_chain),
    "ValueError, with contexts": raising(_long_context),
    "ValueError, in a circle": raising(_circle),
    "ValueError, of 10 MB": raising(lambda: ValueError("x" * 10_000_000)),
    "ValueError, with half a surrogate pair": raising(lambda: ValueError("\ud800 \udfff")),
    "ValueError, with control characters": raising(lambda: ValueError("\x1b[2J\x00\r\x9b")),
    "RecursionError": _recursion,
    "Unsayable": raising(Unsayable),
    "UnsayableWithSignals": raising(UnsayableWithSignals),
    "NotText": raising(NotText),
    "OddText": raising(OddText),
    "Unpicklable": raising(Unpicklable),
    "Nameless": raising(Nameless),
    "Opaque": raising(Opaque),
    "NodeError": raising(lambda: NodeError("a user's own")),
    "ChannelError": raising(lambda: ChannelError("a user's own")),
    "RestoreRefused": raising(lambda: RestoreRefused("a user's own")),
    "SnapshotAborted": raising(lambda: SnapshotAborted("a user's own")),
    "Fenced": raising(lambda: Fenced("a user's own")),
    "CheckFailed": raising(lambda: CheckFailed("order", "a user's own")),
}


class NoTruth:
    """Is neither true nor false."""

    def __bool__(self) -> bool:
        raise SystemExit("no truth")


class NoRepr(float):
    """A number without a text."""

    def __repr__(self) -> str:
        raise KeyboardInterrupt


#: values that are no time, and no wait
NO_TIMES: tuple[Any, ...] = (
    *(float("nan"), float("inf"), -float("inf"), 10**400, -(10**400), 10**5_000, 1e300, 1.7e12),
    *("soon", "5", "", b"1", [], [1], (), {}, object(), 1j, Decimal(1), timedelta(1)),
    *(np.float64(1), np.float32(0.5), np.int64(0), np.bool_(False), np.array([1.0, 2.0]), True, False),
    *(NoTruth(), NoRepr(1)),
)

#: values that are no key
NO_KEYS: tuple[Any, ...] = (1.5, float("nan"), [1], {}, {1}, object(), NoTruth(), (1, [2]), 1j)


def failing_iterator() -> Iterator[Any]:
    """Raise before the first value."""
    yield from raising(KeyboardInterrupt)()


#: functions that return what no codec encodes
NOT_STORABLE: tuple[Callable[[], Any], ...] = (
    threading.Lock,
    failing_iterator,
    Unpicklable,
    lambda: [threading.Lock()],
    lambda: {"lock": threading.Lock()},
)
