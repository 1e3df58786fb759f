"""Makes the subtasks of one worker from their restored parts."""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Callable
from random import Random
from typing import Any

import xxhash

from cutline.barrier_runtime.launch import WorkerLaunch
from cutline.barrier_runtime.logs import subtask_logger
from cutline.barrier_runtime.tracing.trace_observer import TraceObserver
from cutline.channels.spill import SpillFile
from cutline.snapshot.assembly import assemble
from cutline.snapshot.channel.kept_memory import KeptMemory
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.plan.compiled_graph import CompiledGraph
from cutline.snapshot.subtask.environment import SubtaskEnvironment
from cutline.snapshot.subtask.machine import SubtaskMachine
from cutline.snapshot.worker.restored_parts import RestoredParts
from cutline.state_backends.local_versions import LocalVersions


def make_machines(
    parts: RestoredParts,
    compiled: CompiledGraph,
    launch: WorkerLaunch,
    memory: KeptMemory,
    wake: Callable[[], None],
    logger: logging.LoggerAdapter[Any],
    versions: LocalVersions | None,
) -> dict[Subtask, SubtaskMachine]:
    """Make fresh machines with restored channels. Node states are not restored yet.

    Raises
    ------
    NodeError
        if a node cannot be unpickled in this process.
    """
    incarnation = parts.deploy.incarnation

    def spill_of(channel: ChannelId) -> SpillFile:
        return SpillFile(str(channel), tempfile.gettempdir())

    def chance_of(subtask: Subtask) -> Random:
        # Give each incarnation the same numbers, because a generator is saved only once it was used.
        return Random(xxhash.xxh3_64_intdigest(f"{launch.run}/{subtask}".encode()))  # not a secret

    snapshot_ids = {each.subtask: 0 if each.state is None else each.state.snapshot_id for each in parts.deploy.subtasks}

    def observer_of(subtask: Subtask) -> TraceObserver | None:
        if not launch.trace:
            return None
        return TraceObserver(subtask, compiled.topology, incarnation, snapshot_ids[subtask])

    environment = SubtaskEnvironment(
        run=launch.run,
        incarnation=incarnation,
        codec=Codec(safe=launch.safe, memory=memory, names=compiled.program_names()),
        limits=launch.limits,
        spill_of=spill_of,
        logger_of=lambda subtask: subtask_logger(launch.run, incarnation, subtask),
        chance_of=chance_of,
        stopwatch=time.monotonic,
        observer_of=observer_of,
        tier_of=launch.keyed_state.tiers(incarnation, len(snapshot_ids), wake, versions),
    )
    logger.info("deploying %d subtasks in incarnation %d", len(parts.deploy.subtasks), incarnation)
    return {
        subtask: SubtaskMachine(assemble(subtask, compiled, environment, parts.channels[subtask]))
        for subtask in snapshot_ids
    }
