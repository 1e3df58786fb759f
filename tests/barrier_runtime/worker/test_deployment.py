"""From what was read to live subtasks, with the worker's memory for what they give to snapshots."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import numpy as np

from cutline import Context, Graph, Source
from cutline.barrier_runtime.launch import WorkerLaunch
from cutline.barrier_runtime.worker.deployment import make_machines
from cutline.channels.sockets import Address
from cutline.snapshot.channel.kept_memory import KEPT_BYTES_MIN, KeptMemory
from cutline.snapshot.coordinator.control import Deploy, RestoredSubtask
from cutline.snapshot.ids import Subtask
from cutline.snapshot.plan.compiled_graph import build
from cutline.snapshot.stored.contribution import Contribution
from cutline.snapshot.subtask.events import SnapshotRequested, Started
from cutline.snapshot.subtask.limits import SubtaskLimits
from cutline.snapshot.subtask.restored import FRESH, RestoredChannels
from cutline.snapshot.worker.restored_parts import RestoredParts

LAUNCH = WorkerLaunch(
    "r", "1", Address("127.0.0.1", 1, "", ""), bytes(32), 1, b"", b"", SubtaskLimits(), False, 0, False
)
HOLDER = Subtask("holder")


class _Holder(Source):
    """Its state is an array that is worth memory of its own."""

    def poll(self, context: Context) -> float:
        return 86_400.0

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return np.zeros(2 * KEPT_BYTES_MIN, np.uint8)

    def restoreState(self, state: Any) -> None:
        pass


def test_a_safe_run_has_safe_states() -> None:
    """An array would need pickle, so the snapshot fails and says why."""
    compiled = build(Graph("r").add("holder", _Holder()), "unaligned")
    parts = RestoredParts(
        Deploy(1, (RestoredSubtask(HOLDER, None, (), (), ()),), has_more=False),
        {HOLDER: None},
        {HOLDER: RestoredChannels()},
    )
    logger = logging.LoggerAdapter(logging.getLogger("deployment"), {})
    launch = replace(LAUNCH, safe=True)
    machine = make_machines(parts, compiled, launch, KeptMemory(), lambda: None, logger, None)[HOLDER]
    machine.restore(FRESH, 0.0)
    machine.step(Started(), 0.0)
    machine.step(SnapshotRequested(1, (1,), 1), 0.0)
    reports = machine.take_reports()
    assert not any(isinstance(report, Contribution) for report in reports)
    assert "safe=True" in repr(reports)


def test_states_are_copied_into_the_workers_memory() -> None:
    """It outlives the machines: what one snapshot let go of is there for the next, after a rollback too."""
    memory = KeptMemory()
    compiled = build(Graph("r").add("holder", _Holder()), "unaligned")
    for incarnation in (1, 2):
        deploy = Deploy(incarnation, (RestoredSubtask(HOLDER, None, (), (), ()),), has_more=False)
        parts = RestoredParts(deploy, {HOLDER: None}, {HOLDER: RestoredChannels()})
        logger = logging.LoggerAdapter(logging.getLogger("deployment"), {})
        machine = make_machines(parts, compiled, LAUNCH, memory, lambda: None, logger, None)[HOLDER]
        machine.restore(FRESH, 0.0)
        machine.step(Started(), 0.0)
        machine.step(SnapshotRequested(1, (1,), 1), 0.0)
        (taken,) = (report for report in machine.take_reports() if isinstance(report, Contribution))
        assert not memory.idle_bytes
        del taken, machine
    assert 2 * KEPT_BYTES_MIN <= memory.idle_bytes < 4 * KEPT_BYTES_MIN


class _Dice(Source):
    """Sends nothing."""

    def poll(self, context: Context) -> float:
        return 86_400.0


def test_chance_is_the_same_in_each_incarnation() -> None:
    """A generator that was not used is not saved, and yet goes on as in the snapshot. Each subtask has its own."""
    compiled = build(Graph("r").add("dice", _Dice(), parallelism=2), "unaligned")
    dice = (Subtask("dice", 0), Subtask("dice", 1))
    logger = logging.LoggerAdapter(logging.getLogger("deployment"), {})

    def numbers(launch: WorkerLaunch, incarnation: int) -> list[float]:
        restored = tuple(RestoredSubtask(each, None, (), (), ()) for each in dice)
        parts = RestoredParts(
            Deploy(incarnation, restored, has_more=False), dict.fromkeys(dice), dict.fromkeys(dice, RestoredChannels())
        )
        machines = make_machines(parts, compiled, launch, KeptMemory(), lambda: None, logger, None)
        return [machines[each].context.random.random() for each in dice]

    first = numbers(LAUNCH, 1)
    assert numbers(replace(LAUNCH, launch="2"), 2) == first
    assert len({*first, *numbers(replace(LAUNCH, run="another"), 1)}) == 4
