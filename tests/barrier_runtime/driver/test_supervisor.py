"""The supervisor decides when a stage is submitted, submitted again, cancelled and given up.

The stage and the coordinator are scripted, because each case needs its own order of their answers.
`tests/system` has both in earnest.
"""

from __future__ import annotations

import queue
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cutline.barrier_runtime.driver import supervisor as module
from cutline.barrier_runtime.driver.supervisor import Supervisor
from cutline.snapshot.coordinator.events import Event, RunGivenUp, StageEnded, StageLaunched
from cutline.snapshot.errors import Fenced, RunFailed

#: Seconds that anything here may take; it takes milliseconds.
PATIENCE_SECONDS = 5.0

CANCELLED = "[SPARK_JOB_CANCELLED] Job 3 was cancelled"


class Script:
    """A coordinator, a stage and a clock that do what the test says."""

    def __init__(self, outcomes: tuple[str | None, ...]) -> None:
        self.posted: list[Event] = []
        self.cancelled: list[str] = []
        self.submitted: queue.Queue[tuple[object, ...]] = queue.Queue()
        self.ends: queue.Queue[Exception | None] = queue.Queue()
        self.now = 0.0
        #: port of the coordinator, with which each stage is submitted
        self.port: int | None = 7
        self.ports: list[int] = []
        self.breaks: Exception | None = None
        #: what is left of a restart delay at each question, and the sleeps that followed
        self.delays: list[float] = []
        self.sleeps: list[float] = []
        #: what each question gets, the last one again and again
        self._outcomes = list(outcomes)

    def status(self) -> dict[str, Any]:
        """Answer as a coordinator's actor does."""
        if self.breaks is not None:
            raise self.breaks
        outcome = self._outcomes.pop(0) if len(self._outcomes) > 1 else self._outcomes[0]
        return status(outcome, port=self.port, restart_delay=self.delays.pop(0) if self.delays else 0.0)

    def make_launch(self, token: str, port: int) -> bytes:
        """Encode the token; keep the port."""
        self.ports.append(port)
        return token.encode()

    def post(self, event: Event) -> None:
        """Keep what the supervisor says."""
        if self.breaks is not None:
            raise self.breaks
        self.posted.append(event)

    def run_stage(self, *arguments: object) -> None:
        """Block until the test ends the stage."""
        self.submitted.put(arguments[1:])
        end = self.ends.get(timeout=PATIENCE_SECONDS)
        if end is not None:
            raise end

    def given_up(self) -> list[str]:
        """The reasons for which the run was given up."""
        return [event.reason for event in self.posted if isinstance(event, RunGivenUp)]

    def stages(self) -> list[Event]:
        """What was said of stages."""
        return [event for event in self.posted if not isinstance(event, RunGivenUp)]


def status(
    outcome: str | None,
    cancelled_launch: str = "",
    newest_launch: str = "999999",
    port: int | None = 7,
    restart_delay: float = 0.0,
) -> dict[str, Any]:
    """A coordinator's status, as far as the supervisor reads it."""
    return {
        "outcome": outcome,
        "reason": "of the test",
        "cancelled_launch": cancelled_launch,
        "newest_launch": newest_launch,
        "port": port,
        "restart_delay": restart_delay,
    }


@contextmanager
def supervised(*outcomes: str | None, is_session_stopped: bool = False) -> Iterator[tuple[Script, Supervisor]]:
    """Supervise a scripted run; each question for its outcome gets the next one."""
    script = Script(outcomes)
    session = cast(Any, SimpleNamespace(sparkContext=SimpleNamespace(_jsc=None if is_session_stopped else 1), _jsc=1))
    clock = SimpleNamespace(monotonic=lambda: script.now, sleep=script.sleeps.append)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "run_stage", script.run_stage)
        patch.setattr(module, "cancel_stage", lambda spark, group: script.cancelled.append(group))
        patch.setattr(module, "time", clock)
        supervisor = Supervisor(session, cast(Any, script), "sums", "7f", 3, script.make_launch)
        try:
            yield script, supervisor
        finally:
            script.breaks = RuntimeError("the test is over")
            script.ends.put(None)
            supervisor.join(PATIENCE_SECONDS)


def launched(script: Script) -> str:
    """Await a stage; its launch."""
    launch = script.submitted.get(timeout=PATIENCE_SECONDS)[-1]
    assert isinstance(launch, bytes)
    return launch.decode()


def end_of(supervisor: Supervisor) -> None:
    """Await the end of the run."""
    assert supervisor.join(PATIENCE_SECONDS)
    assert not supervisor.is_alive


