"""Tests for the nodes that users write: a simulator of whole runs, its checkers, and searches for failures.

Modules that need Hypothesis are imported on first use, so that the rest works without Hypothesis.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from cutline.snapshot.testing.checkers import (
    CheckFailed,
    Verdict,
    causality,
    completeness,
    conservation,
    delivery,
    exactCut,
    fencing,
    flippedBits,
    integrity,
    judge,
    liveness,
    numberedDelivery,
    numberedRecord,
    restoreEquivalence,
)
from cutline.snapshot.testing.choosers import Delays
from cutline.snapshot.testing.explore import explore
from cutline.snapshot.testing.history import Cut, History
from cutline.snapshot.testing.lists import Failure, ListSink, ListSource, Pause
from cutline.snapshot.testing.simulator import Impossible, Odds, Simulator
from cutline.snapshot.testing.steps import (
    Arrive,
    Crash,
    CrashCoordinator,
    CutControl,
    DelayAcknowledgement,
    Deliver,
    Doubt,
    Fail,
    FailHook,
    FailStage,
    FailStore,
    Fault,
    Freeze,
    HangStore,
    Initiate,
    Inject,
    KillDriver,
    LoseAcknowledgement,
    OrphanCoordinator,
    Poll,
    Quiesce,
    RepeatAcknowledgement,
    RequestSnapshot,
    Step,
    SubmitAgain,
    TearStore,
    Tick,
    TimeOut,
    Timer,
    Transmit,
)
from cutline.snapshot.trace_events import Event, Kind

if TYPE_CHECKING:
    from cutline.snapshot.testing.check_monoid import checkMonoid
    from cutline.snapshot.testing.check_store import checkStore
    from cutline.snapshot.testing.conserved import checkConservation
    from cutline.snapshot.testing.recovery import checkRecovery, everHandled
    from cutline.snapshot.testing.stateful import explorationMachine
    from cutline.snapshot.testing.strategies import faults, graphs, schedules

#: {name: module} of the names that need Hypothesis
_WITH_HYPOTHESIS = {
    "checkConservation": "conserved",
    "checkMonoid": "check_monoid",
    "checkRecovery": "recovery",
    "checkStore": "check_store",
    "everHandled": "recovery",
    "explorationMachine": "stateful",
    "faults": "strategies",
    "graphs": "strategies",
    "schedules": "strategies",
}


def __getattr__(name: str) -> Any:
    module = _WITH_HYPOTHESIS.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"cutline.snapshot.testing.{module}"), name)
    except ModuleNotFoundError as error:
        if error.name != "hypothesis":
            raise
        raise ImportError(f'{name} needs Hypothesis: pip install "cutline[testing]"') from error


__all__ = [
    "Simulator",
    "History",
    "Kind",
    "Event",
    "Cut",
    "Delays",
    "Odds",
    "Impossible",
    "ListSource",
    "ListSink",
    "Pause",
    "Failure",
    "Arrive",
    "Crash",
    "CrashCoordinator",
    "CutControl",
    "DelayAcknowledgement",
    "Deliver",
    "Doubt",
    "Fail",
    "FailHook",
    "FailStage",
    "FailStore",
    "Fault",
    "Freeze",
    "HangStore",
    "Initiate",
    "Inject",
    "KillDriver",
    "LoseAcknowledgement",
    "RequestSnapshot",
    "OrphanCoordinator",
    "Poll",
    "RepeatAcknowledgement",
    "Quiesce",
    "Step",
    "SubmitAgain",
    "TearStore",
    "Tick",
    "Timer",
    "TimeOut",
    "Transmit",
    "judge",
    "exactCut",
    "causality",
    "conservation",
    "completeness",
    "integrity",
    "flippedBits",
    "restoreEquivalence",
    "delivery",
    "numberedDelivery",
    "numberedRecord",
    "fencing",
    "liveness",
    "Verdict",
    "CheckFailed",
    "checkRecovery",
    "checkConservation",
    "checkMonoid",
    "checkStore",
    "everHandled",
    "explorationMachine",
    "graphs",
    "schedules",
    "faults",
    "explore",
]
