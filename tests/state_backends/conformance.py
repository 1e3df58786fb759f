"""What every backend must do: functions over a backend that holds nothing yet."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from cutline.snapshot.stored.backend import StateBackend

RACERS = 16
PROCESSES = 8
ROUNDS = 30

#: More than two pieces of the least size that S3 takes.
LARGE = bytes(range(253)) * 45_000

#: One process forks the racers before any of them used the backend. Each waits until the pipe is closed, tries
#: every round and prints those that it won, in one write.
RACE = """
import os, pickle, sys
backend = pickle.loads(bytes.fromhex(sys.argv[1]))
read, write = os.pipe()
for racer in range(int(sys.argv[2])):
    if os.fork() == 0:
        os.close(write)
        os.read(read, 1)
        won = [n for n in range(int(sys.argv[3])) if backend.put_if_absent(f"race/{n}", [b"%d" % racer])]
        os.write(1, b"%d: %s\\n" % (racer, " ".join(map(str, won)).encode()))
        os._exit(0)
os.close(write)
for _ in range(int(sys.argv[2])):
    assert os.wait()[1] == 0
"""


def written_once(backend: StateBackend) -> None:
    """The first write stays, whole, in however many buffers it came; a second one is refused and changes nothing."""
    assert backend.put_if_absent("a/b", [b"one", memoryview(b"two"), b"", b"three"])
    assert not backend.put_if_absent("a/b", [b"other"])
    assert not backend.put_if_absent("a/b", [b"onetwothree"])
    assert backend.get("a/b") == b"onetwothree"
    assert backend.put_if_absent("arrow", [memoryview(b"signed").cast("b")])
    assert backend.get("arrow") == b"signed"
    large = bytes(range(256)) * 20_000
    assert backend.put_if_absent("large", [large[:100], large[100:]])
    assert backend.get("large") == large
    assert backend.put_if_absent("empty", [])
    assert not backend.put_if_absent("empty", [])
    assert backend.get("empty") == b""


def written_alone(backend: StateBackend) -> None:
    """A file of one writer is whole, of any size, and is not written a second time, by neither way."""
    for path, content in (("a/small", b"onetwo"), ("a/large", LARGE)):
        assert backend.put_alone(path, [content[:2], memoryview(content)[2:3], b"", content[3:]])
        assert not backend.put_alone(path, [content])
        assert not backend.put_if_absent(path, [b"other"])
        assert backend.get(path) == content
    assert backend.get("a/large", len(LARGE) - 9, 5) == LARGE[-9:-4]
    assert backend.put_if_absent("b", [b"one"])
    assert not backend.put_alone("b", [LARGE])
    assert backend.get("b") == b"one"
    assert backend.files() == ["a/large", "a/small", "b"]


def read_in_pieces(backend: StateBackend) -> None:
    """Any stretch of a file alone; what ends, or begins, behind the file's end has fewer bytes, or none."""
    assert backend.put_if_absent("a", [b"01234", b"56789"])
    stretches = [(0, None), (3, None), (0, 4), (3, 4), (9, 1), (8, 5), (10, 1), (10, None), (20, 5), (4, 0)]
    for offset, size in stretches:
        expected = b"0123456789"[offset : None if size is None else offset + size]
        assert backend.get("a", offset, size) == expected, (offset, size)
    with pytest.raises(FileNotFoundError, match="nothing"):
        backend.get("nothing", 3, 4)


def missing_is_an_error(backend: StateBackend) -> None:
    """What is not there is never empty: FileNotFoundError, naming path and backend; deleting it is nothing."""
    assert not backend.exists("a/b")
    with pytest.raises(FileNotFoundError, match="a/b"):
        backend.get("a/b")
    backend.delete("a/b")
    backend.delete()
    backend.put_if_absent("a", [b"x"])
    assert not backend.exists("a/b")
    backend.put_if_absent("c/d", [b"x"])
    backend.delete("c/d")
    assert not backend.exists("c/d")
    assert backend.put_if_absent("c/d", [b"y"])
    backend.put_if_absent("e", [b"x"])
    backend.delete("missing", "e", "c/missing", "c/d")
    assert backend.files() == ["a"]


