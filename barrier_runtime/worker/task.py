"""The processes of a barrier task: the task, a reaper below the task, and the worker below the reaper.

::

    Spark's daemon
      task      returns to Spark, or raises
        reaper    forks the worker, watches the worker, and forks again when the worker dies
          worker    runs user code, which may start processes
            ...

Task and reaper run no user code, no BLAS and no storage client, because forking after such code is unsafe.
The task imports the modules, so that a new worker is ready within milliseconds. A killed worker costs one fork,
because the stage and the processes of all other workers keep running.

Processes that user code started end with the worker. Linux makes them children of the reaper when the worker ends.
The reaper is apart from the task, because Spark kills the task of a cancelled stage by SIGKILL.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

# Imported here, because each forked worker would otherwise take 40 ms to import for the backend that it unpickles.
import pyarrow.parquet  # noqa: F401

from cutline.barrier_runtime.launch import ExitCode, WorkerLaunch
from cutline.barrier_runtime.logs import configure
from cutline.barrier_runtime.worker.worker import Worker
from cutline.snapshot.error_text import describe
from cutline.snapshot.errors import RunFailed
from cutline.state_backends import filesystem, fsspec, keyed_state, memory, object_store  # noqa: F401
from cutline.state_backends.aggregate_stores import memory as totals  # noqa: F401

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

#: seconds between two looks for orphans that have ended while the worker runs
_REAP_SECONDS = 5.0

#: open files that a worker may have, where the hard limit allows it
_DESCRIPTORS = 65_536

#: Seconds to wait for killed processes to end. The limit exists because a process in a system call cannot be killed.
ORPHAN_SECONDS_MAX = 10.0

_ORPHAN_POLL_SECONDS = 0.001

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36

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
    pid, words = _fork(lambda parent: _be_reaper(launch, number, parent))
    status = _watch(pid, daemon)
    if status is None:
        os._exit(ExitCode.QUIT)  # the reaper sees it, and ends the worker
    said = _read_last_words(words)
    if not os.WIFEXITED(status):
        raise RunFailed(f"the reaper of worker {number} died by {_signal_name(status)}")
    if os.WEXITSTATUS(status) != ExitCode.FINISHED:
        raise RunFailed(said)


def _fork(work: Callable[[int], int]) -> tuple[int, int]:
    """Fork a child that calls `work` with the parent's pid, and exits with the result.

    Returns
    -------
    (int, int)
        The child's pid, and the descriptor from which the error text of `work` is read.
    """
    words_in, words_out = os.pipe()
    parent = os.getpid()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        _be_child(work, parent, words_out)
    os.close(words_out)
    return pid, words_in


def _be_child(work: Callable[[int], int], parent: int, words: int) -> NoReturn:
    """Run the child. Leave only by `os._exit`, because the exit handlers belong to the parent."""
    code: int = ExitCode.BROKEN
    try:
        # The JVM's socket is closed above all, because the driver would otherwise never see the task die.
        _close_descriptors(keep=(0, 1, 2, words))
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL if number != signal.SIGPIPE else signal.SIG_IGN)
        code = work(parent)
    except BaseException as error:  # noqa: BLE001  # any error ends this process, and the driver must receive it
        text = str(error) if isinstance(error, RunFailed) else describe(error)
        with contextlib.suppress(OSError):
            os.write(words, text.encode(errors="replace")[-LAST_WORDS_BYTES_MAX:])
    finally:
        os._exit(code)


def _be_reaper(launch: WorkerLaunch, number: int, task: int) -> int:
    """Fork workers until one leaves. Return its exit code, and leave no process behind.

    Raises
    ------
    RunFailed
        if the worker left with an exit code that fails the stage, or cannot run here.
    """
    _set_process_option(_PR_SET_CHILD_SUBREAPER, 1)
    for ignored in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(ignored, signal.SIG_IGN)  # because the reaper ends after its task, and after the worker's orphans
    short_runs = 0
    while True:
        born_at = time.monotonic()
        pid, words = _fork(lambda reaper: _run_worker(launch, number, reaper))
        status = _watch(pid, task)
        if status is None:
            os.kill(pid, signal.SIGKILL)
            _kill_orphans()
            return ExitCode.QUIT
        said = _read_last_words(words)
        _kill_orphans()
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) == ExitCode.FINISHED:
            return ExitCode.FINISHED
        if os.WIFEXITED(status):
            raise RunFailed(f"worker {number} left with code {os.WEXITSTATUS(status)}: {said or 'it was told to quit'}")
        short_runs = short_runs + 1 if time.monotonic() - born_at < SHORT_RUN_SECONDS else 0
        if short_runs >= SHORT_RUNS_MAX:
            raise RunFailed(f"worker {number} died {short_runs} times at once, the last time by {_signal_name(status)}")


def _run_worker(launch: WorkerLaunch, number: int, reaper: int) -> int:
    # The signal follows the end of the thread that forked, which is the reaper's main thread. The reaper is checked
    # afterwards, because it may have ended before the call.
    _set_process_option(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != reaper:
        return ExitCode.QUIT
    configure(f"{launch.run} worker-{number}", launch.log_level)
    _allow_descriptors()
    tune_interpreter()
    return Worker(launch, number).run()


def _allow_descriptors() -> None:
    """Raise the limit of open files, because each channel that spills in a cycle, and each peer, takes some."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(_DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _set_process_option(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option})")


