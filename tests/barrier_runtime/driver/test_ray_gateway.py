"""The gateway to Ray: what follows the death of an embedded Ray. Ray is a double; its processes are processes."""

from __future__ import annotations

import logging
import subprocess
import threading
import time
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from ray._private.ray_constants import OBJECT_STORE_MINIMUM_MEMORY_BYTES
from ray.exceptions import ActorDiedError, ActorUnavailableError, GetTimeoutError

from cutline.barrier_runtime.driver import ray_gateway
from cutline.barrier_runtime.driver.ray_gateway import ActorLostError, RemoteActor, end_ray, ensure_ray

_DEADLINE_S = 10.0


class Counting:
    """An actor that counts its calls."""

    def __init__(self, first: int) -> None:
        self.count = first

    def count_one(self) -> int:
        """Return the number of the call."""
        self.count += 1
        return self.count

    def fail(self) -> None:
        """Raise an error of the method."""
        raise FileNotFoundError("no such file")


class Handle:
    """Ray's handle of an actor: a call is a function, which `ray.get` calls."""

    def __init__(self, instance: Any) -> None:
        self._instance = instance

    def __getattr__(self, name: str) -> Any:
        return types.SimpleNamespace(remote=lambda *arguments: lambda: getattr(self._instance, name)(*arguments))


class FakeRay:
    """A Ray whose vital processes sleep, and whose actors are objects of this process."""

    def __init__(self) -> None:
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        #: settings of the last start
        self.settings: dict[str, Any] = {}
        self.starts = self.shutdowns = 0
        #: how long a start takes
        self.start_seconds = 0.0
        #: threads that started a Ray
        self.starters: list[threading.Thread] = []
        #: errors of the next starts and the next calls, which may be a function that raises
        self.start_errors: list[Exception] = []
        self.call_errors: list[Callable[[], None]] = []
        self._is_connected = False

    @property
    def _global_node(self) -> Any:
        processes = {name: [types.SimpleNamespace(process=each)] for name, each in self.processes.items()}
        return types.SimpleNamespace(all_processes=processes)

    def is_initialized(self) -> bool:
        return self._is_connected

    def init(self, **settings: Any) -> None:
        if self.start_errors:
            raise self.start_errors.pop(0)
        self.settings = settings
        threading.Event().wait(self.start_seconds)
        self.starts += 1
        self.starters.append(threading.current_thread())
        if settings["address"] == "local":
            self.processes = {name: subprocess.Popen(["sleep", "100"]) for name in ("gcs_server", "raylet")}
        self._is_connected = True

    def shutdown(self) -> None:
        self.shutdowns += self._is_connected
        self._is_connected = False
        for process in self.processes.values():
            process.kill()
            process.wait()

    def get_runtime_context(self) -> Any:
        return types.SimpleNamespace(get_node_id=lambda: "0" * 56)

    def remote(self, kind: type) -> Any:
        return types.SimpleNamespace(
            options=lambda **_: types.SimpleNamespace(remote=lambda *arguments: Handle(kind(*arguments)))
        )

    def get(self, call: Callable[[], Any], timeout: float) -> Any:
        assert self._is_connected, "Ray would start another Ray"
        if self.call_errors:
            self.call_errors.pop(0)()
        return call()

    def kill(self, handle: Handle, *, no_restart: bool) -> None:
        assert self._is_connected, "Ray would start another Ray"


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRay]:
    """A double in the place of Ray, and a gateway that has not started Ray."""
    ray = FakeRay()
    monkeypatch.setattr(ray_gateway, "ray", ray)
    monkeypatch.setattr(ray_gateway, "ray_worker", ray)
    monkeypatch.setattr(ray_gateway, "log_ray_messages", lambda **_: None)
    monkeypatch.setattr(ray_gateway, "_embedded", ray_gateway._EmbeddedRay())
    monkeypatch.setattr(ray_gateway, "_WATCH_SECONDS", 0.01)
    monkeypatch.setattr(ray_gateway, "_SLICE_SECONDS", 0.02)
    yield ray
    ray.shutdown()
    for thread in threading.enumerate():
        if thread.name == "cutline-ray":
            thread.join(_DEADLINE_S)


def test_a_call_returns_its_result_or_its_error(fake: FakeRay) -> None:
    """The error of a method is raised as it is."""
    ensure_ray(None)
    actor = RemoteActor(Counting, 5, restarts=True)
    assert (actor.call("count_one"), actor.call("count_one")) == (6, 7)
    with pytest.raises(FileNotFoundError):
        actor.call("fail")


