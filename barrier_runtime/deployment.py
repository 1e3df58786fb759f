"""Makes the subtasks of one worker from what was read for them."""

from __future__ import annotations

import logging
import time
from random import Random
from typing import Any

import xxhash

from barrier_runtime.launch import WorkerLaunch
from barrier_runtime.logs import subtask_logger
from barrier_runtime.tracing.traced_machine import traced_machine
from channels.spill import SpillFile
from snapshot.channel.kept_memory import KeptMemory
from snapshot.channel.serialization import Codec
from snapshot.declared.built import Built
from snapshot.ids import ChannelId, Subtask
from snapshot.subtask.assembly import Surroundings, assemble
from snapshot.subtask.machine import SubtaskMachine
from snapshot.worker.restored_parts import RestoredParts


def make_machines(
    parts: RestoredParts,
    built: Built,
    launch: WorkerLaunch,
    memory: KeptMemory,
    logger: logging.LoggerAdapter[Any],
) -> dict[Subtask, SubtaskMachine]:
    """Fresh machines with restored channels; their states are still to be restored.

    Raises
    ------
    NodeError
        if a node cannot be unpickled here.
    """
    incarnation = parts.deploy.incarnation

    def spill_of(channel: ChannelId) -> SpillFile:
        return SpillFile(str(channel), launch.spill_folder)

    def chance_of(subtask: Subtask) -> Random:
        # Chance is saved in snapshots; before the first one a rollback may well begin differently.
        return Random(xxhash.xxh3_64_intdigest(f"{launch.launch}/{incarnation}/{subtask}".encode()))  # no secret

    around = Surroundings(
        run=launch.run,
        incarnation=incarnation,
        codec=Codec(safe=launch.safe, memory=memory),
        limits=launch.limits,
        spill_of=spill_of,
        logger_of=lambda subtask: subtask_logger(launch.run, incarnation, subtask),
        chance_of=chance_of,
        stopwatch=time.monotonic,
    )
    logger.info("deploying %d subtasks in incarnation %d", len(parts.deploy.subtasks), incarnation)
    machines: dict[Subtask, SubtaskMachine] = {}
    for restored in parts.deploy.subtasks:
        made_of = assemble(restored.subtask, built, around, parts.channels[restored.subtask])
        if launch.trace:
            machines[restored.subtask] = traced_machine(made_of, incarnation, restored.state)
        else:
            machines[restored.subtask] = SubtaskMachine(made_of)
    return machines
