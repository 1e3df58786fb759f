"""The copy of the checkout in which mutants run, and the processes that are forked to run tests in it.

The parent has imported the libraries. A fork imports our modules, because one of them is a mutant.
Programs that tests start find the copy by PYTHONPATH.
"""

from __future__ import annotations

import ast
import contextlib
import gc
import importlib
import io
import itertools
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO, TypeAlias

import psutil

from tests.source_files import ROOT, parse, python_files

#: the packages that are mutated
MUTATED = ("snapshot", "channels", "state_backends", "barrier_runtime")
_OURS = ("cutline", *MUTATED, "demos", "benchmarks", "tests")

#: one line that a fork sends to its parent
Message: TypeAlias = dict[str, Any]


class Tree:
    """A copy of all files that git knows or would know, with one file mutated at a time."""

    def __init__(self) -> None:
        #: short, because paths of Unix sockets below the folder have a limit of 107 bytes
        self.folder = Path(tempfile.mkdtemp(prefix="cm"))
        self.root = self.folder / "tree"
        self._times = itertools.count(int(time.time()) + 1)
        listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        for name in filter(None, subprocess.check_output(listing, cwd=ROOT, text=True).split("\0")):
            if (ROOT / name).is_file() or (ROOT / name).is_symlink():
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.root / name, follow_symlinks=False)

    def remove(self) -> None:
        """Delete the copy."""
        shutil.rmtree(self.folder, ignore_errors=True)

    @contextlib.contextmanager
    def mutated(self, file: str, code: str) -> Iterator[None]:
        """Replace one file until the block ends."""
        try:
            self._write(file, code)
            yield
        finally:
            self._write(file, (ROOT / file).read_text())

    def type_error(self, file: str) -> str | None:
        """Return the first error that the type checker finds in a file, or None."""
        # A checkout that `make check` has seen lends its cache, because the first check of all files takes a minute.
        cache = self.folder / "mypy"
        if not cache.exists() and (ROOT / ".mypy_cache").exists():
            shutil.copytree(ROOT / ".mypy_cache", cache)
        command = [sys.executable, "-m", "mypy", "--no-error-summary", "--cache-dir", str(cache), file]
        checked = subprocess.run(command, cwd=self.root, capture_output=True, text=True, check=False)
        if checked.returncode > 1:
            raise RuntimeError(f"mypy cannot check {file}: {checked.stdout}{checked.stderr}")
        return checked.stdout.splitlines()[0] if checked.returncode else None

    def _write(self, file: str, code: str) -> None:
        path = self.root / file
        path.write_text(code)
        # A new time for each version, because compiled files are recognised by size and whole seconds.
        moment = next(self._times)
        os.utime(path, (moment, moment))


def import_libraries() -> None:
    """Import what our modules import from elsewhere, because a fork does not need to import that again."""
    found = {"anyio.pytest_plugin", "pytest_timeout", "_hypothesis_pytestplugin", "xdist.plugin", "xdist.looponfail"}
    for path in python_files(*_OURS):
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.Import):
                found.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in sorted(found):
            if name.partition(".")[0] not in (*_OURS, "antigravity", "this", "__main__"):
                with contextlib.suppress(ImportError):
                    importlib.import_module(name)
    # Forks collect garbage often, and nothing that the parent has made becomes garbage in them.
    gc.collect()
    gc.freeze()


class Fork:
    """A process group that runs `work` in the copy, and sends messages."""

    def __init__(self, tree: Tree, work: Callable[[Callable[[Message], None]], None]) -> None:
        reading, writing = os.pipe()
        self._scratch = Path(tempfile.mkdtemp(prefix="s", dir=tree.folder))
        sys.stdout.flush()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(reading)
            with open(writing, "w", buffering=1) as messages:
                _run(tree, self._scratch, work, messages)
        os.close(writing)
        self._reading = reading
        self._unread = b""

    def receive(self, seconds: float) -> Message | None:
        """Return the next message, or `{}` at the end, or None when none came for `seconds`."""
        deadline_at = time.monotonic() + seconds
        while b"\n" not in self._unread:
            if not select.select([self._reading], [], [], max(0.0, deadline_at - time.monotonic()))[0]:
                return None
            chunk = os.read(self._reading, io.DEFAULT_BUFFER_SIZE)
            if not chunk:
                return {}
            self._unread += chunk
        line, _, self._unread = self._unread.partition(b"\n")
        message: Message = json.loads(line)
        return message

    def end(self) -> None:
        """Kill what the fork and its descendants still run, and remove their files."""
        with contextlib.suppress(psutil.NoSuchProcess):
            for process in psutil.Process(self._pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._reading)
        shutil.rmtree(self._scratch, ignore_errors=True)


def _run(tree: Tree, scratch: Path, work: Callable[[Callable[[Message], None]], None], messages: TextIO) -> None:
    """Run `work` in the child, and end the child."""
    status = 1
    try:
        os.setsid()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        log = os.open(tree.folder / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for descriptor in (1, 2):
            os.dup2(log, descriptor)
        os.chdir(tree.root)
        tempfile.tempdir = str(scratch)
        os.environ |= {"TMPDIR": str(scratch), "PYTHONPATH": str(tree.root), "CUTLINE_EXAMPLES": "0.2"}
        sys.path[:] = [str(tree.root), *(each for each in sys.path if each not in ("", str(ROOT)))]
        for name in [name for name in sys.modules if name.partition(".")[0] in _OURS]:
            del sys.modules[name]
        sys.path_importer_cache.clear()
        importlib.invalidate_caches()
        work(lambda message: print(json.dumps(message), file=messages))
        status = 0
    finally:
        messages.flush()
        os._exit(status)
