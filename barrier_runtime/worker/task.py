"""Inside a barrier task: fork the worker, watch it, fork again when it dies. Nothing else happens here.

The task's process runs no user code, no BLAS and no storage client, because a fork of a process that did is
unsafe; it only imports, so that a new worker is ready within milliseconds. A worker that is killed costs one
fork; the stage, and with it every other worker's process, lives on.
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
import traceback
from typing import NoReturn

# Imported here, because otherwise each forked worker would: 40 ms for the backend that it unpickles.
import pyarrow.parquet  # noqa: F401

import state_backends  # noqa: F401
from barrier_runtime.launch import ExitCode, WorkerLaunch
from barrier_runtime.logs import configure
from barrier_runtime.worker.worker import Worker
from snapshot.errors import RunFailed

#: New objects between two looks of the collector; Python's own default is 700.
COLLECTED_OBJECTS = 100_000

#: Seconds that a thread which comes back from the system waits for the lock while the loop computes. An upload comes
#: back a dozen times; at Python's own 5 ms each it took 60 ms of a snapshot, most of it waiting.
LOCK_SECONDS = 0.0005


def tune_interpreter() -> None:
    """Suit a process of one loop that always computes, and a few threads that mostly wait for storage.

    Messages come and go by the thousand and are no cycles: the collector's usual haste costs a tenth of the time.
    """
    gc.freeze()  # what was imported stays, so the collector skips it
    gc.set_threshold(COLLECTED_OBJECTS)
    sys.setswitchinterval(LOCK_SECONDS)


#: A worker that lives shorter than this did nothing useful.
SHORT_RUN_SECONDS = 1.0

#: So many short lives in a row mean that no worker can live here: the stage fails, and says so.
SHORT_RUNS_MAX = 8

#: What a broken worker may say to the driver.
LAST_WORDS_BYTES_MAX = 16 * 1024

_PR_SET_PDEATHSIG = 1

_libc = ctypes.CDLL(None, use_errno=True)


def host_worker(encoded_launch: bytes, number: int) -> None:
    """Keep one worker alive until the run is over. Called on the main thread of a barrier task's process.

    Raises
    ------
    RunFailed
        if the worker left so that the stage fails, or cannot live here.
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
    """Returns the child's pid, and the descriptor that its last words are read from."""
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
    """The child's whole life. It leaves only by `os._exit`: the parent's exit handlers are not its own."""
    code = ExitCode.BROKEN
    try:
        # Death follows the thread that forked, which is the parent's main one; it may have died just before.
        if _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
        if os.getppid() != parent:
            os._exit(ExitCode.QUIT)
        # Above all the JVM's socket: left open here, the driver would never see the task die.
        _close_descriptors(keep=(0, 1, 2, words))
        for number_ in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGPIPE):
            signal.signal(number_, signal.SIG_DFL if number_ != signal.SIGPIPE else signal.SIG_IGN)
        configure(f"{launch.run} worker-{number}", launch.log_level)
        tune_interpreter()
        code = Worker(launch, number).run()
    except BaseException:  # noqa: BLE001  # whatever it is, it ends this process, and the driver must hear of it
        text = traceback.format_exc().encode()
        with contextlib.suppress(OSError):
            os.write(words, text[-LAST_WORDS_BYTES_MAX:])
    finally:
        os._exit(code)


def _close_descriptors(keep: tuple[int, ...]) -> None:
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in keep:
            with contextlib.suppress(OSError):  # the listing's own descriptor is closed already
                os.close(int(name))


def _watch(pid: int, daemon: int) -> int:
    """Wait for the child's end; end with it when the Spark daemon above us is gone, for nobody would cancel us then."""
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
    """Read what is in the pipe now, because a process that user code has forked may hold the pipe open for long."""
    os.set_blocking(descriptor, False)
    with os.fdopen(descriptor, "rb", buffering=0) as words:
        return (words.read(LAST_WORDS_BYTES_MAX) or b"").decode(errors="replace").strip()
