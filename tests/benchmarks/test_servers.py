"""The servers of tests and benchmarks leave nothing, whatever happens to those who start them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from benchmarks.live import wait_for
from benchmarks.process_table import is_gone
from benchmarks.servers import PostgreSQLServer, RedisServer, Server
from tests.leaks import LeakCheck

_STARTER = """
import sys
from benchmarks import servers
server = getattr(servers, sys.argv[1])()
server.start()
print(server._running.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("make", [partial(PostgreSQLServer, "fsync=off"), RedisServer], ids=["postgresql", "redis"])
def test_a_server_leaves_nothing(make: Callable[[], Server], leak_check: LeakCheck) -> None:
    """Whether it runs, is paused, or was killed: neither processes nor files nor shared memory are left."""
    with make() as server:
        folder = server.folder
        server.kill()
        server.start()
        server.pause()
    assert not folder.exists()
    with make() as server:
        process = server._running.pid
        server.kill()
    assert not server.folder.exists()
    creators = [int(line.split()[4]) for line in Path("/proc/sysvipc/shm").read_text().splitlines()[1:]]
    assert process not in creators


@pytest.mark.parametrize("server_class", [PostgreSQLServer, RedisServer])
def test_a_server_ends_with_its_starter(server_class: type[PostgreSQLServer | RedisServer]) -> None:
    """A process that is killed takes its server along."""
    command = [sys.executable, "-c", _STARTER, server_class.__name__]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        process.kill()
    wait_for("the end of the server", lambda: is_gone(pid))


def test_a_server_does_not_run_as_root() -> None:
    """PostgreSQL refuses to run as root, and Redis should not."""
    with RedisServer() as server:
        owner = os.stat(f"/proc/{server._running.pid}").st_uid
        assert owner != 0
        assert owner == server.folder.stat().st_uid
