"""PostgreSQL and Redis servers of a test or a benchmark: started, stopped, killed, paused, and started again.

Each server has its data in a folder of its own, and keeps its port of 127.0.0.1. Servers do not run as root. They end
with the thread that started them.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import psycopg
import redis

from benchmarks.process_table import is_gone, process_table

#: seconds until a server that does not start, or does not end, is an error
_SECONDS_MAX: Final = 30.0
_POLL_SECONDS: Final = 0.05

#: users that a server may run as where this process is root
_USERS: Final = ("postgres", "nobody")


class Server(ABC):
    """A server with data that outlive it. Used as a context manager, which starts it, and removes all in the end.

    Parameters
    ----------
    name : str
        Beginning of the name of its folder.
    """

    #: signal that ends the server at once, without waiting for its clients
    _end_signal = signal.SIGTERM

    def __init__(self, name: str) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._is_killed = False
        self.folder = Path(tempfile.mkdtemp(prefix=f"{name}-"))
        self._user = next((user for user in _USERS if _exists(user)), None) if os.getuid() == 0 else None
        if self._user is not None:
            shutil.chown(self.folder, self._user)
            _let_through(self.folder.parent)
        self.port = _free_port()
        self.password = secrets.token_hex(8)

    @property
    @abstractmethod
    def url(self) -> str:
        """Where clients find it, with user and password."""

    @abstractmethod
    def _command(self) -> list[str]:
        """Return the command that runs the server in the foreground."""

    @abstractmethod
    def _ping(self) -> None:
        """Connect and ask. Raises an error of the client while the server is not ready."""

    def start(self) -> None:
        """Start the server, and wait until it answers.

        Raises
        ------
        RuntimeError
            if it ends, or does not answer. The text has its log.
        """
        with open(self._log, "ab") as log:
            command = self._as_user(["setpriv", "--pdeathsig", signal.Signals(self._end_signal).name], self._command())
            self._process = subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        self._await(self._answers, "answer")
        self._is_killed = False

    def stop(self) -> None:
        """End the server as its administrator would, without waiting for its clients. It must not be paused."""
        self._running.send_signal(self._end_signal)
        self._running.wait(_SECONDS_MAX)

    def kill(self) -> None:
        """Kill the server and its processes, as a crash of the host would end them (SIGKILL)."""
        processes = self._paused()
        _send(processes, signal.SIGKILL)
        self._running.wait(_SECONDS_MAX)
        self._await(lambda: all(map(is_gone, processes)), "end")
        self._is_killed = True

    def pause(self) -> None:
        """Freeze the server and its processes: connections stay open, and nothing answers (SIGSTOP)."""
        self._paused()

    def resume(self) -> None:
        """Let a paused server go on (SIGCONT)."""
        _send([*self._children(), self._running.pid], signal.SIGCONT)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._remove()

    def _remove(self) -> None:
        if self._is_killed:
            self.start()  # because a killed PostgreSQL has left shared memory, which its next start removes
        if self._process is not None and self._process.poll() is None:
            self.resume()
            self.stop()
        shutil.rmtree(self.folder)

    def _run(self, *command: str) -> None:
        """Run a command to its end, as the server's user."""
        subprocess.run(
            self._as_user(["setpriv"], list(command)), cwd=self.folder, check=True, stdout=subprocess.DEVNULL
        )

    def _as_user(self, setpriv: list[str], command: list[str]) -> list[str]:
        if self._user is not None:
            setpriv = [
                *setpriv,
                f"--reuid={self._user}",
                f"--regid={pwd.getpwnam(self._user).pw_gid}",
                "--clear-groups",
            ]
        return [*setpriv, *command] if len(setpriv) > 1 else command

    @property
    def _log(self) -> Path:
        return self.folder / "log"

    @property
    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "the server was not started"
        return self._process

    def _paused(self) -> list[int]:
        """Freeze all processes, the first one before its children are listed. Return their ids."""
        os.kill(self._running.pid, signal.SIGSTOP)
        self._await(lambda: self._running.pid in _frozen(), "stop")
        children = self._children()
        _send(children, signal.SIGSTOP)
        return [self._running.pid, *children]

    def _children(self) -> list[int]:
        return [each.pid for each in process_table() if each.parent == self._running.pid]

    def _answers(self) -> bool:
        if self._running.poll() is not None:
            raise RuntimeError(f"{type(self).__name__} has ended:\n{self._log.read_text(errors='replace')}")
        try:
            self._ping()
        except (psycopg.OperationalError, redis.RedisError):
            return False
        return True

    def _await(self, condition: Callable[[], bool], deed: str) -> None:
        deadline = time.monotonic() + _SECONDS_MAX
        while not condition():
            if time.monotonic() > deadline:
                raise RuntimeError(f"{type(self).__name__} does not {deed}:\n{self._log.read_text(errors='replace')}")
            time.sleep(_POLL_SECONDS)