def _signal_name(status: int) -> str:
    return signal.Signals(os.WTERMSIG(status)).name


def _close_descriptors(keep: tuple[int, ...]) -> None:
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in keep:
            with contextlib.suppress(OSError):  # because the descriptor of the listing is closed already
                os.close(int(name))


def _watch(pid: int, above: int) -> int | None:
    """Wait for the child's end and return its wait status. Return None as soon as the process `above` is gone."""
    with contextlib.ExitStack() as descriptors:
        poll = select.poll()
        child = os.pidfd_open(pid)
        descriptors.callback(os.close, child)
        poll.register(child, select.POLLIN)
        try:
            parent = os.pidfd_open(above)
        except ProcessLookupError:
            return None
        descriptors.callback(os.close, parent)
        poll.register(parent, select.POLLIN)
        if os.getppid() != above:  # because the pid may belong to another process by now
            return None
        while not (ready := [descriptor for descriptor, _ in poll.poll(_REAP_SECONDS * 1000)]):
            _reap(besides=pid)
        return os.waitpid(pid, 0)[1] if child in ready else None


def _reap(besides: int) -> None:
    """Take the exit codes of orphans that have ended, because they count against the limit of processes until then."""
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) and ended.si_pid != besides:
            os.waitpid(ended.si_pid, 0)


def _kill_orphans() -> None:
    """Kill all children of this process. Their own children become children of this process, and are killed too."""
    deadline = time.monotonic() + ORPHAN_SECONDS_MAX
    while time.monotonic() < deadline:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return  # no child is left
        for pid in _children():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_ORPHAN_POLL_SECONDS)


def _children() -> list[int]:
    """Return the pids of this process's children."""
    own, found = os.getpid(), []
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with contextlib.suppress(OSError):  # because the process has ended meanwhile
                stat = Path("/proc", name, "stat").read_text(errors="replace")
                if int(stat.rpartition(")")[2].split()[1]) == own:
                    found.append(int(name))
    return found


def _read_last_words(descriptor: int) -> str:
    """Read the bytes in the pipe. Do not wait for its end, because a process forked by user code may hold it open."""
    os.set_blocking(descriptor, False)
    with os.fdopen(descriptor, "rb", buffering=0) as words:
        return (words.read(LAST_WORDS_BYTES_MAX) or b"").decode(errors="replace").strip()