def test_a_stage_is_announced_before_it_is_submitted() -> None:
    """Its workers register with its launch, so the coordinator has to know it before."""
    with supervised(None, "finished") as (script, supervisor):
        assert script.submitted.get(timeout=PATIENCE_SECONDS) == (
            *("cutline-sums-7f", "cutline run sums"),
            *(3, b"000001"),
        )
        assert script.posted == [StageLaunched("000001")]
        script.ends.put(None)
        end_of(supervisor)
        assert script.posted[1:] == [StageEnded("000001", "its tasks returned")]
        assert supervisor.status["outcome"] == "finished"
        assert (supervisor.error, supervisor.stage_failures) == (None, [])


def test_a_failed_stage_is_submitted_again() -> None:
    """Launches are numbered, because workers of an earlier stage may linger and must not be taken for new ones."""
    with supervised(None, None, "finished") as (script, supervisor):
        assert launched(script) == "000001"
        script.ends.put(OSError("executor lost"))
        assert launched(script) == "000002"
        script.ends.put(None)
        end_of(supervisor)
        assert script.posted == [
            StageLaunched("000001"),
            StageEnded("000001", "OSError: executor lost"),
            StageLaunched("000002"),
            StageEnded("000002", "its tasks returned"),
        ]
        assert supervisor.stage_failures == ["OSError: executor lost"]


def test_a_failed_stage_waits_for_the_restart_delay() -> None:
    """Else an executor that is ill for a moment uses up all restarts. The run may end meanwhile, so it is asked."""
    with supervised(*[None] * 5, "finished") as (script, supervisor):
        assert launched(script) == "000001"
        script.delays = [0.6, 0.2, 0.1, 0.0]
        script.ends.put(OSError("executor lost"))
        assert launched(script) == "000002"
        assert script.sleeps == [0.25, 0.2, 0.1]
        script.ends.put(None)
        end_of(supervisor)


def test_a_stage_whose_coordinator_was_silent_is_submitted_again() -> None:
    """If the coordinator answers again; the run is not given up, and the reason is told."""
    with supervised(None, None, "finished") as (script, supervisor):
        launched(script)
        supervisor.cancel("its coordinator did not answer")
        assert script.cancelled == ["cutline-sums-7f"]
        script.ends.put(RuntimeError(CANCELLED))
        assert launched(script) == "000002"
        assert script.given_up() == [] and script.posted[1] == StageEnded("000001", "its coordinator did not answer")
        script.ends.put(None)
        end_of(supervisor)


def test_a_stage_that_returned_is_submitted_again_while_the_run_goes_on() -> None:
    """Tasks return when a coordinator has dismissed them, and its next life goes on with new ones."""
    with supervised(None, "superseded", "finished") as (script, supervisor):
        for launch in ("000001", "000002"):
            assert launched(script) == launch
            script.ends.put(None)
        end_of(supervisor)


@pytest.mark.parametrize("outcome", ["finished", "failed", "fenced"])
def test_nothing_is_submitted_for_a_run_that_is_over(outcome: str) -> None:
    """The name may have been submitted again elsewhere before the first stage."""
    with supervised(outcome) as (script, supervisor):
        end_of(supervisor)
        supervisor.obey(status(outcome))
        assert (script.posted, script.cancelled) == ([], [])


def test_only_the_beginning_of_an_error_is_kept() -> None:
    """Spark quotes the Java stack of each task; the first lines name the cause."""
    with supervised(None, "failed") as (script, supervisor):
        script.ends.put(OSError("x" * 5000))
        end_of(supervisor)
        assert [len(reason) for reason in supervisor.stage_failures] == [2000]


def test_a_cancelled_job_is_given_up_until_the_coordinator_says_so() -> None:
    """Somebody cancelled it in Spark's page. A new life of the coordinator has not heard it, so it is said again."""
    with supervised(None, None, None, "failed") as (script, supervisor):
        assert launched(script) == "000001"
        script.ends.put(RuntimeError(CANCELLED))
        end_of(supervisor)
        assert script.given_up() == 2 * [
            "its Spark job was cancelled; submit the run again under the same name to go on"
        ]
        assert script.posted[-1] == StageEnded("000001", f"RuntimeError: {CANCELLED}")


def test_a_stopped_session_is_given_up() -> None:
    """No stage can be submitted to it."""
    with supervised(None, None, "failed", is_session_stopped=True) as (script, supervisor):
        script.ends.put(OSError("the gateway is gone"))
        end_of(supervisor)
        assert script.given_up()[0].startswith("the Spark session was stopped;")


def test_a_stage_that_the_coordinator_gave_up_is_cancelled_and_submitted_again() -> None:
    """The cancelled job is not a reason to give the run up, because the supervisor cancelled it itself."""
    with supervised(None, None, "finished") as (script, supervisor):
        launch = launched(script)
        supervisor.obey(status(None, cancelled_launch=launch))
        assert script.cancelled == ["cutline-sums-7f"]
        script.ends.put(RuntimeError(CANCELLED))
        assert launched(script) == "000002"
        script.ends.put(None)
        end_of(supervisor)
        assert script.given_up() == []