def folders_are_no_files(backend: StateBackend) -> None:
    """A name that only a folder has is missing, is not read, and is not removed with what it holds."""
    assert backend.put_if_absent("a/b/c", [b"x"])
    for folder in ("a", "a/b"):
        assert not backend.exists(folder)
        with pytest.raises(FileNotFoundError, match=folder):
            backend.get(folder)
        backend.delete(folder)
    assert backend.files() == ["a/b/c"]


def probed(backend: StateBackend) -> None:
    """A probe leaves nothing in the folder, before its first file and after."""
    backend.probe("run/x", "token")
    assert (backend.files("run"), backend.leftovers("run")) == ([], [])
    assert backend.put_if_absent("run/x/a", [b"x"])
    backend.probe("run/x", "token")
    assert (backend.files("run"), backend.leftovers("run")) == (["run/x/a"], [])


def listed_by_folder(backend: StateBackend) -> None:
    """Listing is by whole folder names, ascending, at any depth; of a missing folder it is empty."""
    paths = ["a/1", "a/10", "a/2/x", "ab/1", "b", "ü/é ☃/%41", "w+/x", "long/" + "n" * 200]
    for path in paths:
        assert backend.put_if_absent(path, [path.encode()])
    assert backend.files() == sorted(paths)
    assert backend.files("a") == ["a/1", "a/10", "a/2/x"]
    assert backend.files("a/2") == ["a/2/x"]
    assert backend.files("nothing") == []
    assert backend.files("ü") == ["ü/é ☃/%41"]
    assert [backend.get(path).decode() for path in paths] == paths
    assert backend.leftovers() == []


def bad_paths_are_refused(backend: StateBackend) -> None:
    """No path leads out of the root or means another one."""
    for path in ("", "/", "/a", "a/", "a//b", "..", "../a", "a/../b", "./a", "a/.", "a\0b"):
        for call in (backend.get, backend.exists, backend.delete):
            with pytest.raises(ValueError, match="relative path"):
                call(path)
        with pytest.raises(ValueError, match="relative path"):
            backend.put_if_absent(path, [b""])
    assert backend.files() == []


def threads_race(backend: StateBackend) -> None:
    """Of many threads that write one path at one time exactly one wins, and its bytes are there."""
    for number in range(5):
        path = f"race/{number}"
        barrier = threading.Barrier(RACERS)
        won: list[int] = []

        def race(racer: int, path: str = path, barrier: threading.Barrier = barrier, won: list[int] = won) -> None:
            barrier.wait(timeout=30)
            if backend.put_if_absent(path, [b"%d" % racer]):
                won.append(racer)

        threads = [threading.Thread(target=race, args=(racer,)) for racer in range(RACERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=60)
        assert len(won) == 1, won
        assert backend.get(path) == b"%d" % won[0]


def processes_race(backend: StateBackend) -> None:
    """The same for processes, which get the backend pickled."""
    command = [sys.executable, "-c", RACE, pickle.dumps(backend).hex(), str(PROCESSES), str(ROUNDS)]
    lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=100).stdout.splitlines()
    wins = {racer: [int(number) for number in won.split()] for racer, won in (line.split(":") for line in lines)}
    assert len(wins) == PROCESSES
    assert sorted(number for won in wins.values() for number in won) == list(range(ROUNDS))
    for racer, won in wins.items():
        assert all(backend.get(f"race/{number}") == racer.encode() for number in won)


def names_itself(backend: StateBackend) -> None:
    """Errors say which store it was, and never a credential."""
    assert str(backend)
    for shown in (str(backend), repr(backend)):
        assert "secret" not in shown
    with pytest.raises(FileNotFoundError) as missing:
        backend.get("nothing/here")
    assert str(backend) in str(missing.value)


#: All of them; those of the second need a store that other processes see.
FOR_ALL: list[Callable[[StateBackend], None]] = [
    written_once,
    written_alone,
    read_in_pieces,
    missing_is_an_error,
    folders_are_no_files,
    probed,
    listed_by_folder,
    bad_paths_are_refused,
    threads_race,
    names_itself,
]
FOR_SHARED: list[Callable[[StateBackend], None]] = [processes_race]
