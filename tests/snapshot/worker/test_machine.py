"""The worker's machine: events in, effects out, with real subtasks."""

from __future__ import annotations

import pytest

from cutline.snapshot.channel.frame import Marker
from cutline.snapshot.coordinator import control
from cutline.snapshot.errors import ChannelError, CutlineError, GraphError, NodeError, RestoreRefused, SnapshotCorrupt
from cutline.snapshot.ids import Subtask
from cutline.snapshot.subtask.events import ControlEvent, MarkerArrived
from cutline.snapshot.subtask.machine import SubtaskMachine
from cutline.snapshot.worker import events
from cutline.snapshot.worker.events import AlignmentDeadline, IdleDeadline, RequestDeadline, Stage, UploadDeadline
from cutline.snapshot.worker.machine import WorkerSettings
from cutline.snapshot.worker.upload_batcher import BATCH_SECONDS_MAX
from tests.snapshot.worker.programs import A, B, Ends, Machine, Numbers, deploy, sent


def names(effects: list[events.Effect]) -> list[str]:
    """The names of effects, but for logs."""
    return [type(effect).__name__ for effect in effects if not isinstance(effect, events.Log)]


def test_a_rollback_step_by_step() -> None:
    """Each message of a rollback has its effects and its answer (PROTOCOL 6.1, rollback)."""
    worker = Machine()
    assert worker.receive(control.Welcome(1, 4)) == []
    assert worker.receive(deploy(1)) == [events.AdmitPeers(1), events.ReadParts(deploy(1))]
    assert names(effects := worker.read(1)) == ["OpenDataPlane", "SendToCoordinator"]
    assert sent(effects) == [control.WorkerRestored(3, 1)]
    assert worker.receive(control.Connect(1, (b"x", b"y"))) == [events.DialPeers(1, (b"x", b"y"))]
    assert sent(worker.step(events.PeersConnected(1))) == [control.WorkerConnected(3, 1)]
    assert names(worker.receive(control.StartProcessing(1))) == ["FlushLinks", "ReadPeers"]
    assert worker.machine.stage is Stage.RUNNING


def test_a_later_incarnation_replaces_the_data() -> None:
    """Connections are dropped first, because peers are to notice at once; then the nodes are closed."""
    worker = Machine()
    worker.start()
    machines = tuple(worker.machine.subtasks.values())
    assert worker.receive(deploy(2)) == [
        events.DropConnections(),
        events.CloseSubtasks(machines),
        events.AdmitPeers(2),
        events.ReadParts(deploy(2)),
    ]
    assert (worker.machine.stage, worker.machine.incarnation) == (Stage.RESTORING, 2)


def test_a_deployment_in_chunks_is_read_once_whole() -> None:
    """Each chunk but the last is confirmed; an earlier incarnation is dropped."""
    worker = Machine()
    first = control.Deploy(2, deploy(2).subtasks[:1], has_more=True)
    assert sent(worker.receive(first)) == [control.DeployTaken(3, 2)]
    assert names(worker.receive(deploy(1))) == []
    last = control.Deploy(2, deploy(2).subtasks[1:], has_more=False)
    assert worker.receive(last) == [events.ReadParts(deploy(2))]


@pytest.mark.parametrize(
    "message",
    [
        control.Connect(1, ()),
        control.StartProcessing(1),
        control.TriggerSnapshot(1, 5, (A,), (), 5),
        control.AnswerSnapshotRequest(1, A),
        control.DiscardSnapshotsBelow(1, 5),
        control.AnnouncePublished(1, 5, 5, is_last=False),
        control.EndComponent(1, ("a",)),
    ],
    ids=lambda message: type(message).__name__,
)
def test_messages_of_another_incarnation_are_dropped(message: control.CoordinatorMessage) -> None:
    """The data that they are about is gone; the same message of this incarnation has effects where it is due."""
    worker = Machine()
    worker.start(2)
    assert names(worker.receive(message)) == []
    assert worker.machine.stage is Stage.RUNNING