class PostgreSQLServer(Server):
    """A PostgreSQL server with one user, *cutline*, and the database *postgres*.

    Parameters
    ----------
    *settings : str
        ``name=value`` of its configuration.
    """

    _end_signal = signal.SIGINT  # a fast shutdown

    def __init__(self, *settings: str) -> None:
        super().__init__("postgresql")
        self._settings = settings
        self._data = self.folder / "data"

    @property
    def url(self) -> str:
        """Where clients find it, with user and password."""
        return f"postgresql://cutline:{self.password}@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        """Start the server, and wait until it answers. The first start makes its data."""
        if not self._data.exists():
            secret = self.folder / "password"
            secret.write_text(self.password)
            where = ("-D", str(self._data), "--username=cutline", f"--pwfile={secret}", "--auth=scram-sha-256")
            self._run(_program("initdb"), *where, "--encoding=UTF8", "--locale=C", "--no-sync")
        super().start()

    def _command(self) -> list[str]:
        settings = (f"port={self.port}", "listen_addresses=127.0.0.1", "unix_socket_directories=", *self._settings)
        return [_program("postgres"), "-D", str(self._data), *(f"--{setting}" for setting in settings)]

    def _ping(self) -> None:
        psycopg.connect(self.url, connect_timeout=2).close()


class RedisServer(Server):
    """A Redis server that has each write on disk before it answers.

    Parameters
    ----------
    *settings : str
        ``name=value`` of its configuration.
    """

    def __init__(self, *settings: str) -> None:
        super().__init__("redis")
        self._settings = settings

    @property
    def url(self) -> str:
        """Where clients find it, with the password."""
        return f"redis://:{self.password}@127.0.0.1:{self.port}/0"

    def _command(self) -> list[str]:
        settings = (
            f"port={self.port}",
            "bind=127.0.0.1",
            f"dir={self.folder}",
            f"requirepass={self.password}",
            "save=",
        )
        durable = ("appendonly=yes", "appendfsync=always")
        pairs = (each.partition("=") for each in (*settings, *durable, *self._settings))
        return [_program("redis-server"), *(word for name, _, value in pairs for word in (f"--{name}", value))]

    def _ping(self) -> None:
        with redis.Redis.from_url(self.url, socket_timeout=2) as client:
            client.ping()


def _program(name: str) -> str:
    """Return the path of a server's program. Debian keeps PostgreSQL's programs apart, by version.

    Raises
    ------
    FileNotFoundError
        if it is not installed.
    """
    found = shutil.which(name)
    installed = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda each: int(each.parts[4]))
    if found is None and not installed:
        raise FileNotFoundError(f"{name} is not installed: run scripts/setup (Debian: postgresql, redis-server)")
    return found or str(installed[-1])


def _send(processes: list[int], number: signal.Signals) -> None:
    for pid in processes:
        with suppress(ProcessLookupError):  # a server ends processes of its own too
            os.kill(pid, number)


def _frozen() -> list[int]:
    return [each.pid for each in process_table() if each.state == "T"]


def _exists(user: str) -> bool:
    return any(entry.pw_name == user for entry in pwd.getpwall())


def _let_through(folder: Path) -> None:
    """Let other users pass a folder of ours on their way to one of theirs, without listing it."""
    found = folder.stat()
    if found.st_uid == os.getuid():
        folder.chmod(stat.S_IMODE(found.st_mode) | stat.S_IXGRP | stat.S_IXOTH)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