@pytest.mark.parametrize("victim", ["gcs_server", "raylet"])
def test_an_actor_is_made_again_after_the_death_of_its_ray(
    fake: FakeRay, caplog: pytest.LogCaptureFixture, victim: str
) -> None:
    """Each time: the dead Ray is shut down, another is started, and the call reaches a new instance."""
    ensure_ray(None)
    actor = RemoteActor(Counting, 0, restarts=True)
    for deaths in (1, 2, 3):
        assert actor.call("count_one") == 1
        fake.processes[victim].kill()
        fake.processes[victim].wait()
        assert actor.call("count_one") == 1, "a call reached the old instance"
        actor.handle = None
        assert (fake.starts, fake.shutdowns) == (deaths + 1, deaths)
    assert [record.getMessage() for record in caplog.records] == [
        f"Ray's {victim} died; Ray is started again, and messages keep flowing meanwhile"
    ] * 3


def test_a_call_without_an_answer_is_repeated(fake: FakeRay, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that is pending when Ray dies does not hold up the shutdown, and has its whole time afterwards."""
    monkeypatch.setattr(ray_gateway, "ANSWER_SECONDS_MAX", 0.3)
    ensure_ray(None)
    fake.start_seconds = 0.5
    actor = RemoteActor(Counting, 0, restarts=True)

    def die_silently() -> None:
        fake.processes["gcs_server"].kill()
        fake.processes["gcs_server"].wait()
        raise GetTimeoutError

    def time_out() -> None:
        raise GetTimeoutError

    fake.call_errors = [die_silently, time_out]
    assert actor.call("count_one") == 1
    assert fake.starts == 2


def test_an_actor_may_be_lost_before_its_raylet_dies(fake: FakeRay) -> None:
    """A raylet reports that its actors are dead, and ends afterwards."""
    ensure_ray(None)
    actor = RemoteActor(Counting, 0, restarts=True)

    def report_death() -> None:
        threading.Timer(0.1, fake.processes["raylet"].kill).start()
        raise ActorDiedError

    fake.call_errors = [report_death]
    assert actor.call("count_one") == 1
    assert fake.starts == 2


def unavailable() -> None:
    """Raise what Ray raises while it restarts an actor."""
    raise ActorUnavailableError("restarting", b"0" * 16)


def dead() -> None:
    """Raise what Ray raises of an actor that it does not restart."""
    raise ActorDiedError


def test_an_instance_that_ray_restarts_is_awaited(fake: FakeRay) -> None:
    """Ray itself lives, and is not started again. An actor that does not restart is lost."""
    ensure_ray(None)
    fake.call_errors = [unavailable, unavailable]
    assert RemoteActor(Counting, 0, restarts=True).call("count_one") == 1
    fake.call_errors = [unavailable]
    with pytest.raises(ActorLostError):
        RemoteActor(Counting, 0, restarts=False).call("count_one")
    assert (fake.starts, fake.shutdowns) == (1, 0)


def test_a_dead_actor_is_lost(fake: FakeRay, monkeypatch: pytest.MonkeyPatch) -> None:
    """At once if it was ended here, else after the time in which a raylet would die."""
    monkeypatch.setattr(ray_gateway, "_RAYLET_END_SECONDS_MAX", 0.1)
    ensure_ray(None)
    actor = RemoteActor(Counting, 0, restarts=True)
    assert actor.call("count_one") == 1
    fake.call_errors = [dead]
    with pytest.raises(ActorLostError):
        actor.call("count_one")
    monkeypatch.setattr(ray_gateway, "_RAYLET_END_SECONDS_MAX", 1000.0)
    actor.kill(restart=False)
    fake.call_errors = [dead]
    began = time.monotonic()
    with pytest.raises(ActorLostError):
        actor.call("count_one")
    assert time.monotonic() - began < _DEADLINE_S


def test_a_call_has_a_deadline(fake: FakeRay, monkeypatch: pytest.MonkeyPatch) -> None:
    """An actor that hangs in a living Ray is an error, and no reason to start Ray again."""
    monkeypatch.setattr(ray_gateway, "ANSWER_SECONDS_MAX", 0.1)

    def hang() -> None:
        threading.Event().wait(0.03)
        raise GetTimeoutError

    ensure_ray(None)
    fake.call_errors = [hang] * 100
    with pytest.raises(TimeoutError, match=r"no answer in 0\.1 s"):
        RemoteActor(Counting, 0, restarts=True).call("count_one")
    assert (fake.starts, fake.shutdowns) == (1, 0)


def test_an_actor_that_cannot_restart_is_lost_with_its_ray(fake: FakeRay) -> None:
    """Ray is shut down, so that it does not end this process, and is not started for nobody."""
    ensure_ray(None)
    actor = RemoteActor(Counting, 0, restarts=False)
    assert actor.call("count_one") == 1
    fake.processes["gcs_server"].kill()
    fake.processes["gcs_server"].wait()
    with pytest.raises(ActorLostError):
        actor.call("count_one")
    assert (fake.starts, fake.shutdowns) == (1, 1)
    ensure_ray(None)
    with pytest.raises(ActorLostError, match="died with the embedded Ray"):
        actor.call("count_one")


def test_a_ray_that_the_program_has_left_is_not_started_again(fake: FakeRay) -> None:
    """Neither a call nor the end of an actor starts another Ray; a new submission does."""
    ensure_ray(None)
    actor = RemoteActor(Counting, 0, restarts=True)
    assert actor.call("count_one") == 1
    fake.shutdown()
    with pytest.raises(ActorLostError, match="has left the Ray"):
        actor.call("count_one")
    actor.kill(restart=False)
    assert fake.starts == 1
    ensure_ray(None)
    assert RemoteActor(Counting, 0, restarts=True).call("count_one") == 1
    assert fake.starts == 2


def test_nothing_is_called_while_the_process_ends(fake: FakeRay) -> None:
    """The functions at exit run in turn: ours refuses calls, then Ray's shuts Ray down. No Ray is started then."""
    ensure_ray(None)
    actor = RemoteActor(Counting, 0, restarts=True)
    assert actor.call("count_one") == 1
    ray_gateway._embedded.refuse("the process ends")
    fake.processes["raylet"].kill()
    with pytest.raises(ActorLostError, match="the process ends"):
        actor.call("count_one")
    for thread in threading.enumerate():
        if thread.name == "cutline-ray":
            thread.join(_DEADLINE_S)
    assert (fake.starts, fake.shutdowns) == (1, 0)


def test_a_ray_that_cannot_be_started_again_ends_its_actors(fake: FakeRay) -> None:
    """The error names the cause, and the driver lives on."""
    ensure_ray(None)
    actor = RemoteActor(Counting, 0, restarts=True)
    assert actor.call("count_one") == 1
    fake.start_errors = [OSError("no space")] * ray_gateway.RAY_STARTS_MAX
    fake.processes["gcs_server"].kill()
    fake.processes["gcs_server"].wait()
    with pytest.raises(ActorLostError, match="could not be started again: no space"):
        actor.call("count_one")
    ensure_ray(None)
    assert actor.call("count_one") == 1


def test_a_call_that_ray_blocks_does_not_hold_up_the_shutdown(fake: FakeRay, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls in progress are awaited, for a bounded time, because Ray would end the process a minute later."""
    monkeypatch.setattr(ray_gateway, "_DRAIN_SECONDS_MAX", 0.2)
    ensure_ray(None)
    began, released = threading.Event(), threading.Event()

    def block() -> None:
        began.set()
        released.wait(_DEADLINE_S)

    blocked, free = (RemoteActor(Counting, 0, restarts=True) for _ in range(2))
    fake.call_errors = [block]
    results: list[int] = []
    caller = threading.Thread(target=lambda: results.append(blocked.call("count_one")))
    caller.start()
    assert began.wait(_DEADLINE_S)
    killed_at = time.monotonic()
    fake.processes["gcs_server"].kill()
    fake.processes["gcs_server"].wait()
    assert free.call("count_one") == 1
    assert time.monotonic() - killed_at > 0.2 and fake.starts == 2
    released.set()
    caller.join(_DEADLINE_S)
    assert results == [1]


def test_ray_is_started_by_a_thread_that_lives(fake: FakeRay) -> None:
    """Linux ends Ray's processes with the thread that started them. An error of the start reaches the caller."""
    fake.start_errors = [OSError("no space")] * ray_gateway.RAY_STARTS_MAX
    errors: list[Exception] = []

    def submit() -> None:
        try:
            ensure_ray(None)
        except OSError as error:
            errors.append(error)

    for _ in range(2):
        thread = threading.Thread(target=submit)
        thread.start()
        thread.join(_DEADLINE_S)
    assert [str(error) for error in errors] == ["no space"]
    [starter] = fake.starters
    assert starter.is_alive() and starter is not thread


def test_an_embedded_ray_is_small_and_silent(fake: FakeRay) -> None:
    """One CPU, an object store of the smallest size, no dashboard, and no lines of Ray's own."""
    ensure_ray(None)
    store_bytes = fake.settings.pop("object_store_memory")
    assert OBJECT_STORE_MINIMUM_MEMORY_BYTES <= store_bytes <= 80 * 1024 * 1024
    assert fake.settings == {
        "address": "local",
        "num_cpus": 1,
        "include_dashboard": False,
        "logging_level": logging.WARNING,
        "log_to_driver": False,
    }


def test_a_ray_of_the_user_is_never_shut_down(fake: FakeRay) -> None:
    """Neither the Ray that the user has started, nor the Ray at an address, is ended or replaced."""
    fake.init(address="local")
    ensure_ray(None)
    end_ray()
    fake.processes["gcs_server"].kill()
    assert RemoteActor(Counting, 0, restarts=True).call("count_one") == 1
    fake.shutdown()
    ensure_ray("cluster:6379")
    end_ray()
    assert fake.is_initialized() and (fake.starts, fake.shutdowns) == (2, 1)
    assert not [thread for thread in threading.enumerate() if thread.name == "cutline-ray"]