def test_messages_of_a_rollback_out_of_order_are_dropped() -> None:
    """Peers are dialled once the subtasks are restored, and nothing acts before all are connected (PROTOCOL 5.4)."""
    worker = Machine()
    worker.receive(deploy(1))
    assert names(worker.receive(control.Connect(1, ()), control.StartProcessing(1))) == []
    worker.read(1)
    assert names(worker.receive(control.StartProcessing(1))) == []
    worker.receive(control.Connect(1, ()))
    assert names(worker.receive(control.Connect(1, ()), control.StartProcessing(1))) == []
    assert worker.machine.stage is Stage.CONNECTING


def test_late_reads_and_late_connections_are_dropped() -> None:
    """Threads and peers report about an incarnation that was replaced meanwhile."""
    worker = Machine()
    worker.receive(deploy(1), deploy(2))
    assert worker.read(1) == []
    assert worker.step(events.PartsUnreadable(1, OSError("late"))) == []
    worker.read(2)
    assert worker.read(2) == []
    assert worker.step(events.PartsUnreadable(2, OSError("late"))) == []
    worker.receive(control.Connect(2, ()))
    assert worker.step(events.PeersConnected(1)) == []
    assert worker.step(events.PeerLost(1, "late")) == []
    assert worker.machine.stage is Stage.CONNECTING


def test_a_lower_claim_is_not_obeyed() -> None:
    """A fenced coordinator may still be alive (PROTOCOL 7); the connection to it is closed."""
    worker = Machine()
    worker.receive(control.Welcome(7, 4))
    for _ in range(2):  # also the second time, because a refused claim does not lower the limit
        assert names(worker.receive(control.Welcome(6, 4))) == ["DisconnectCoordinator"]
    assert worker.receive(control.Welcome(7, 4)) == worker.receive(control.Welcome(8, 4)) == []
    assert names(worker.receive(control.Welcome(7, 4))) == ["DisconnectCoordinator"]


def test_messages_of_a_fenced_coordinator_are_dropped() -> None:
    """They may have been queued behind its Welcome: a deployment would roll back, a Quit would end the stage."""
    worker = Machine()
    worker.receive(control.Welcome(7, 4))
    worker.receive(control.Welcome(6, 4))
    assert names(worker.receive(control.Quit("the old one gives up"))) == []
    assert names(worker.receive(control.Finish("the old one is done"))) == []
    worker.step(events.CoordinatorConnected())
    worker.receive(control.Welcome(8, 4))
    assert names(worker.receive(control.Quit("the new one gives up"))) == ["Leave"]


def test_a_new_connection_ends_the_fence() -> None:
    """The message that comes before a Welcome is of another coordinator than the refused one."""
    worker = Machine()
    worker.receive(control.Welcome(7, 4))
    worker.receive(control.Welcome(6, 4))
    worker.step(events.CoordinatorConnected())
    assert names(worker.receive(control.Finish("the run is over"))) == ["Leave"]


def test_a_registration_says_what_runs() -> None:
    """Zero before the start and after a failure, because a new coordinator adopts only what runs."""
    worker = Machine()
    assert worker.step(events.CoordinatorConnected()) == [events.Register(0)]
    worker.start(2)
    assert worker.step(events.CoordinatorConnected()) == [events.Register(2)]
    worker.step(events.DataFailed(NodeError("x")))
    assert worker.step(events.CoordinatorConnected()) == [events.Register(0)]


# ---------------------------------------------------------------- failures


@pytest.mark.parametrize(
    ("error", "is_permanent"),
    [
        (NodeError("n"), False),
        (RestoreRefused("r"), True),
        (SnapshotCorrupt("c"), True),
        (GraphError("g"), True),
    ],
    ids=lambda each: type(each).__name__,
)
def test_a_failure_is_reported_once_and_says_whether_it_is_permanent(error: CutlineError, is_permanent: bool) -> None:
    """Nothing runs after the first failure, so nothing else is reported."""
    worker = Machine()
    worker.start()
    effects = worker.step(events.DataFailed(error))
    assert sent(effects) == [control.WorkerFailed(3, 1, str(error), is_permanent)]
    assert names(effects) == ["SendToCoordinator", "DropConnections"]
    assert worker.step(events.DataFailed(error)) == worker.step(events.PeerLost(1, "gone")) == []
    assert names(worker.receive(control.TriggerSnapshot(1, 5, (A,), (), 5))) == []
    assert worker.turn() == []


