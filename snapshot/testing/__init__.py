"""Tests for the nodes that users write: a simulator of whole runs, its checkers, and searches for failures.

Modules that need Hypothesis are imported on first use, so that the rest works without Hypothesis.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from snapshot.testing.checkers import (
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
from snapshot.testing.choosers import Delays
from snapshot.testing.explore import explore
from snapshot.testing.history import Cut, History
from snapshot.testing.lists import Failure, ListSink, ListSource, Pause
from snapshot.testing.simulator import Impossible, Odds, Simulator
from snapshot.testing.steps import (
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
from snapshot.trace_events import Event, Kind

if TYPE_CHECKING:
    from snapshot.testing.check_monoid import checkMonoid
    from snapshot.testing.check_store import checkStore
    from snapshot.testing.conserved import checkConservation
    from snapshot.testing.recovery import checkRecovery, everHandled
    from snapshot.testing.stateful import explorationMachine
    from snapshot.testing.strategies import faults, graphs, schedules

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
        return getattr(import_module(f"{__name__}.{module}"), name)
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