def test_a_stage_is_cancelled_once() -> None:
    """The status is read every few milliseconds; the cancelled stage takes its time to end."""
    with supervised(None, None, "finished") as (script, supervisor):
        launch = launched(script)
        for _ in range(3):
            supervisor.obey(status(None, cancelled_launch=launch))
        assert len(script.cancelled) == 1
        script.ends.put(None)
        second = launched(script)
        supervisor.obey(status(None, cancelled_launch=launch))
        assert len(script.cancelled) == 1
        supervisor.obey(status(None, cancelled_launch=second))
        assert len(script.cancelled) == 2


def test_a_stage_that_does_not_end_with_its_run_is_cancelled() -> None:
    """It waits for slots, or hangs in user code. Nodes have ten seconds to close."""
    with supervised(None, "finished") as (script, supervisor):
        launched(script)
        for script.now in (5.0, 20.0):
            supervisor.obey(status(None))
        supervisor.obey(status("superseded"))
        for script.now in (20.5, 29.5):
            supervisor.obey(status("finished"))
        assert script.cancelled == []
        script.now = 30.0
        supervisor.obey(status("finished"))
        assert script.cancelled == ["cutline-sums-7f"]


def test_a_superseded_life_is_no_end() -> None:
    """Ray starts the next life of the coordinator; that may take longer than nodes take to close."""
    with supervised(None, "finished") as (script, supervisor):
        launched(script)
        for script.now in (5.0, 20.0, 40.0):
            supervisor.obey(status("superseded"))
        assert script.cancelled == []


def test_a_new_life_of_the_coordinator_is_told_of_the_stage() -> None:
    """It would refuse the workers of a launch that it does not know."""
    with supervised(None, "finished") as (script, supervisor):
        launched(script)
        supervisor.obey(status(None, newest_launch="000001"))
        supervisor.obey(status(None, newest_launch="000002"))
        assert script.posted == [StageLaunched("000001")]
        supervisor.obey(status(None, newest_launch=""))
        assert script.posted == 2 * [StageLaunched("000001")]


def test_a_stage_follows_the_coordinator_to_another_port() -> None:
    """A new instance found its port taken. The stage knows the old port only, so it is cancelled, once."""
    with supervised(None, None, None, "finished") as (script, supervisor):
        launched(script)
        supervisor.obey(status(None, port=None))  # not bound yet: the port may still become free
        supervisor.obey(status(None))
        assert script.cancelled == []
        script.port = 8
        for _ in range(2):
            supervisor.obey(status(None, port=8))
        assert script.cancelled == ["cutline-sums-7f"]
        script.ends.put(RuntimeError(CANCELLED))
        assert launched(script) == "000002"
        supervisor.obey(status(None, port=8))
        assert len(script.cancelled) == 1
        script.ends.put(OSError("executor lost"))
        launched(script)
        script.ends.put(None)
        end_of(supervisor)
        assert script.ports == [7, 8, 8]
        assert supervisor.stage_failures == [
            "the coordinator's port 7 is taken, the coordinator has port 8 now",
            "OSError: executor lost",
        ]


def test_no_stage_is_submitted_before_the_port_is_bound() -> None:
    """Its workers would look for a coordinator where there is none."""
    with supervised(None) as (script, _):
        launched(script)
        script.port = None
        script.ends.put(OSError("executor lost"))
        with pytest.raises(queue.Empty):
            script.submitted.get(timeout=0.2)
        script.port = 8
        assert launched(script) == "000002"
        assert script.ports == [7, 8]


def test_an_error_of_the_supervisor_is_kept_for_whoever_waits() -> None:
    """Else the run would look as if it had ended."""
    with supervised(None) as (script, supervisor):
        launched(script)
        script.breaks = OSError("the coordinator cannot be asked")
        script.ends.put(None)
        end_of(supervisor)
        assert str(supervisor.error) == "the coordinator cannot be asked"


def test_waiting_has_a_limit() -> None:
    """A caller polls, because a thread that waits for ever cannot be interrupted."""
    with supervised(None, "finished") as (script, supervisor):
        launched(script)
        assert not supervisor.join(0.0)
        assert supervisor.is_alive


@pytest.mark.parametrize(("outcome", "error"), [("fenced", Fenced), ("failed", RunFailed)])
def test_the_end_of_a_run_is_raised(outcome: str, error: type[Exception]) -> None:
    """The error names the run and the coordinator's reason."""
    with pytest.raises(error, match="run 'sums': of the test"):
        module.raise_for(status(outcome), "sums")


@pytest.mark.parametrize("outcome", ["finished", "stopped"])
def test_a_good_end_raises_nothing(outcome: str) -> None:
    """A stopped run can be submitted again under its name."""
    module.raise_for(status(outcome), "sums")