def test_a_failure_ends_every_deadline() -> None:
    """Nothing runs any more that could miss one."""
    worker = Machine(Numbers("ask"))
    worker.start()
    assert worker.machine.deadlines
    worker.step(events.DataFailed(NodeError("x")))
    assert worker.machine.deadlines == {}


def test_unreadable_parts_are_permanent_where_they_are_damaged() -> None:
    """A store that fails for a moment is tried again; a damaged part is not."""
    for error, is_permanent in ((OSError("busy"), False), (SnapshotCorrupt("torn"), True)):
        worker = Machine()
        worker.receive(deploy(1))
        effects = worker.step(events.PartsUnreadable(1, error))
        assert sent(effects) == [control.WorkerFailed(3, 1, str(error), is_permanent)]


def test_a_lost_peer_is_reported_after_a_while() -> None:
    """The peer's own reason comes first; a new deployment makes the report needless."""
    worker = Machine()
    worker.start()
    assert names(worker.step(events.PeerLost(1, "silence"))) == ["DropConnections"]
    at = worker.machine.next_deadline()
    assert at == worker.now + WorkerSettings().failure_report_seconds
    [deadline] = worker.machine.passed_deadlines(at)
    assert sent(worker.step(events.DeadlinePassed(deadline))) == [control.WorkerFailed(3, 1, "silence", False)]
    worker.start(2)
    worker.step(events.DataFailed(ChannelError("again")))
    worker.receive(deploy(3))
    assert worker.step(events.DeadlinePassed(deadline)) == []


def test_a_hook_that_raises_in_a_control_event_fails_the_worker() -> None:
    """Effects ahead of the failure stay; the connections are dropped."""
    worker = Machine(Numbers("onStart"))
    effects = worker.start()
    [failed] = sent(effects)
    assert isinstance(failed, control.WorkerFailed) and "scheduled: onStart" in failed.reason
    assert names(effects)[-1] == "DropConnections"
    assert worker.machine.stage is Stage.FAILED


def test_a_failed_worker_takes_the_chunks_of_its_next_deployment() -> None:
    """PROTOCOL 6.1: the next Deploy begins anew."""
    worker = Machine()
    worker.start()
    worker.step(events.DataFailed(NodeError("x")))
    assert names(worker.receive(deploy(2)))[-2:] == ["AdmitPeers", "ReadParts"]
    worker.step(events.PartsUnreadable(2, OSError("busy")))
    assert sent(worker.receive(deploy(2, has_more=True))) == [control.DeployTaken(3, 2)]
    assert names(worker.receive(deploy(2))) == []


# ---------------------------------------------------------------- snapshots


def snapshot(worker: Machine, snapshot_id: int) -> list[events.Effect]:
    """Both subtasks start a snapshot, and the marker between them is passed on."""
    effects = worker.receive(control.TriggerSnapshot(1, snapshot_id, (A, B), (), snapshot_id))
    [(channel, end)] = worker.machine.subtasks[A].outputs.items()
    marker = end.buffer.take()
    assert isinstance(marker, Marker)
    worker.machine.subtasks[B].step(MarkerArrived(channel, marker), worker.now)
    return effects + worker.turn()


def test_contributions_are_uploaded_together_and_acknowledged_once_stored() -> None:
    """One upload for both subtasks; the acknowledgement is sent when the shell reports that it is stored."""
    worker = Machine()
    worker.start()
    [store] = [effect for effect in snapshot(worker, 5) if isinstance(effect, events.StoreParts)]
    assert store.incarnation == 1
    assert sorted(str(upload.taken.subtask) for upload in store.uploads) == ["a[0]", "b[0]"]
    assert UploadDeadline(5) not in worker.machine.deadlines
    stored = control.SnapshotDeclined(1, 5, A, "stored or not")
    assert sent(worker.step(events.PartsStored((stored,)))) == [stored]


