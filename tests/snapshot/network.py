"""A schedule for the machines of a graph, and their coordinator; every choice comes from ``choose(n) -> int``.

Has as much of a coordinator as the machines need: ids, floors, aborts, publishing, ends of cycles, restarts. Checks
every snapshot that completes against `tests.snapshot.truth`. Must not know any rule of the protocol: those live in
the machines, where mutants can take them away.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from snapshot.channel.frame import PayloadKind
from snapshot.channel.output_buffer import Spill
from snapshot.coordinator.termination import ended_components, is_final
from snapshot.ids import ChannelId, Subtask
from snapshot.plan.compiled_graph import CompiledGraph
from snapshot.stored.certificate import SubtaskRecord
from snapshot.stored.contribution import SnapshotTaken, parts_of, record_of
from snapshot.stored.manifest import Manifest
from snapshot.stored.topology_record import record_of_topology
from snapshot.subtask.events import (
    AlignmentTimedOut,
    ComponentEnded,
    MinSnapshotIdRaised,
    RequestAnswered,
    SnapshotPublished,
    SnapshotRequested,
)
from snapshot.subtask.limits import SubtaskLimits
from snapshot.subtask.machine import Status, SubtaskMachine
from snapshot.subtask.recorder import Phase
from snapshot.subtask.reports import AlignmentStarted, Report, SnapshotAsked, SnapshotFailed
from tests.snapshot.hosting import RUN, Hosting
from tests.snapshot.memory_spill import MemorySpill
from tests.snapshot.truth import CheckFailed
from tests.snapshot.walkers import Choose, Plan

#: Rounds that a quiet network may need to end; a run needs about ten per hop and cycle.
_ROUNDS_MAX = 300

#: Snapshots that may run at one time.
_RUNNING_MAX = 3


class Network(Hosting):
    """A graph's machines, a schedule for them, and their coordinator.

    Parameters
    ----------
    compiled : CompiledGraph
        The graph of `plans`.
    choose : callable
        ``choose(n)`` returns a number below n; it decides everything.
    crossing : bool
        Requests don't carry the running ids and may overtake each other, so that ids cross (PROTOCOL 3.3).
    anywhere : bool
        Requests go to subtasks with aligned inputs too, against PROTOCOL 4.2.
    window : int, optional
        Payload bytes that a channel's receiver grants (PROTOCOL 9.1); None: no limit.
    """

    def __init__(
        self,
        compiled: CompiledGraph,
        plans: dict[str, Plan],
        choose: Choose,
        *,
        crossing: bool = False,
        anywhere: bool = False,
        window: int | None = None,
        limits: SubtaskLimits | None = None,
        spill_of: Callable[[ChannelId], Spill | None] = lambda channel: MemorySpill(),
    ) -> None:
        super().__init__(
            compiled,
            plans,
            is_ordered=not crossing,
            window=window,
            limits=limits or SubtaskLimits(),
            spill_of=spill_of,
        )
        self.choose = choose
        self.crossing = crossing
        self.next_id = 1
        self.published: list[Manifest] = []
        self._initiators = [
            subtask
            for subtask in self.topology.subtasks
            if anywhere or not any(self.topology.edge_of(c).alignment.aligned for c in self.topology.inputs_of(subtask))
        ]
        self._actions = self._weighted_actions()
        self.restart()

    def restart(self) -> None:
        """A crash of everything, and the rollback that follows it."""
        self.running: dict[int, dict[Subtask, SubtaskRecord]] = {}
        self.timeouts: dict[Subtask, deque[int]] = {subtask: deque() for subtask in self.topology.subtasks}
        self.start_all(self.published[-1] if self.published else None)

    # ---------------------------------------------------------------- one step

    def _weighted_actions(self) -> list[Callable[[Subtask], None]]:
        weights: list[tuple[int, Callable[[Subtask], None]]] = [
            (5, self.act_run), (2, self.act_seal), (7, self.act_take), (7, self.act_deliver),
            (4, self.act_control), (1, self.act_time_out), (1, self.act_initiate),
        ]  # fmt: skip
        return [action for weight, action in weights for _ in range(weight)]

    def step(self) -> None:
        """One action of one subtask, then every invariant of it."""
        subtask = self.topology.subtasks[self.choose(len(self.topology.subtasks))]
        self._actions[self.choose(len(self._actions))](subtask)
        self.settle(subtask)

    def settle(self, subtask: Subtask) -> None:
        """Look at a machine after anything happened to it."""
        machine = self.machines[subtask]
        self.truth.raise_failure()
        machine.validate()
        for report in machine.take_reports():
            self._report(subtask, report)

    def act_run(self, subtask: Subtask) -> None:
        """A turn of a few messages, or a few of one channel only."""
        machine = self.machines[subtask]
        self.now += 0.25
        if machine.status not in (Status.RUNNING, Status.ENDED):
            return
        if machine.inputs and self.choose(2):
            channels = list(machine.inputs)
            machine.handle_next(channels[self.choose(len(channels))], self.now, 1 + self.choose(2))
        else:
            machine.run(self.now, 1 + self.choose(4))

    def act_seal(self, subtask: Subtask) -> None:
        """One frame is closed, or all."""
        machine = self.machines[subtask]
        ends = [end for end in machine.outputs.values() if end.has_open_frame]
        if ends and self.choose(2):
            ends[self.choose(len(ends))].seal()
        else:
            machine.seal()

    def act_take(self, subtask: Subtask) -> None:
        """One item goes on a link."""
        waiting = [end for end in self.machines[subtask].outputs.values() if self.may_take(end)]
        if waiting:
            self.take(waiting[self.choose(len(waiting))])

    def act_deliver(self, subtask: Subtask) -> None:
        """One item comes off a link."""
        channels = [channel for channel in self.topology.inputs_of(subtask) if self.links[channel]]
        if channels and self.is_started(subtask):
            self.deliver(channels[self.choose(len(channels))])

    def act_control(self, subtask: Subtask) -> None:
        """What the coordinator said last is heard."""
        if self.controls[subtask]:
            self.controls[subtask].popleft()(self.machines[subtask])

    def act_time_out(self, subtask: Subtask) -> None:
        """Time to align is over; alignments that began earlier are over earlier."""
        if self.timeouts[subtask]:
            snapshot_id = self.timeouts[subtask].popleft()
            machine = self.machines[subtask]
            self.seen["alignment timed out"] += machine.snapshotter.recorder.phase(snapshot_id) is Phase.ALIGNING
            machine.step(AlignmentTimedOut(snapshot_id), 0.0)

    def act_initiate(self, subtask: Subtask) -> None:
        """A snapshot starts at some subtasks, which reach all others; now and then one that runs is aborted."""
        if len(self.running) < _RUNNING_MAX and not self.choose(2):
            self.initiate([s for s in self._initiators if not self.choose(3)])
        elif self.running and not self.choose(6):
            self.abort(list(self.running)[self.choose(len(self.running))])

    # ---------------------------------------------------------------- as much of a coordinator as is needed

    @property
    def lowest(self) -> int:
        """The lowest id that is not settled."""
        return min(self.running, default=self.next_id)

    def initiate(self, initiators: Sequence[Subtask] = ()) -> int:
        """Start a snapshot at `initiators`, and wherever these do not reach."""
        reached = self.topology.reachable(initiators)
        starting = [*initiators, *(s for s in self.topology.initiators() if s not in reached)]
        snapshot_id, running = self.next_id, () if self.crossing else tuple(self.running)
        self.next_id += 1
        self.running[snapshot_id] = {}
        lowest = self.lowest
        for subtask in starting:
            place = self.choose(len(self.controls[subtask]) + 1) if self.crossing else len(self.controls[subtask])
            place = max(place, int(not self.is_started(subtask)))  # never before the start
            self.controls[subtask].insert(place, lambda m: m.step(SnapshotRequested(snapshot_id, running, lowest), 0.0))
        return snapshot_id

    def abort(self, snapshot_id: int) -> None:
        """Give up a running snapshot."""
        del self.running[snapshot_id]
        self._send_all(lambda m, lowest=self.lowest: m.step(MinSnapshotIdRaised(lowest), 0.0))  # type: ignore[misc]  # a default binds it now
        self._publish()

    def _send_all(self, control: Callable[[SubtaskMachine], None]) -> None:
        for controls in self.controls.values():
            controls.append(control)

    def _report(self, subtask: Subtask, report: Report) -> None:
        match report:
            case SnapshotTaken():
                self._collect(report)
            case SnapshotFailed() if report.snapshot_id in self.running:
                self.abort(report.snapshot_id)
            case AlignmentStarted():
                self.timeouts[subtask].append(report.snapshot_id)
            case SnapshotAsked():
                self.controls[subtask].append(lambda m: m.step(RequestAnswered(), 0.0))
            case _:
                pass

    def _collect(self, taken: SnapshotTaken) -> None:
        if taken.snapshot_id < self.machines[taken.subtask].snapshotter.recorder.min_snapshot_id:
            raise CheckFailed("floor", f"{taken.subtask} hands out {taken.snapshot_id}, which is settled")
        if taken.snapshot_id not in self.running:
            return
        self.seen["receiver's part"] += any(cut.frames for cut in taken.received.values())
        self.seen["sender's part"] += any(cut.frames for cut in taken.sent.values())
        self.seen["end in flight"] += any(f.kind is PayloadKind.END for c in taken.received.values() for f in c.frames)
        waiting = [c for c, cut in taken.received.items() if cut.processed < self.restored.get(c, 0)]
        self.seen["snapshot before restored messages drained"] += bool(waiting)
        records = self.running[taken.snapshot_id]
        if taken.subtask in records:
            raise CheckFailed("completeness", f"{taken.subtask} hands out {taken.snapshot_id} twice")
        handles = [part.inline() for part in parts_of(taken, RUN, self.incarnation)]
        records[taken.subtask] = record_of(taken, self.incarnation, handles)
        if len(records) == len(self.topology.subtasks):
            self.truth.check(taken.snapshot_id, list(records.values()), self.incarnation)
            self._publish()

    def _publish(self) -> None:
        """Publish what is complete, in order."""
        while self.running:
            snapshot_id, records = min(self.running.items())
            if len(records) < len(self.topology.subtasks):
                return
            del self.running[snapshot_id]
            all_records = tuple(records.values())
            self.published.append(
                Manifest(
                    run=RUN, snapshot_id=snapshot_id, incarnation=self.incarnation, claim=1, timestamp=self.now,
                    duration=0.0, final=is_final(all_records), pinned=False, topology=record_of_topology(self.topology),
                    records=all_records,
                )
            )  # fmt: skip
            lowest = self.lowest
            self._send_all(lambda m, f=lowest: m.step(MinSnapshotIdRaised(f), self.now))  # type: ignore[misc]
            self._send_all(lambda m, s=snapshot_id: m.step(SnapshotPublished(s), self.now))  # type: ignore[misc]
            ended = [name for part in ended_components(self.topology, all_records) for name in part.nodes]
            for subtask in [s for s in self.topology.subtasks if s.node in ended]:
                self.controls[subtask].append(lambda m: m.step(ComponentEnded(), self.now))

    # ---------------------------------------------------------------- to the end

    def finish(self) -> None:
        """No more faults: the run comes to its end, shown by a final snapshot (checkers 6 and 9)."""
        for _ in range(_ROUNDS_MAX):
            if self.published and self.published[-1].final and not self.running:
                break
            if self.round() or any(self.controls.values()):
                continue
            if any(self.timeouts.values()):
                for subtask in self.topology.subtasks:
                    self.act_time_out(subtask)
                    self.settle(subtask)
            elif self.running:
                raise CheckFailed("liveness", f"snapshots {list(self.running)} never complete")
            else:
                self.initiate()
        else:
            raise CheckFailed("liveness", "the run does not end")
        self._check_nothing_left()
        self.truth.check_end(self.published[-1].records, self.store)

    def round(self) -> int:
        """Every subtask does all that it can do once; returns what was done."""
        self.now += 1.0
        done = 0
        for subtask, machine in self.machines.items():
            while self.controls[subtask]:
                self.act_control(subtask)
            if self.is_started(subtask):
                done += machine.run(self.now, 100)
                done += machine.next_wake() is not None
            machine.seal()
            self.settle(subtask)
            done += self.flush(subtask)
        return done

    def flush(self, subtask: Subtask) -> int:
        """All that waits in out-buffers and on links out of `subtask` arrives."""
        done = 0
        for channel, end in self.machines[subtask].outputs.items():
            while self.may_take(end):
                self.take(end)
            while self.links[channel] and self.is_started(channel.target):
                self.deliver(channel)
                self.settle(channel.target)
                done += 1
        self.settle(subtask)
        return done

    def _check_nothing_left(self) -> None:
        while any(self.controls.values()):
            self.round()
        for subtask, machine in self.machines.items():
            left = [s for s in range(1, self.next_id) if machine.snapshotter.recorder.phase(s) is not None]
            recorded = sum(end.recorded_bytes for end in machine.inputs.values())
            if left or recorded:
                raise CheckFailed(
                    "floor", f"{subtask} still knows {left} and records {recorded} bytes; all are settled"
                )
