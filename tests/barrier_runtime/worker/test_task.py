"""The barrier task around a worker: what it hears when the worker breaks."""

from __future__ import annotations

from pathlib import Path

import cloudpickle

from state_backends import FileSystemBackend
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

from barrier_runtime.launch import WorkerLaunch
from barrier_runtime.worker.task import host_worker
from channels.sockets import Address
from snapshot.errors import RunFailed
from snapshot.subtask.limits import SubtaskLimits

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
launch = WorkerLaunch("run", "000001", nowhere, bytes(32), 1, built, b"", limits, False, "", level, False)
try:
    host_worker(launch.encode(), 3)
except RunFailed as error:
    print("heard:", str(error).replace(chr(10), "|"))
"""


def test_last_words_are_heard_although_user_code_left_a_process_behind() -> None:
    """The child that holds the pipe of the last words open lives on; the task reads what is there and fails at once."""
    with Script(_TASK, timeout_s=_DEADLINE_S, environment={"PYTHONPATH": str(ROOT)}) as script:
        received = script.read_until("heard:")
        assert "worker 3 left with code 4: RuntimeError: no graph today|Traceback" in received
        assert received.endswith("RuntimeError: no graph today")


#: What a forked worker does before it restores, with the modules that it has to import for that.
_PRELOADED = """
import sys
import pickle

import barrier_runtime.worker.task

before = frozenset(sys.modules)
pickle.loads({backend!r})
print("imported:", sorted(frozenset(sys.modules) - before))
"""


def test_a_forked_worker_imports_no_backend(tmp_path: Path) -> None:
    """The task has imported it, because each forked worker would spend 40 ms of a recovery on that."""
    program = _PRELOADED.format(backend=cloudpickle.dumps(FileSystemBackend(str(tmp_path))))
    with Script(program, timeout_s=_DEADLINE_S, environment={"PYTHONPATH": str(ROOT)}) as script:
        assert script.read_until("imported:").endswith("imported: []")