def test_a_contribution_does_not_wait_for_long() -> None:
    """The deadline uploads what waits; a snapshot below the minimum is never uploaded."""
    worker = Machine()
    worker.start()
    worker.receive(control.TriggerSnapshot(1, 5, (A,), (), 5))
    [end] = worker.machine.subtasks[A].outputs.values()
    end.buffer.take()
    assert names(worker.turn()) == []
    assert worker.machine.deadlines[UploadDeadline(5)] == worker.now + BATCH_SECONDS_MAX
    [store] = worker.step(events.DeadlinePassed(UploadDeadline(5)))
    assert isinstance(store, events.StoreParts) and [each.taken.subtask for each in store.uploads] == [A]
    worker.receive(control.TriggerSnapshot(1, 6, (A,), (), 6))
    end.buffer.take()
    worker.turn()
    worker.receive(control.DiscardSnapshotsBelow(1, 7))
    assert worker.machine.deadlines == {}
    worker.machine.deadlines[UploadDeadline(6)] = worker.now  # as if the deadline had been forgotten
    assert worker.step(events.DeadlinePassed(UploadDeadline(6))) == []


def test_a_failing_state_declines_its_snapshot() -> None:
    """The run goes on."""
    worker = Machine(Numbers("snapshotState"))
    worker.start()
    [declined] = sent(worker.receive(control.TriggerSnapshot(1, 5, (A,), (), 5)))
    assert isinstance(declined, control.SnapshotDeclined) and declined.subtask == A
    assert worker.machine.stage is Stage.RUNNING


def test_commits_of_the_last_snapshot_are_reported_together() -> None:
    """One message a turn, for the last snapshot of the run only, because the coordinator waits for no other."""
    worker = Machine()
    worker.start()
    assert sent(worker.receive(control.AnnouncePublished(1, 4, 5, is_last=False))) == []
    assert sent(worker.receive(control.AnnouncePublished(1, 5, 6, is_last=True))) == [
        control.PublicationDone(1, 5, (A, B))
    ]
    worker.start(2)
    assert sent(worker.receive(control.AnnouncePublished(2, 5, 6, is_last=False))) == []


def test_a_request_is_answered_by_whatever_comes_first() -> None:
    """A trigger, an answer, a welcome of a new coordinator, or the deadline: each lets the node go on."""
    answers: list[list[control.CoordinatorMessage]] = [
        [control.TriggerSnapshot(1, 5, (A,), (), 5)],
        [control.AnswerSnapshotRequest(1, A)],
        [control.Welcome(2, 4)],
        [],
    ]
    for messages in answers:
        worker = Machine(Numbers("ask"))
        assert sent(worker.start()) == [control.SnapshotAskedFor(1, A)]
        gate = worker.machine.subtasks[A].backpressure
        assert gate.closed == 1
        assert worker.machine.deadlines[RequestDeadline(A)] == worker.now + WorkerSettings().request_seconds
        worker.receive(*messages)
        if not messages:
            worker.step(events.DeadlinePassed(RequestDeadline(A)))
        assert gate.closed == 0
        assert RequestDeadline(A) not in worker.machine.deadlines


def test_an_alignment_ends_by_its_deadline() -> None:
    """The deadline is set when the alignment begins, and is gone once the snapshot is settled."""
    worker = Machine(alignment=2.5)
    worker.start()
    worker.receive(control.TriggerSnapshot(1, 5, (A,), (), 5))
    deadline = AlignmentDeadline(5, A)
    assert worker.machine.deadlines[deadline] == worker.now + 2.5
    seen: list[Subtask] = []

    class Seen(SubtaskMachine):
        def step(self, event: ControlEvent, now: float) -> None:
            seen.append(self.subtask)
            super().step(event, now)

    for machine in worker.machine.subtasks.values():
        machine.__class__ = Seen
    assert names(worker.step(events.DeadlinePassed(deadline))) == ["FlushLinks"]
    assert seen == [A], "another subtask's alignment has a deadline of its own"
    assert worker.step(events.DeadlinePassed(deadline)) == []
    worker.receive(control.TriggerSnapshot(1, 6, (A,), (), 6))
    worker.receive(control.DiscardSnapshotsBelow(1, 7))
    assert not [each for each in worker.machine.deadlines if isinstance(each, AlignmentDeadline)]


