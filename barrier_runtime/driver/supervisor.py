"""The supervisor: the loop in the driver that submits the barrier stage, and resubmits the stage after a failure.

The loop exists because Spark never retries a failed barrier result stage. The coordinator decides whether the run
continues. The supervisor only reports that a stage began or ended.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cutline.barrier_runtime.driver.coordinator_client import CoordinatorClient
from cutline.barrier_runtime.driver.stage import cancel_stage, run_stage, why_final
from cutline.snapshot.coordinator.bounded_history import HISTORY_MAX
from cutline.snapshot.coordinator.events import RunGivenUp, StageEnded, StageLaunched
from cutline.snapshot.coordinator.machine import Outcome
from cutline.snapshot.errors import Fenced, RunFailed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: characters kept of Spark's error, whose first lines name the task and the cause
_REASON_CHARACTERS_MAX = 2000

#: Seconds for the stage of an ended run to end by itself, in which nodes are closed. The limit exists because a stage
#: that waits for slots, or hangs in user code, would never end.
_FAREWELL_SECONDS_MAX = 10.0

#: Seconds between two attempts to make the coordinator end the run, which takes milliseconds.
_GIVE_UP_SECONDS = 0.02

#: Seconds between two checks whether the coordinator has bound its port, which takes milliseconds.
_UNBOUND_SECONDS = 0.05

#: Seconds between two looks at the run while a restart delay passes, because the run may be stopped meanwhile.
_DELAY_SECONDS = 0.25

#: outcomes of a coordinator instance after which the run continues
_GOES_ON = (None, Outcome.SUPERSEDED.value)

_logger = logging.getLogger("cutline.supervisor")


class Supervisor:
    """Keeps the stage of one run submitted, on its own thread.

    Parameters
    ----------
    spark : SparkSession
    client : CoordinatorClient
    run : str
    submission : str
        Unique name of the submission, and part of the name of the stage's job group.
    worker_count : int
    make_launch : callable
        Encodes the `WorkerLaunch` for a launch token and the coordinator's port.
    """

    def __init__(
        self,
        spark: SparkSession,
        client: CoordinatorClient,
        run: str,
        submission: str,
        worker_count: int,
        make_launch: Callable[[str, int], bytes],
    ) -> None:
        self.group = f"cutline-{run}-{submission}"
        #: last status of the run, which holds its outcome; set before the thread ends
        self.status: dict[str, Any] = {}
        self.error: Exception | None = None
        #: errors of the newest stages that failed, oldest first
        self.stage_failures: list[str] = []
        #: token of the submitted stage, and token of the last cancelled stage; "" before the first
        self._launch = self._cancelled = ""
        #: port of the coordinator that the submitted stage knows
        self._port = 0
        #: why the submitted stage was cancelled for another port, or ""
        self._move = ""
        #: monotonic time in seconds when the run was last known to continue
        self._last_on = time.monotonic()
        self._spark = spark
        self._client = client
        self._run_name = run
        self._worker_count = worker_count
        self._make_launch = make_launch
        self._thread = threading.Thread(target=self._supervise, name=f"cutline-supervisor-{run}", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """True while the run has not ended."""
        return self._thread.is_alive()

    def join(self, timeout: float | None) -> bool:
        """Wait for the end of the run. Return False if the run has not ended in time."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def obey(self, status: dict[str, Any]) -> None:
        """Cancel the stage if the coordinator has cancelled it or has another port, or if it does not end with the run.

        The stage is submitted again afterwards, unless the run is over.
        """
        now = time.monotonic()
        if status["outcome"] in _GOES_ON:
            self._last_on = now
        is_late = now >= self._last_on + _FAREWELL_SECONDS_MAX
        has_moved = status["port"] not in (None, self._port)
        if has_moved:
            self._move = f"the coordinator's port {self._port} is taken, the coordinator has port {status['port']} now"
        is_unwanted = status["cancelled_launch"] == self._launch or has_moved or is_late
        if status["newest_launch"] < self._launch:
            self._client.post(StageLaunched(self._launch))  # because a new coordinator instance does not know the stage
        if is_unwanted and self._cancelled != self._launch:
            self._cancelled = self._launch
            self.cancel()

    def cancel(self, reason: str = "") -> None:
        """Cancel the stage at once. With a reason the stage is submitted again, if its coordinator answers again."""
        self._move = reason or self._move
        cancel_stage(self._spark, self.group)

    def _supervise(self) -> None:
        number = 0
        try:
            while not self._is_over():
                port = self.status["port"]
                if port is None:  # because workers cannot reach the coordinator yet
                    time.sleep(_UNBOUND_SECONDS)
                    continue
                if self.status["restart_delay"] > 0:  # of the restart policy, after a stage that failed
                    time.sleep(min(self.status["restart_delay"], _DELAY_SECONDS))
                    continue
                number += 1
                self._run_stage(f"{number:06}", port)
        except RunFailed as error:  # no coordinator is left
            _logger.warning("%s", error)
            self.error = error
        except Exception as error:  # any error must reach the callers that await the run
            _logger.exception("run %s: the supervisor failed", self._run_name)
            self.error = error

    def _run_stage(self, launch: str, port: int) -> None:
        self._port = port
        self._move = ""
        self._launch = launch
        self._client.post(StageLaunched(launch))
        description = f"cutline run {self._run_name}"
        try:
            run_stage(self._spark, self.group, description, self._worker_count, self._make_launch(launch, port))
            reason = "its tasks returned"
        except Exception as error:  # noqa: BLE001  # any type: Spark's clients differ
            reason = self._move or f"{type(error).__name__}: {error}"[:_REASON_CHARACTERS_MAX]
            self.stage_failures = [*self.stage_failures, reason][-HISTORY_MAX:]
            is_ours = self._cancelled == launch or bool(self._move)
            final = None if is_ours else why_final(self._spark, error)
            if final is not None:
                self._give_up(final)
        self._client.post(StageEnded(launch, reason))

    def _give_up(self, why: str) -> None:
        while not self._is_over():  # repeated, because a new coordinator instance has not received the event
            self._client.post(RunGivenUp(f"{why}; submit the run again under the same name to go on"))
            time.sleep(_GIVE_UP_SECONDS)

    def _is_over(self) -> bool:
        self.status = self._client.status()
        return self.status["outcome"] not in _GOES_ON


def raise_for(status: dict[str, Any], run: str) -> None:
    """Raise the error of an ended run. Raise nothing for a run that finished or was stopped.

    Raises
    ------
    Fenced
        if the run was submitted again elsewhere.
    RunFailed
        if the run failed.
    """
    match status["outcome"]:
        case Outcome.FENCED.value:
            raise Fenced(f"run {run!r}: {status['reason']}")
        case Outcome.FAILED.value:
            raise RunFailed(f"run {run!r}: {status['reason']}")
