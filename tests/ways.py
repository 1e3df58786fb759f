"""Count the files and functions that a message, a snapshot and an alignment time-out pass.

``python -m tests.ways`` prints them.

A graph of two nodes runs in one worker: its machine, its data plane, its storage records. The message is followed from
`send` to `onMessage`; the snapshot from the trigger's arrival to the encoded manifest. Functions of libraries and of
the nodes themselves do not count.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

from cutline import Context, Graph, Node, Source
from cutline.barrier_runtime.worker.data_plane import DataPlane
from cutline.snapshot.assembly import assemble, collector_of, ledgers_of
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.coordinator.control import Connect, Deploy, RestoredSubtask, StartProcessing, TriggerSnapshot
from cutline.snapshot.ids import Subtask
from cutline.snapshot.plan.compiled_graph import build
from cutline.snapshot.plan.declarations import AlignmentWish
from cutline.snapshot.stored.contribution import parts_of, record_of
from cutline.snapshot.stored.manifest import Manifest, encode_manifest
from cutline.snapshot.stored.topology_record import record_of_topology
from cutline.snapshot.subtask.environment import SubtaskEnvironment
from cutline.snapshot.subtask.limits import SubtaskLimits
from cutline.snapshot.subtask.machine import SubtaskMachine
from cutline.snapshot.subtask.restored import RestoredChannels
from cutline.snapshot.worker.events import (
    CoordinatorMessageReceived,
    DeadlinePassed,
    PartsRead,
    PeersConnected,
    StoreParts,
    TurnEnded,
)
from cutline.snapshot.worker.machine import WorkerMachine
from cutline.snapshot.worker.restored_parts import RestoredParts
from tests.source_files import PACKAGES, ROOT

_A, _B = Subtask("a"), Subtask("b")

#: {file: its functions}, in the order in which they were called first
Way = dict[str, dict[str, None]]


class _OneAnHour(Source):
    """Sends one message at each poll."""

    def poll(self, context: Context) -> float:
        context.send(("key", 1))
        return 3600.0

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return None

    def restoreState(self, state: Any) -> None:
        pass


class _Last(Node):
    """Keeps the last message."""

    def onMessage(self, message: Any, context: Context) -> None:
        self.last = message

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return None

    def restoreState(self, state: Any) -> None:
        pass


@cache
def _resolved(name: str) -> Path:
    """Return the file that a link of `cutline/` leads to."""
    return Path(name).resolve()


def followed(act: Callable[[], object]) -> Way:
    """Return the functions of the packages that `act` calls."""
    way: Way = {}

    def note(frame: FrameType, event: str, argument: object) -> None:
        path = _resolved(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in PACKAGES:
            way.setdefault(path.relative_to(ROOT).as_posix(), {})[frame.f_code.co_qualname] = None

    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(None)
    return way


class _Worker:
    """One worker with both nodes, running.

    Parameters
    ----------
    alignment : "unaligned" or float
    sources : int
        Subtasks of the node that sends.
    """

    def __init__(self, alignment: AlignmentWish = "unaligned", sources: int = 1) -> None:
        graph = Graph("ways").add("a", _OneAnHour(), parallelism=sources).add("b", _Last())
        self.compiled = build(graph.connect("a", "b", key=lambda message: message[0]), alignment)
        subtasks = self.compiled.topology.subtasks
        environment = SubtaskEnvironment(
            "ways", 1, Codec(), SubtaskLimits(), lambda _: None,
            lambda _: logging.LoggerAdapter(logging.getLogger("ways"), {}), lambda _: Random(1), lambda: 0.0,
        )  # fmt: skip

        def make(parts: RestoredParts) -> dict[Subtask, SubtaskMachine]:
            return {
                each: SubtaskMachine(assemble(each, self.compiled, environment, parts.channels[each]))
                for each in subtasks
            }

        self.machine = WorkerMachine(0, make, ledgers_of, collector_of)
        deploy = Deploy(1, tuple(RestoredSubtask(each, None, (), (), ()) for each in subtasks), has_more=False)
        parts = RestoredParts(deploy, dict.fromkeys(subtasks), {each: RestoredChannels() for each in subtasks})
        for event in (
            CoordinatorMessageReceived(deploy),
            PartsRead(parts),
            CoordinatorMessageReceived(Connect(1, ())),
            PeersConnected(1),
            CoordinatorMessageReceived(StartProcessing(1)),
        ):
            self.machine.step(event, 0.0)
        topology = self.compiled.topology
        self.plane = DataPlane(0, 1, topology, topology.place(1), self.machine.subtasks)

    def message(self, now: float) -> None:
        """Have the message of this hour sent and handled."""
        target: Any = self.machine.subtasks[_B].node
        target.last = None
        while target.last is None:
            self.plane.turn(now)

    def snapshot(self) -> None:
        """Have a snapshot triggered, taken by both subtasks, and put into a manifest."""
        effects = self.machine.step(CoordinatorMessageReceived(TriggerSnapshot(1, 5, (_A,), (), 5)), 0.0)
        while not any(isinstance(effect, StoreParts) for effect in effects):
            self.plane.flush(0.0)
            self.plane.turn(0.0)
            effects = self.machine.step(TurnEnded(False), 0.0)
        [store] = [effect for effect in effects if isinstance(effect, StoreParts)]
        records = []
        for upload in store.uploads:
            handles = [part.inline() for part in parts_of(upload.taken, "ways", 1)]
            records.append(record_of(upload.taken, 1, handles))
        manifest = Manifest(
            run="ways", snapshot_id=5, incarnation=1, claim=1, timestamp=0.0, duration=0.0, final=False, pinned=False,
            topology=record_of_topology(self.compiled.topology), records=tuple(records),
        )  # fmt: skip
        encode_manifest(manifest)

    def begin_alignment(self) -> None:
        """Have the marker of one source held, because the marker of the other one has not come."""
        self.machine.step(CoordinatorMessageReceived(TriggerSnapshot(1, 5, (_A,), (), 5)), 0.0)
        while not self.machine.deadlines:
            self.plane.flush(0.0)
            self.plane.turn(0.0)
            self.machine.step(TurnEnded(False), 0.0)

    def time_out(self) -> None:
        """Have the alignment end by its deadline."""
        [deadline] = self.machine.passed_deadlines(60.0)
        self.machine.step(DeadlinePassed(deadline), 60.0)


def ways() -> dict[str, Way]:
    """Return all ways: {what is followed: its files and functions}."""
    worker, aligning = _Worker(), _Worker(1.0, sources=2)
    aligning.begin_alignment()
    worker.message(0.0)  # because its shape is learnt, and its key
    return {
        "message": followed(lambda: worker.message(3600.0)),
        "snapshot": followed(worker.snapshot),
        "alignment time-out": followed(aligning.time_out),
    }


def main() -> None:
    """Print all ways."""
    for what, way in ways().items():
        print(f"{what}: {len(way)} files, {sum(map(len, way.values()))} functions")
        for path, functions in way.items():
            print(f"  {path}: {', '.join(functions)}")


if __name__ == "__main__":
    main()
