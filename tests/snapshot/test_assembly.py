"""Which objects a mode has: the assembly alone decides, by the row."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cutline.snapshot.assembly import completion_of, cut_start_of
from cutline.snapshot.coordinator.completion import Acknowledged
from cutline.snapshot.coordinator.cut_start import StartAtOnce
from cutline.snapshot.coordinator.fence import Fence
from cutline.snapshot.coordinator.machine import CoordinatorMachine
from cutline.snapshot.modes.clocks.negotiated_start import NegotiatedStart
from cutline.snapshot.modes.records.composition import Composition
from cutline.snapshot.modes.records.each_alone import EachAlone
from cutline.snapshot.modes.steps.step_records import StepCompletion
from cutline.snapshot.plan.modes import ChannelLogs, Deltas, InputLogging, Mode, MonoidClocks, PersistentState
from tests.snapshot.led import SETTINGS


@pytest.mark.parametrize(
    ("mode", "cut_start", "completion"),
    [
        (None, StartAtOnce, Acknowledged),
        (InputLogging(), StartAtOnce, StepCompletion),
        (Deltas(), StartAtOnce, StepCompletion),
        (PersistentState("/disk"), StartAtOnce, StepCompletion),
        (MonoidClocks(), StartAtOnce, Acknowledged),
        (MonoidClocks(clock="negotiated"), NegotiatedStart, Acknowledged),
        (ChannelLogs(), EachAlone, Composition),
    ],
    ids=["markers", "inputLogging", "deltas", "persistentState", "epochs", "negotiated", "channelLogs"],
)
def test_a_row_becomes_objects(mode: Mode | None, cut_start: type, completion: type) -> None:
    """Of the coordinator: how its cuts start, and how its snapshots become whole."""
    settings = replace(SETTINGS, topology=replace(SETTINGS.topology, mode=mode))
    fence = Fence("owner", "instance", "latest")
    coordinator = CoordinatorMachine(settings, fence, cut_start_of, completion_of, launch="", epoch_offset=0.0)
    assert type(coordinator.completion) is completion
    assert type(cut_start_of(settings.topology)) is cut_start
    is_timed = coordinator.table.policy.interval is not None
    assert is_timed == (cut_start is not EachAlone and SETTINGS.policy.interval is not None)


def test_subtasks_that_record_themselves_all_start() -> None:
    """No marker reaches anybody. Else the graph's initiators start, or those that are wanted."""
    topology = SETTINGS.topology
    alone = replace(topology, mode=ChannelLogs())
    assert cut_start_of(alone).initiators(()) == topology.subtasks
    assert cut_start_of(topology).initiators(()) == topology.initiators()
    last = topology.subtasks[-1:]
    assert cut_start_of(topology).initiators(last)[:1] == last
