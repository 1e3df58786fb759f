"""The process of a barrier task: forks the worker, watches the worker, and forks again when the worker dies.

The task's process runs no user code, no BLAS and no storage client, because forking after such code is unsafe.
The process imports the modules, so that a new worker is ready within milliseconds. A killed worker costs one fork,
because the stage and the processes of all other workers keep running.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import select
import signal
import sys
import time
from typing import NoReturn

# Imported here, because each forked worker would otherwise take 40 ms to import for the backend that it unpickles.
import pyarrow.parquet  # noqa: F401

import state_backends  # noqa: F401
from barrier_runtime.launch import ExitCode, WorkerLaunch
from barrier_runtime.logs import configure
from barrier_runtime.worker.worker import Worker
from snapshot.error_text import describe
from snapshot.errors import RunFailed

#: new objects between two runs of the garbage collector; Python's default is 700
COLLECTED_OBJECTS = 100_000

#: Seconds that a thread waits for the interpreter's lock after a system call while the loop computes. An upload waits
#: a dozen times. At Python's default of 5 ms an upload took 60 ms of a snapshot, mostly waiting.
LOCK_SECONDS = 0.0005


def tune_interpreter() -> None:
    """Tune the process for one loop that always computes, and a few threads that mostly wait for storage.

    Collection is made rare, because messages form no cycles and the default threshold costs a tenth of the time.
    """
    gc.freeze()  # because imported objects stay, and collection need not visit them
    gc.set_threshold(COLLECTED_OBJECTS)
    sys.setswitchinterval(LOCK_SECONDS)


#: seconds below which a run of a worker process did nothing useful
SHORT_RUN_SECONDS = 1.0

#: short runs in a row after which the stage fails, because no worker can run here
SHORT_RUNS_MAX = 8

#: bytes of an error text that a broken worker may send to the driver
LAST_WORDS_BYTES_MAX = 16 * 1024

_PR_SET_PDEATHSIG = 1

_libc = ctypes.CDLL(None, use_errno=True)


def host_worker(encoded_launch: bytes, number: int) -> None:
    """Keep one worker running until the run ends. Call on the main thread of a barrier task's process.

    Raises
    ------
    RunFailed
        if the worker left with an exit code that fails the stage, or cannot run here.
    """
    launch = WorkerLaunch.decode(encoded_launch)
    daemon = os.getppid()
    short_runs = 0
    while True:
        born_at = time.monotonic()
        pid, words = _fork_worker(launch, number)
        status = _watch(pid, daemon)
        said = _read_last_words(words)
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) == ExitCode.FINISHED:
            return
        if os.WIFEXITED(status):
            raise RunFailed(f"worker {number} left with code {os.WEXITSTATUS(status)}: {said or 'it was told to quit'}")
        short_runs = short_runs + 1 if time.monotonic() - born_at < SHORT_RUN_SECONDS else 0
        if short_runs >= SHORT_RUNS_MAX:
            name = signal.Signals(os.WTERMSIG(status)).name
            raise RunFailed(f"worker {number} died {short_runs} times at once, the last time by {name}")


def _fork_worker(launch: WorkerLaunch, number: int) -> tuple[int, int]:
    """Return the child's pid, and the descriptor from which the child's last error text is read."""
    words_in, words_out = os.pipe()
    parent = os.getpid()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        _be_worker(launch, number, parent, words_out)
    os.close(words_out)
    return pid, words_in


def _be_worker(launch: WorkerLaunch, number: int, parent: int, words: int) -> NoReturn:
    """Run the child. Leave only by `os._exit`, because the exit handlers belong to the parent."""
    code = ExitCode.BROKEN
    try:
        # The signal follows the end of the thread that forked, which is the parent's main thread. The parent is checked
        # afterwards, because it may have ended before the call.
        if _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
        if os.getppid() != parent:
            os._exit(ExitCode.QUIT)
        # The JVM's socket is closed above all, because the driver would otherwise never see the task die.
        _close_descriptors(keep=(0, 1, 2, words))
        for number_ in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGPIPE):
            signal.signal(number_, signal.SIG_DFL if number_ != signal.SIGPIPE else signal.SIG_IGN)
        configure(f"{launch.run} worker-{number}", launch.log_level)
        tune_interpreter()
        code = Worker(launch, number).run()
    except BaseException as error:  # noqa: BLE001  # any error ends this process, and the driver must receive it
        text = describe(error).encode()
        with contextlib.suppress(OSError):
            os.write(words, text[-LAST_WORDS_BYTES_MAX:])
    finally:
        os._exit(code)


def _close_descriptors(keep: tuple[int, ...]) -> None:
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in keep:
            with contextlib.suppress(OSError):  # because the descriptor of the listing is closed already
                os.close(int(name))


def _watch(pid: int, daemon: int) -> int:
    """Wait for the child's end and return its wait status.

    Kill the child and exit when the Spark daemon is gone, because nothing would cancel this task then.
    """
    child, above = os.pidfd_open(pid), _open_daemon(daemon)
    try:
        poll = select.poll()
        poll.register(child, select.POLLIN)
        poll.register(above, select.POLLIN)
        while True:
            ready = [descriptor for descriptor, _ in poll.poll()]
            if child in ready:
                return os.waitpid(pid, 0)[1]
            if above in ready:
                os.kill(pid, signal.SIGKILL)
                os._exit(ExitCode.QUIT)
    finally:
        os.close(child)
        os.close(above)


def _open_daemon(daemon: int) -> int:
    try:
        return os.pidfd_open(daemon)
    except ProcessLookupError:
        os._exit(ExitCode.QUIT)


def _read_last_words(descriptor: int) -> str:
    """Read the bytes in the pipe. Do not wait for its end, because a process forked by user code may hold it open."""
    os.set_blocking(descriptor, False)
    with os.fdopen(descriptor, "rb", buffering=0) as words:
        return (words.read(LAST_WORDS_BYTES_MAX) or b"").decode(errors="replace").strip()
