"""Runs functions in fresh processes at one time: the bare limits, and channels without a runtime around them.

``python -m benchmarks.processes`` is such a process: it is given a pickled call on standard input, says that it is
ready, waits for the word to go, and answers on standard output with the pickled result.
"""

from __future__ import annotations

import io
import pickle
import select
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from barrier_runtime.interpreter import tune_interpreter

#: Seconds that fresh processes may take to import what they need on a crowded machine.
START_SECONDS_MAX = 60.0

_READY = b"R"
_GO = b"G"

Call = tuple[Callable[..., Any], tuple[Any, ...]]


def at_one_time(calls: Sequence[Call], seconds_max: float) -> list[Any]:
    """What each call returned in a process of its own; all begin when all are ready.

    Sockets among the arguments are handed over and closed here, so that a process sees when another one fails.

    Raises
    ------
    RuntimeError
        if one failed, with its traceback on standard error.
    subprocess.TimeoutExpired
        if one took longer than `seconds_max`.
    """
    with ExitStack() as stack:
        processes = [_started(call, stack) for call in calls]
        for process in processes:
            _await_ready(process)
        for process in processes:
            assert process.stdin is not None
            process.stdin.write(_GO)
            process.stdin.flush()
        return [_answer(process, seconds_max) for process in processes]


class _Pickler(pickle.Pickler):
    """Sockets go by their descriptors, which the process inherits."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.sockets: list[socket.socket] = []

    def reducer_override(self, value: Any) -> Any:
        if not isinstance(value, socket.socket):
            return NotImplemented
        self.sockets.append(value)
        return socket.socket, (-1, -1, -1, value.fileno())


def _started(call: Call, stack: ExitStack) -> subprocess.Popen[bytes]:
    encoded = io.BytesIO()
    pickler = _Pickler(encoded)
    pickler.dump(call)
    process = stack.enter_context(
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.processes"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[sock.fileno() for sock in pickler.sockets],
        )
    )
    stack.callback(process.kill)
    for sock in pickler.sockets:
        sock.close()
    assert process.stdin is not None
    process.stdin.write(encoded.getvalue())
    process.stdin.flush()
    return process


def _await_ready(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None
    readable, _, _ = select.select([process.stdout], [], [], START_SECONDS_MAX)
    if not readable or process.stdout.read(len(_READY)) != _READY:
        raise RuntimeError("a process of the benchmark did not start; what it raised is on standard error")


def _answer(process: subprocess.Popen[bytes], seconds_max: float) -> Any:
    answer, _ = process.communicate(timeout=seconds_max)
    if process.returncode != 0:
        raise RuntimeError("a process of the benchmark failed; what it raised is on standard error")
    return pickle.loads(answer)  # noqa: S301  # of our own process


def _serve() -> None:
    call, arguments = pickle.load(sys.stdin.buffer)  # noqa: S301  # of our own parent
    sys.stdout.buffer.write(_READY)
    sys.stdout.buffer.flush()
    sys.stdin.buffer.read(len(_GO))
    tune_interpreter()  # as a worker does
    pickle.dump(call(*arguments), sys.stdout.buffer)


if __name__ == "__main__":
    _serve()
