"""Messages that Ray prints in the driver: logged, not printed, unless they are of another Ray and not about us."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest
from ray._private import worker as ray_worker
from ray._private.ray_logging import stdout_deduplicator

from cutline.barrier_runtime.driver import ray_messages
from cutline.barrier_runtime.driver.ray_messages import are_messages_logged, log_ray_messages

_LOST = "A worker died or was killed while executing a task by an unexpected system error."
_RETRIED = "Task CoordinatorActor.status failed. There are infinite retries remaining."


class Messages:
    """As Ray's subscriber: gives each message once, and then ends the thread that listens."""

    def __init__(self, *texts: str) -> None:
        self.gcs_error_subscriber = self
        self.current_job_id = self
        self.threads_stopped = threading.Event()
        self._texts = list(texts)

    def subscribe(self) -> None:
        """Nothing to do."""

    def binary(self) -> bytes:
        """Return the id of the job."""
        return b"job"

    def poll(self) -> tuple[bytes, dict[str, Any]]:
        """Return the next message."""
        text = self._texts.pop(0)
        if not self._texts:
            self.threads_stopped.set()
        return b"", {"job_id": b"job", "error_message": text}


@pytest.fixture
def unhooked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray's own function, whoever has replaced it before in this process."""
    monkeypatch.setattr(ray_worker, "print_to_stdstream", ray_messages._print_to_stream)
    monkeypatch.setattr(ray_worker, "_internal_kv_initialized", lambda: False)


def listen(*texts: str) -> None:
    """Let the thread of Ray that prints messages receive these texts."""
    messages: Any = Messages(*texts)
    ray_worker.listen_error_messages(messages, messages.threads_stopped)
    stdout_deduplicator.flush()


@pytest.mark.usefixtures("unhooked")
def test_ray_prints_its_messages(capsys: pytest.CaptureFixture[str]) -> None:
    """Ray prints them where nothing is done: this test fails once Ray changes the function that is replaced."""
    assert not are_messages_logged()
    listen(_LOST)
    assert _LOST in capsys.readouterr().out


@pytest.mark.usefixtures("unhooked")
@pytest.mark.parametrize("is_embedded", [True, False])
def test_messages_of_ray_are_logged(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, is_embedded: bool
) -> None:
    """Of a Ray of our own all are logged; of the user's Ray those that name the coordinator."""
    log_ray_messages(is_embedded=is_embedded)
    assert are_messages_logged()
    with caplog.at_level(logging.INFO, "cutline.ray"):
        listen(_LOST, _RETRIED)
    logged = [record.getMessage() for record in caplog.records]
    assert logged == ([f"Ray: {_LOST}", f"Ray: {_RETRIED}"] if is_embedded else [f"Ray: {_RETRIED}"])
    out = capsys.readouterr().out
    assert _RETRIED not in out and (_LOST in out) != is_embedded


@pytest.mark.usefixtures("unhooked")
def test_output_of_the_users_tasks_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """Only what Ray itself writes is logged, even from a Ray of our own."""
    log_ray_messages(is_embedded=True)
    data = {"lines": ["hello"], "pid": 17, "is_err": False, "ip": "", "actor_name": None, "task_name": "user"}
    ray_worker.print_to_stdstream({**data, "job": "job", "localhost": True}, ignore_prefix=True)
    stdout_deduplicator.flush()
    assert "hello" in capsys.readouterr().out
