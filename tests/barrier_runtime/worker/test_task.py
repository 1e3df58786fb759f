"""The barrier task around a worker: its error when the worker breaks, and the processes that user code leaves."""

from __future__ import annotations

from pathlib import Path

import cloudpickle
import pytest

from cutline import FileSystemBackend
from tests.programs import Script
from tests.source_files import ROOT

#: A second is enough; a test that passes does not wait for this.
_DEADLINE_S = 30.0

#: Its worker cannot unpickle the graph, but has forked by then, as user code may.
_TASK = """
import logging
import os
import pickle
import signal

from cutline.barrier_runtime.launch import WorkerLaunch
from cutline.barrier_runtime.worker.task import host_worker
from cutline.channels.sockets import Address
from cutline.snapshot.errors import RunFailed
from cutline.snapshot.subtask.limits import SubtaskLimits

class Forking:
    def __reduce__(self):
        return fork_and_raise, ()

def fork_and_raise():
    if os.fork() == 0:
        signal.pause()
    raise RuntimeError("no graph today")

nowhere = Address("127.0.0.1", 1, "", "")
built = pickle.dumps(Forking())
limits, level = SubtaskLimits(), logging.INFO
launch = WorkerLaunch("run", "000001", nowhere, bytes(32), 1, built, b"", limits, False, level, False)
try:
    host_worker(launch.encode(), 3)
except RunFailed as error:
    print("heard:", str(error).replace(chr(10), "|"))
"""


def test_last_words_are_heard_although_user_code_left_a_process_behind() -> None:
    """The child holds the pipe of the last words open; the task reads what is there and fails at once."""
    with Script(_TASK, timeout_s=_DEADLINE_S, environment={"PYTHONPATH": str(ROOT)}) as script:
        received = script.read_until("heard:")
        assert "worker 3 left with code 4: RuntimeError: no graph today|Traceback" in received
        assert received.endswith("RuntimeError: no graph today")


#: What a forked worker does before it restores, with the modules that it has to import for that.
_PRELOADED = """
import sys
import pickle

import cutline.barrier_runtime.worker.task

before = frozenset(sys.modules)
print("heavy:", sorted(before & {{"pandas", "pyspark", "ray"}}))
pickle.loads({backend!r})
print("imported:", sorted(frozenset(sys.modules) - before))
"""


def test_a_forked_worker_imports_no_backend(tmp_path: Path) -> None:
    """The task has imported it, because each forked worker would spend 40 ms of a recovery on that."""
    program = _PRELOADED.format(backend=cloudpickle.dumps(FileSystemBackend(str(tmp_path))))
    with Script(program, timeout_s=_DEADLINE_S, environment={"PYTHONPATH": str(ROOT)}) as script:
        assert script.read_until("heavy:").endswith("heavy: []"), "a start of a task would take 0.3 s longer for pandas"
        assert script.read_until("imported:").endswith("imported: []")


