"""The only user of Ray: starts Ray, makes and calls actors, and replaces an embedded Ray that died.

Ray ends the driver's process a minute after the death of Ray's own server, in native code that nothing can catch. So an
embedded Ray is shut down as soon as its server or its raylet has died, and is started again. A Ray of the user is never
shut down.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import secrets
import threading
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import ray
import ray.util
from ray._private import worker as ray_worker
from ray.exceptions import ActorDiedError, GetTimeoutError, RayActorError, RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from tenacity import retry, stop_after_attempt

from cutline.barrier_runtime.driver.ray_messages import are_messages_logged, log_ray_messages

#: Seconds that one call of an actor may take, a restart of the actor by Ray included.
ANSWER_SECONDS_MAX = 60.0

#: attempts to start an embedded Ray before its error is raised in the driver
RAY_STARTS_MAX = 3

#: Bytes of Ray's object store: the smallest size, because only small answers pass through the store.
_OBJECT_STORE_BYTES = 80 * 1024 * 1024

#: Ray's names of the processes without which a Ray is dead. Ray runs on without its other processes.
_VITAL = ("gcs_server", "raylet")

#: Seconds between two checks whether the vital processes live. Ray leaves a minute for the replacement.
_WATCH_SECONDS = 0.2

#: Seconds that a pending call waits for its result before it checks again whether its Ray lives.
_SLICE_SECONDS = 0.5

#: Seconds to wait for pending calls before a dead Ray is shut down. The limit exists because Ray would end the process.
_DRAIN_SECONDS_MAX = 10.0

#: Seconds between the report that a raylet ends and its end, which takes milliseconds.
_RAYLET_END_SECONDS_MAX = 3.0

_logger = logging.getLogger("cutline.ray")


class ActorLostError(Exception):
    """No instance of an actor is left, and none follows."""


class RemoteActor:
    """An actor on this host. Ray restarts a dead instance. An actor that died with its embedded Ray is made again.

    Parameters
    ----------
    kind : type
        Class of the actor.
    setup : object
        Argument of the class. Every instance has the same argument.
    restarts : bool
        Whether a new instance follows a dead instance.
    """

    def __init__(self, kind: type, setup: object, *, restarts: bool) -> None:
        self.restarts = restarts
        #: Ray's handle, or None before the first call and while a dead Ray is replaced
        self.handle: Any = None
        self._kind = kind
        self._setup = setup
        self._making = threading.Lock()
        self._was_made = self._is_ended = False
        _embedded.actors.add(self)

    def call(self, method: str, *arguments: object) -> Any:
        """Call a method and return its result. Repeat the call while a new instance follows a dead instance.

        Raises
        ------
        ActorLostError
            if no instance is left, and none follows.
        TimeoutError
            if no result is known in time.
        """
        known, deadline = None, 0.0
        while True:
            with _embedded.call():
                handle = self._made()
                if handle is not known:
                    known, deadline = handle, time.monotonic() + ANSWER_SECONDS_MAX
                try:
                    return _result(getattr(handle, method).remote(*arguments), deadline)
                except RayTaskError as error:
                    raise error.as_instanceof_cause() from None  # type: ignore[no-untyped-call]  # Ray's
                except GetTimeoutError:
                    if not _embedded.dead():
                        raise TimeoutError(f"no answer in {ANSWER_SECONDS_MAX:g} s") from None
                except RayError as error:
                    if not self._is_repeatable(error, deadline):
                        raise ActorLostError(str(error)) from error

    def kill(self, *, restart: bool) -> None:
        """Kill the present instance. With `restart` a new instance follows."""
        self._is_ended = not restart
        with contextlib.suppress(RayError, ActorLostError), _embedded.call():
            if self.handle is not None:
                ray.kill(self.handle, no_restart=not restart)
        if self._is_ended:
            _embedded.actors.discard(self)

    def _made(self) -> Any:
        with self._making:
            if self.handle is None:
                if self._was_made and not self.restarts:
                    raise ActorLostError("it died with the embedded Ray")
                self._was_made = True
                self.handle = self._make()
            return self.handle

    def _make(self) -> Any:
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        options: dict[str, Any] = {
            "max_restarts": -1 if self.restarts else 0,
            "max_task_retries": -1 if self.restarts else 0,
            "num_cpus": 0,
            "max_concurrency": 8,
            "scheduling_strategy": here,  # because the address must be known before a start and after a restart
        }
        return ray.remote(self._kind).options(**options).remote(self._setup)

    def _is_repeatable(self, error: RayError, deadline: float) -> bool:
        if not self.restarts or self._is_ended:
            return False
        is_restarting = isinstance(error, RayActorError) and not isinstance(error, ActorDiedError)
        return (is_restarting and time.monotonic() < deadline) or _embedded.is_dying()


class _EmbeddedRay:
    """The Ray that this process started, if any. Counts calls, because Ray may be shut down between calls only."""

    def __init__(self) -> None:
        self.actors: weakref.WeakSet[RemoteActor] = weakref.WeakSet()
        self._changed = threading.Condition()
        #: calls of Ray in progress
        self._calls = 0
        #: {Ray's name of a vital process: process}, empty without an embedded Ray
        self._processes: dict[str, Any] = {}
        #: why calls are refused, or ""
        self._refusal = ""

    def start(self) -> None:
        """Start a Ray that ends with this process, and watch its vital processes.

        Linux ends Ray's processes with the thread that started them. So Ray is started on the main thread or on the
        watching thread.
        """
        started: Future[None] = Future()
        if threading.current_thread() is threading.main_thread():
            self._start()
            started.set_result(None)
        threading.Thread(target=self._watch, args=(started,), name="cutline-ray", daemon=True).start()
        started.result()

    def end(self) -> None:
        """Shut Ray down if this process started Ray for the runs."""
        if self._processes:
            ray.shutdown()

    def refuse(self, why: str) -> None:
        """Refuse calls from now on."""
        self._refusal = why

    def dead(self) -> list[str]:
        """Return the names of the vital processes that have died."""
        return [name for name, process in self._processes.items() if process.poll() is not None]

    def is_dying(self) -> bool:
        """Return whether a vital process has died, or dies in a moment."""
        deadline = time.monotonic() + _RAYLET_END_SECONDS_MAX
        while self._processes and not self.dead() and time.monotonic() < deadline:
            time.sleep(_WATCH_SECONDS)
        return bool(self.dead())

    @contextlib.contextmanager
    def call(self) -> Iterator[None]:
        """Delay the shutdown of a dead Ray until the block ends. Wait first while a dead Ray is replaced.

        Raises
        ------
        ActorLostError
            if this process is connected to no Ray, because a call would start another Ray.
        """
        with self._changed:
            while self.dead() and not self._refusal:
                self._changed.wait(_WATCH_SECONDS)
            if self._refusal or not ray.is_initialized():
                raise ActorLostError(self._refusal or "this process has left the Ray of the coordinator")
            self._calls += 1
        try:
            yield
        finally:
            with self._changed:
                self._calls -= 1
                self._changed.notify_all()

    def _start(self) -> None:
        _start_ray()
        node: Any = ray_worker._global_node
        self._processes = {name: node.all_processes[name][0].process for name in _VITAL}
        self._refusal = ""

    def _watch(self, started: Future[None]) -> None:
        if not started.done():
            try:
                self._start()
            except Exception as error:  # noqa: BLE001  # any error of Ray is raised in the thread that waits
                started.set_exception(error)
                return
            started.set_result(None)
        while self._processes:
            time.sleep(_WATCH_SECONDS)
            dead = " and ".join(self.dead())
            if dead:
                with self._changed:
                    self._replace(dead)
                    self._changed.notify_all()

    def _replace(self, dead: str) -> None:
        """Shut a dead Ray down, and start a Ray again if an actor can be made again. Return at once if Ray has left."""
        if self._refusal or not ray.is_initialized():  # because the program has shut Ray down
            self._processes = {}
            return
        self._changed.wait_for(lambda: not self._calls, _DRAIN_SECONDS_MAX)
        _logger.warning("Ray's %s died; Ray is started again, and messages keep flowing meanwhile", dead)
        for actor in self.actors:
            actor.handle = None
        ray.shutdown()
        self._processes = {}
        if any(actor.restarts for actor in self.actors):
            try:
                self._start()
            except Exception as error:  # any error of Ray ends the runs, and not this process
                _logger.exception("Ray could not be started again")
                self._refusal = f"Ray's {dead} died, and Ray could not be started again: {error}"


_embedded = _EmbeddedRay()

# Registered after Ray's own function, and so called before it.
atexit.register(_embedded.refuse, "the driver's process ends; submit the run again under the same name to go on")


def ensure_ray(address: str | None) -> None:
    """Use the connected Ray, or connect to the Ray at `address`, or start a Ray that ends with the driver."""
    if ray.is_initialized():
        if not are_messages_logged():  # else this process started Ray, or found it connected before
            log_ray_messages(is_embedded=False)
        return
    # Token authentication stays on. A token is set here, because Ray would otherwise write a token to the user's home.
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    if address is not None:
        log_ray_messages(is_embedded=False)
        ray.init(address=address, logging_level=logging.WARNING, log_to_driver=False)
        return
    # Ray's default niceness of 15 is for batch jobs. Coordinators must answer workers at once.
    os.environ.setdefault("RAY_worker_niceness", "0")
    log_ray_messages(is_embedded=True)
    _embedded.start()


def end_ray() -> None:
    """Shut down the embedded Ray, if any."""
    _embedded.end()


def own_address() -> str:
    """Return the address at which Ray reaches this host."""
    return str(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]  # Ray's


@retry(stop=stop_after_attempt(RAY_STARTS_MAX), before_sleep=lambda _: ray.shutdown(), reraise=True)
def _start_ray() -> None:
    """Start Ray. Retry on any error, because Ray's processes may not connect in time on a busy machine."""
    is_main = threading.current_thread() is threading.main_thread()
    ray.init(
        address="local",
        num_cpus=1,
        include_dashboard=False,
        object_store_memory=_OBJECT_STORE_BYTES,
        logging_level=logging.WARNING if is_main else logging.ERROR,  # because Ray warns of a thread without signals
        log_to_driver=False,
    )


def _result(reference: Any, deadline: float) -> Any:
    """Return the result of a call. Raise `GetTimeoutError` at the deadline, or as soon as the embedded Ray is dead."""
    while True:
        seconds = min(_SLICE_SECONDS, deadline - time.monotonic())
        try:
            return ray.get(reference, timeout=max(0.0, seconds))
        except GetTimeoutError:
            if seconds < _SLICE_SECONDS or _embedded.dead():
                raise
