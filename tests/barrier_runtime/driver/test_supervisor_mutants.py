"""Every rule of the supervisor has teeth: without it, a test of `test_supervisor` fails."""

from __future__ import annotations

import pytest

from cutline.barrier_runtime.driver import supervisor as module
from cutline.barrier_runtime.driver.supervisor import Supervisor
from tests.barrier_runtime.driver import test_supervisor
from tests.mutation import Mutant, require_all_pass, require_teeth

_OBEY, _STAGE = "obey", "_run_stage"

MUTANTS = (
    Mutant("launches are numbered", Supervisor, "_supervise", "number += 1", "number = 1"),
    Mutant("a run that is over has no stage", Supervisor, "_supervise", "while not self._is_over()", "while True"),
    Mutant("an error is kept", Supervisor, "_supervise", "self.error = error", "pass"),
    Mutant("a stage is announced", Supervisor, _STAGE, "self._client.post(StageLaunched(launch))", "pass"),
    Mutant("the launch is known", Supervisor, _STAGE, "self._launch = launch", "pass"),
    Mutant("an end is said", Supervisor, _STAGE, "self._client.post(StageEnded(launch, reason))", "pass"),
    Mutant("errors are cut", Supervisor, _STAGE, "[:_REASON_CHARACTERS_MAX]", ""),
    Mutant("failures are kept", Supervisor, _STAGE, "[*self.stage_failures, reason]", "[]"),
    Mutant("what is final is given up", Supervisor, _STAGE, "self._give_up(final)", "pass"),
    Mutant("what it cancelled itself is not", Supervisor, _STAGE, "None if is_ours else ", ""),
    Mutant("nor what a silent coordinator cost", Supervisor, _STAGE, "or bool(self._move)", ""),
    Mutant("a reason is kept", Supervisor, "cancel", "reason or self._move", "self._move"),
    Mutant("a delay passes", Supervisor, "_supervise", '["restart_delay"] > 0', '["restart_delay"] > 9'),
    Mutant(
        "the run is asked meanwhile",
        Supervisor,
        "_supervise",
        '["restart_delay"], _DELAY_SECONDS',
        '["restart_delay"], 9',
    ),
    Mutant("it is given up until it is over", Supervisor, "_give_up", "while not self._is_over()", "for _ in range(1)"),
    Mutant("a run is not over while it goes on", Supervisor, "_is_over", "not in _GOES_ON", "is not None"),
    Mutant("the last status is kept", Supervisor, "_is_over", "self.status = ", "self.other = "),
    Mutant("the farewell begins with the end", Supervisor, _OBEY, "self._last_on = now", "pass"),
    Mutant("a superseded life is no end", Supervisor, _OBEY, "in _GOES_ON", "is None"),
    Mutant("the stage has its farewell", Supervisor, _OBEY, "+ _FAREWELL_SECONDS_MAX", ""),
    Mutant("the farewell ends", Supervisor, _OBEY, "or is_late", ""),
    Mutant("the coordinator cancels", Supervisor, _OBEY, 'status["cancelled_launch"] == self._launch', "False"),
    Mutant("only this launch is cancelled", Supervisor, _OBEY, '["cancelled_launch"] ==', '["cancelled_launch"] <='),
    Mutant("a new life is told", Supervisor, _OBEY, 'status["newest_launch"] < self._launch', "False"),
    Mutant("a life that knows is not told", Supervisor, _OBEY, 'status["newest_launch"] <', '"" <'),
    Mutant("an older launch is not told", Supervisor, _OBEY, '["newest_launch"] <', '["newest_launch"] !='),
    Mutant("a stage follows the port", Supervisor, _OBEY, "or has_moved", ""),
    Mutant("an unbound port is no other port", Supervisor, _OBEY, "(None, self._port)", "(self._port,)"),
    Mutant("the port is known", Supervisor, _STAGE, "self._port = port", "pass"),
    Mutant("a move is of one stage", Supervisor, _STAGE, 'self._move = ""', "pass"),
    Mutant("a port is awaited", Supervisor, "_supervise", "if port is None", "if False"),
    Mutant("a launch is cancelled once", Supervisor, _OBEY, "and self._cancelled != self._launch", ""),
    Mutant("what was cancelled is known", Supervisor, _OBEY, "self._cancelled = self._launch", "pass"),
    Mutant("the stage is cancelled", Supervisor, _OBEY, "self.cancel()", "pass"),
    Mutant("the stage of this run is cancelled", Supervisor, "cancel", "self.group", "''"),
    Mutant("waiting has a limit", Supervisor, "join", "timeout)", "None)"),
    Mutant("a late end is said", Supervisor, "join", "not self._thread.is_alive()", "True"),
    Mutant("a living thread is seen", Supervisor, "is_alive", "self._thread.is_alive()", "False"),
    Mutant("a fence is raised", module, "raise_for", "raise Fenced", "RunFailed"),
    Mutant("a failure is raised", module, "raise_for", "raise RunFailed", "RunFailed"),
)


def test_without_a_mutant_all_pass() -> None:
    """The scenarios are those of `test_supervisor`, so that a mutant that fails them is found by it."""
    require_all_pass(test_supervisor, 20)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.rule)
def test_every_rule_has_teeth(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some scenario fails without the rule; many by waiting for what does not come."""
    monkeypatch.setattr(test_supervisor, "PATIENCE_SECONDS", 0.5)
    require_teeth(mutant, test_supervisor, monkeypatch)
