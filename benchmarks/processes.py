"""Run functions in fresh processes at one time, for baselines and for channels without a runtime.

``python -m benchmarks.processes`` is such a process. The process reads a pickled call from standard input, and writes
that it is ready. After a byte to go the process runs the call, and writes the pickled result to standard output.
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
from importlib import import_module
from typing import Any

from cutline.barrier_runtime.worker.task import tune_interpreter

#: Seconds that a fresh process may take for its imports on a crowded machine.
START_SECONDS_MAX = 60.0

#: Module that is imported to fill the heap of a fresh process, as in a worker. In an almost empty heap a loop has more
#: page faults. The loop took a fifth more processor time (medians of five runs of 2 s in turn, on a busy machine).
_FILLING_MODULE = "benchmarks.timed_run"

_READY = b"R"
_GO = b"G"

Call = tuple[Callable[..., Any], tuple[Any, ...]]


def at_one_time(calls: Sequence[Call], seconds_max: float) -> list[Any]:
    """Run each call in its own process, all from the moment when all are ready. Return their results.

    Sockets among the arguments are inherited, and closed here, because a process must see when its peer fails.

    Raises
    ------
    RuntimeError
        if a process failed, with its traceback on standard error.
    subprocess.TimeoutExpired
        if a process took longer than `seconds_max`.
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
    """Pickles a socket as its descriptor, because the process inherits descriptors."""

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
        raise RuntimeError("a process of the benchmark did not start; its error is on standard error")


def _answer(process: subprocess.Popen[bytes], seconds_max: float) -> Any:
    answer, _ = process.communicate(timeout=seconds_max)
    if process.returncode != 0:
        raise RuntimeError("a process of the benchmark failed; its error is on standard error")
    return pickle.loads(answer)  # noqa: S301  # because our own process wrote it


def _serve() -> None:
    import_module(_FILLING_MODULE)
    call, arguments = pickle.load(sys.stdin.buffer)  # noqa: S301  # because our own parent wrote it
    sys.stdout.buffer.write(_READY)
    sys.stdout.buffer.flush()
    sys.stdin.buffer.read(len(_GO))
    tune_interpreter()  # as a worker does
    pickle.dump(call(*arguments), sys.stdout.buffer)


if __name__ == "__main__":
    _serve()