#: A daemon forks a task, whose worker starts processes. They ignore signals, and half of them have left their session.
_TREE = """
import logging
import os
import pickle
import signal
import sys
import time

from cutline.barrier_runtime.launch import WorkerLaunch
from cutline.barrier_runtime.worker.task import host_worker
from cutline.channels.sockets import Address
from cutline.snapshot.subtask.limits import SubtaskLimits

CASE = {case!r}
PROCESSES = 4

class Starting:
    def __reduce__(self):
        return start_processes, ()

def stay(out, *, detached, with_child):
    if os.fork():
        return
    for ignored in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
        signal.signal(ignored, signal.SIG_IGN)
    if detached:
        os.setsid()
        if os.fork():
            os._exit(0)
    if with_child:
        stay(out, detached=False, with_child=False)
    signal.alarm(60)  # so that a failing test leaves nothing for long
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)
    os.dup2(null, 2)
    os.write(out, b"%d " % os.getpid())
    while True:
        signal.pause()

def start_processes():
    started, out = os.pipe()
    stay(out, detached=False, with_child=True)
    stay(out, detached=True, with_child=True)
    pids = b""
    while pids.count(b" ") < PROCESSES:
        pids += os.read(started, 4096)
    os.write(1, b"%d %d %s\\n" % (os.getppid(), os.getpid(), pids))
    if CASE == "raises":
        raise RuntimeError("no graph today")
    while True:
        signal.pause()

def run_task():
    limits, nowhere = SubtaskLimits(), Address("127.0.0.1", 1, "", "")
    built = pickle.dumps(Starting())
    launch = WorkerLaunch("run", "000001", nowhere, bytes(32), 1, built, b"", limits, False, logging.INFO, False)
    try:
        host_worker(launch.encode(), 3)
    finally:
        os._exit(0)

def run_daemon(out):
    os.setpgid(0, 0)
    os.dup2(out, 1)
    task = os.fork()
    if not task:
        run_task()
    os.write(1, b"%d\\n" % task)
    while True:
        signal.pause()

def lives(pid):
    try:
        with open(f"/proc/{{pid}}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False

def await_end(pids):
    deadline = time.monotonic() + {deadline!r}
    while any(map(lives, pids)):
        if time.monotonic() > deadline:
            left = [pid for pid in pids if lives(pid)]
            print("left:", left, flush=True)
            for pid in {{*left, *filter(lives, [task, reaper, daemon])}}:
                os.kill(pid, signal.SIGKILL)
            os._exit(1)
        time.sleep(0.01)

lines_in, lines_out = os.pipe()
sys.stdout.flush()
daemon = os.fork()
if not daemon:
    run_daemon(lines_out)
lines = os.fdopen(lines_in)
task = int(lines.readline())
reaper, worker, *processes = map(int, lines.readline().split())
assert len(processes) == PROCESSES
if CASE == "worker":
    os.kill(worker, signal.SIGKILL)
    await_end([worker, *processes])
    same, worker, *processes = map(int, lines.readline().split())
    assert same == reaper and all(map(lives, [task, reaper, worker, *processes]))
if CASE == "daemon":
    os.kill(daemon, signal.SIGKILL)
elif CASE == "group":
    os.killpg(daemon, signal.SIGHUP)
elif CASE != "raises":
    os.kill(task, signal.SIGKILL)
await_end([task, reaper, worker, *processes])
print("left: nothing", flush=True)
if lives(daemon):
    os.kill(daemon, signal.SIGKILL)
os.waitpid(daemon, 0)
"""


@pytest.mark.parametrize("case", ["raises", "worker", "task", "daemon", "group"])
def test_processes_of_user_code_end_with_the_worker(case: str) -> None:
    """The worker raises, is killed and replaced; Spark kills the task, loses its daemon, or ends the whole group."""
    program = _TREE.format(case=case, deadline=_DEADLINE_S)
    with Script(program, timeout_s=2 * _DEADLINE_S, environment={"PYTHONPATH": str(ROOT)}) as script:
        assert script.read_until("left:") == "left: nothing"


_REAPS = """
import os
from cutline.barrier_runtime.worker import task

task._REAP_SECONDS = 0.01
task._set_process_option(task._PR_SET_CHILD_SUBREAPER, 1)
reading, writing = os.pipe()
worker = os.fork()
if not worker:
    for number in range(5):
        if not os.fork():
            if not os.fork():  # an orphan as soon as its parent ends
                os.write(writing, b"x")
                os._exit(number)
            os._exit(0)
        os.wait()
    deadline = task.time.monotonic() + 30
    while True:
        with open(f"/proc/{os.getppid()}/task/{os.getppid()}/children") as children:
            if children.read().split() == [str(os.getpid())] or task.time.monotonic() > deadline:
                break
    os._exit(7 if task.time.monotonic() < deadline else 8)
status = task._watch(worker, os.getppid())
print("left with", os.waitstatus_to_exitcode(status))
"""


def test_orphans_that_end_are_gone_while_the_worker_runs() -> None:
    """A node may leave a process behind for each message; none of them stays as a zombie. The worker's code is kept."""
    with Script(_REAPS, timeout_s=_DEADLINE_S, environment={"PYTHONPATH": str(ROOT)}) as script:
        assert script.read_until("left with").endswith("left with 7")


_DIES = """
import os
import signal

from cutline.barrier_runtime.worker import task
from cutline.snapshot.errors import RunFailed

forks = 0
fork = task._fork

def counting(work):
    global forks
    forks += 1
    return fork(work)

task._fork = counting
task._run_worker = lambda launch, number, reaper: os.kill(os.getpid(), signal.SIGSEGV)
try:
    task._be_reaper(None, 3, os.getppid())
except RunFailed as error:
    print("failed:", forks, error)
"""


def test_a_worker_that_dies_at_once_is_not_started_for_ever() -> None:
    """The stage fails, and says how often the worker died and by which signal."""
    with Script(_DIES, timeout_s=_DEADLINE_S, environment={"PYTHONPATH": str(ROOT)}) as script:
        assert script.read_until("failed:") == "failed: 8 worker 3 died 8 times at once, the last time by SIGSEGV"