def test_an_alignment_deadline_is_that_of_one_subtask() -> None:
    """Other subtasks of the worker align as long as their own deadlines allow."""
    worker = Machine(alignment=2.5)
    worker.start()
    worker.receive(control.TriggerSnapshot(1, 5, (A,), (), 5))
    worker.machine.deadlines[AlignmentDeadline(5, B)] = worker.now
    worker.step(events.DeadlinePassed(AlignmentDeadline(5, B)))
    [end] = worker.machine.subtasks[A].outputs.values()
    marker = end.buffer.take()
    assert isinstance(marker, Marker)
    assert marker.aligned


def test_deadlines_of_the_oldest_pending_snapshot_stay() -> None:
    """The minimum is the id of that snapshot. Without deadlines the snapshot would wait for ever."""
    worker = Machine(alignment=2.5)
    worker.start()
    worker.receive(control.TriggerSnapshot(1, 5, (A,), (), 5))
    [end] = worker.machine.subtasks[A].outputs.values()
    end.buffer.take()
    worker.turn()
    deadlines = {AlignmentDeadline(5, A), UploadDeadline(5)}
    worker.receive(control.DiscardSnapshotsBelow(1, 5))
    assert deadlines == worker.machine.deadlines.keys()
    worker.receive(control.AnnouncePublished(1, 4, 5, is_last=False))
    assert deadlines == worker.machine.deadlines.keys()
    [store] = worker.step(events.DeadlinePassed(UploadDeadline(5)))
    assert isinstance(store, events.StoreParts) and [each.taken.subtask for each in store.uploads] == [A]
    worker.receive(control.DiscardSnapshotsBelow(1, 6))
    assert not worker.machine.deadlines


# ---------------------------------------------------------------- idleness and the end


def test_idleness_is_reported_after_a_while_and_once() -> None:
    """A pause that is shorter is not reported; work is reported only where idleness was."""
    worker = Machine()
    worker.start()
    seconds = WorkerSettings().idle_seconds
    assert worker.turn(is_idle=True) == worker.turn(is_idle=False) == worker.turn(is_idle=True) == []
    assert worker.machine.next_deadline() == worker.now + seconds
    worker.now += seconds
    assert sent(worker.turn(is_idle=True)) == [control.WorkerIdle(3, 1, True)]
    assert worker.turn(is_idle=True) == []
    assert worker.machine.deadlines == {}
    assert sent(worker.turn(is_idle=False)) == [control.WorkerIdle(3, 1, False)]
    worker.turn(is_idle=True)
    assert sent(worker.step(events.DeadlinePassed(IdleDeadline()))) == [control.WorkerIdle(3, 1, True)]


def test_idleness_is_reported_again_to_a_new_coordinator() -> None:
    """A coordinator that was away knows nothing of it."""
    worker = Machine(settings=WorkerSettings(idle_seconds=0.0))
    worker.start()
    assert sent(worker.turn(is_idle=True)) == [control.WorkerIdle(3, 1, True)]
    worker.step(events.CoordinatorConnected())
    assert sent(worker.turn(is_idle=True)) == [control.WorkerIdle(3, 1, True)]
    worker.receive(control.EndComponent(1, ("b",)))
    assert sent(worker.turn(is_idle=True)) == [control.WorkerIdle(3, 1, True)]


def test_an_ended_subtask_brings_the_progress_report_forward() -> None:
    """A run that ends by itself is to have reported all that it did."""
    worker = Machine(Ends())
    worker.start()
    worker.machine.subtasks[A].run(worker.now, 10)
    assert "ReportProgress" in names(worker.turn())


@pytest.mark.parametrize(("message", "is_finished"), [(control.Finish("over"), True), (control.Quit("again"), False)])
def test_leaving_closes_everything(message: control.CoordinatorMessage, is_finished: bool) -> None:
    """The exit code says whether the run is over; messages that follow have no effects."""
    worker = Machine()
    worker.start()
    effects = worker.receive(message)
    assert names(effects) == ["Leave", "DropConnections", "CloseSubtasks"]
    assert events.Leave(is_finished) in effects
    assert names(worker.receive(control.TriggerSnapshot(1, 5, (A,), (), 5))) == []
