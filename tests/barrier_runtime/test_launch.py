"""The launch of a worker: what is wrong with the executors is said by name."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest

from cutline.barrier_runtime.launch import WorkerLaunch
from cutline.channels.sockets import Address
from cutline.snapshot.errors import GraphError
from cutline.snapshot.subtask.limits import SubtaskLimits

_LAUNCH = WorkerLaunch(
    "run", "000001", Address("127.0.0.1", 1, "", ""), bytes(32), 1, b"", b"", SubtaskLimits(), False, 0, False
)


@pytest.mark.parametrize(
    ("compiled", "text"),
    [
        (b"cno_such_module\nNode\n.", "ModuleNotFoundError: No module named 'no_such_module'"),
        (b"cpickle\nNoSuchNode\n.", "AttributeError: "),
    ],
)
def test_a_graph_whose_modules_are_missing_is_refused_by_name(compiled: bytes, text: str) -> None:
    """The error says what is missing, and how a module gets to the executors."""
    with pytest.raises(GraphError, match=rf"cannot be unpickled on the executors \({text}.*addPyFile"):
        replace(_LAUNCH, compiled=compiled).open_graph()


def test_a_launch_is_encoded_whole() -> None:
    """A decoded launch equals the encoded one, and shows no secret."""
    launch = replace(_LAUNCH, secret=b"hidden" * 6, compiled=pickle.dumps("graph"))
    assert WorkerLaunch.decode(launch.encode()) == launch
    assert repr(launch) == "WorkerLaunch('run', 000001)"
