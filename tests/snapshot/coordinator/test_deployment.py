"""From workers that register to workers that run, and back: failures in any order, in any phase, count once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from cutline.snapshot.coordinator import control, events
from cutline.snapshot.coordinator.machine import Outcome, Phase
from cutline.snapshot.coordinator.restart_policy import RestartPolicy
from cutline.snapshot.failed_event import FailedMessage, Suspects
from cutline.snapshot.ids import ChannelId
from cutline.snapshot.stored.history import Claim
from tests.snapshot.led import ENDED, SETTINGS, Led, of_kind, order
from tests.snapshot.sample import P, Q

FIRST = 1_000_000


def reasons(led: Led) -> list[str]:
    """Why the run was restarted, each time."""
    return [restart.reason for restart in led.coordinator.restarts.newest]


def restoring() -> Led:
    """Deployed, and not restored."""
    led = Led()
    led.register(0, 1)
    return led


def connecting() -> Led:
    """Restored, and not connected."""
    led = restoring()
    led.restored()
    return led


def finishing() -> Led:
    """The final snapshot is published and not committed."""
    led = Led().run()
    led.idle()
    led.acknowledge(FIRST, ENDED)
    return led


DEPLOYED = {
    Phase.RESTORING: restoring,
    Phase.CONNECTING: connecting,
    Phase.RUNNING: lambda: Led().run(),
    Phase.FINISHING: finishing,
}


# ---- the way up


def test_the_way_from_nothing_to_running() -> None:
    """Register, deploy, restore, connect, start: each step waits for all workers (PROTOCOL 6.1, rollback)."""
    led = Led()
    assert led.register(0) == [events.SendToWorker(0, control.Welcome(1, 2))]
    effects = led.register(1)
    deploys = led.sent(effects, control.Deploy)
    assert [(deploy.incarnation, [s.subtask for s in deploy.subtasks]) for deploy in deploys] == [(1, [P]), (1, [Q])]
    assert led.feed(0, control.WorkerRestored(0, 1)) == []
    effects = led.feed(1, control.WorkerRestored(1, 1))
    assert led.sent(effects, control.Connect) == [control.Connect(1, (b"0", b"1"))] * 2
    assert led.feed(0, control.WorkerConnected(0, 1)) == []
    effects = led.feed(1, control.WorkerConnected(1, 1))
    assert led.sent(effects, control.StartProcessing) == [control.StartProcessing(1)] * 2
    assert effects[-1] == events.CollectOrphans(1)
    assert led.coordinator.phase is Phase.RUNNING


def test_only_workers_of_the_newest_stage_are_taken() -> None:
    """Another token, or a number that the run does not have: quit (PROTOCOL 6.4, launch token)."""
    led = Led()
    assert led.sent(led.register(0, launch="an older stage"), control.Quit)
    assert led.sent(led.register(2), control.Quit)
    assert led.coordinator.phase is Phase.GATHERING


def test_a_stage_that_was_never_there_is_hopeless() -> None:
    """No worker at all came of the first stage: the reason says how many slots it needs."""
    led = Led(launch="")
    led.step(events.StageLaunched("stage"))
    led.pass_time(5.0)
    assert led.coordinator.outcome is Outcome.FAILED
    assert "2 free slots" in led.coordinator.reason


# ---- failures


@pytest.mark.parametrize("phase", DEPLOYED, ids=lambda phase: phase.value)
def test_several_reports_in_one_incarnation_are_one_failure(phase: Phase) -> None:
    """Whatever is said of it before workers are deployed again, it counts once, and takes one claim."""
    led = DEPLOYED[phase]()
    assert led.coordinator.phase is phase
    led.holds_store = True
    led.fail(0, "it raised")
    led.feed(1, control.WorkerFailed(1, 1, "a peer is lost", False))
    led.step(events.WorkerLost(0, "killed"))
    led.step(events.WorkerLost(0, "killed"))
    led.register(0)
    led.holds_store = False
    led.perform_held()
    assert reasons(led) == ["it raised"]
    assert led.coordinator.phase is Phase.RESTORING
    assert led.coordinator.incarnation == 2


def test_the_first_report_need_not_name_the_cause() -> None:
    """A report that names the event may come second: the failure has its reason, and counts for its message."""
    failed = FailedMessage(ChannelId(P, Q), 7, b"seven")
    led = Led(replace(SETTINGS, restart_policy=RestartPolicy(maxRestarts=2, delay=0.0, poisonAfter=2))).run()
    for incarnation in (1, 2):
        led.holds_store = True
        led.feed(0, control.WorkerFailed(0, incarnation, "a peer is lost", False))
        led.feed(1, control.WorkerFailed(1, incarnation, "it raised", False, failed))
        led.feed(0, control.WorkerFailed(0, incarnation, "said again", False, failed))
        assert reasons(led)[:1] == ["it raised"]
        led.holds_store = False
        if incarnation == 1:
            deploys = led.sent(led.perform_held(), control.Deploy)
            suspects = {each.subtask: each.suspects for deploy in deploys for each in deploy.subtasks}
            assert suspects == {P: Suspects(), Q: Suspects(messages=(failed,))}
            led.restored()
            led.connected()
    assert led.coordinator.outcome is Outcome.FAILED
    assert "message 7 of P[0]->Q[0] failed 2 times in a row" in led.coordinator.reason


def test_a_message_that_was_handled_is_told_from_an_equal_one() -> None:
    """Its worker says so, maybe behind a peer's report of the incarnation's end. An older one's word has no effect."""
    led = Led(replace(SETTINGS, restart_policy=RestartPolicy(maxRestarts=None, delay=0.0, poisonAfter=2))).run()

    def fails(incarnation: int, number: int, handled: int = 0) -> None:
        """At one number, after an equal message was handled at another."""
        led.holds_store = True
        led.feed(0, control.WorkerFailed(0, incarnation, "a peer is lost", False))
        if handled:
            led.feed(1, control.SuspectHandled(incarnation, FailedMessage(ChannelId(P, Q), handled, b"equal")))
        failed = FailedMessage(ChannelId(P, Q), number, b"equal")
        led.feed(1, control.WorkerFailed(1, incarnation, "it raised", False, failed))
        led.holds_store = False
        led.perform_held()
        led.restored()
        led.connected()

    fails(1, 5)
    fails(2, 6, handled=5)
    fails(3, 7, handled=6)
    assert led.coordinator.phase is Phase.RUNNING
    led.feed(1, control.SuspectHandled(3, FailedMessage(ChannelId(P, Q), 7, b"equal")))  # dropped
    fails(4, 8)
    assert led.coordinator.outcome is Outcome.FAILED


@pytest.mark.parametrize("phase", DEPLOYED, ids=lambda phase: phase.value)
def test_a_lost_stage_is_one_failure_and_the_next_one_another(phase: Phase) -> None:
    """A task dies: its worker is lost, then the stage ends. The next stage dies too, before anybody has come."""
    led = DEPLOYED[phase]()
    led.step(events.WorkerLost(0, "killed"))
    effects = led.step(events.StageEnded("stage", "a task was killed"))
    assert led.sent(effects, control.Quit) == [control.Quit("the barrier stage failed: a task was killed")]
    assert led.sent(led.register(1), control.Quit)  # it lingers
    led.step(events.StageEnded("stage", "said again"))
    assert reasons(led) == ["worker 0 was lost: killed"]
    led.step(events.StageLaunched("next stage"))
    led.step(events.StageEnded("next stage", "no executor"))
    assert reasons(led)[1:] == ["the barrier stage failed: no executor"]
    led.step(events.StageLaunched("third stage"))
    led.register(0, 1, launch="third stage")
    led.pass_time(0.1)  # the delay of the second failure in a row
    led.restored()
    assert led.coordinator.incarnation == 2
    assert led.coordinator.phase is (Phase.ENDED if phase is Phase.FINISHING else Phase.CONNECTING)


def test_a_worker_that_registers_anew_has_lost_what_it_held() -> None:
    """Its old connection may not even have ended yet."""
    led = Led().run()
    led.register(0)
    assert reasons(led) == ["worker 0 was lost: it registered anew"]
    assert led.coordinator.phase is Phase.RESTORING


def test_another_stage_than_the_known_one_replaces_it() -> None:
    """Its end was not told: who ran in it is lost. The same token said twice changes nothing."""
    led = Led().run()
    assert led.step(events.StageLaunched("stage")) == []
    effects = led.step(events.StageLaunched("next stage"))
    assert len(led.sent(effects, control.Quit)) == 2
    assert reasons(led) == ["another barrier stage was launched"]


def test_what_another_incarnation_says_is_not_heard() -> None:
    """Late reports of the incarnation before neither fail nor further the present one (PROTOCOL 6.1, rollback)."""
    led = restoring()
    led.fail()
    for worker in (0, 1):
        led.feed(worker, control.WorkerRestored(worker, 1))
        led.feed(worker, control.WorkerConnected(worker, 1))
        led.feed(worker, control.WorkerFailed(worker, 1, "late", False))
    assert (led.coordinator.phase, led.coordinator.incarnation) == (Phase.RESTORING, 2)
    assert len(reasons(led)) == 1


@pytest.mark.parametrize(
    ("make", "seconds", "reason"),
    [
        pytest.param(lambda: _one_missing(), 5.0, "workers [1] have not registered in time", id="gathering"),
        pytest.param(restoring, 10.0, "workers [1] have not restored their state in time", id="restoring"),
        pytest.param(connecting, 5.0, "workers [1] have not connected to their peers in time", id="connecting"),
    ],
)
def test_every_phase_has_a_deadline_that_names_who_is_late(
    make: Callable[[], Led], seconds: float, reason: str
) -> None:
    """The stage is given up, its workers are told to quit, and it counts once."""
    led = make()
    led.feed(0, control.WorkerRestored(0, 1))
    led.feed(0, control.WorkerConnected(0, 1))
    alarm = led.coordinator.next_deadline()
    assert alarm == led.now + seconds
    effects = led.pass_time(seconds)
    assert of_kind(effects, events.CancelStage) == [events.CancelStage("stage", reason)]
    assert led.sent(effects, control.Quit)[0] == control.Quit(reason)
    led.step(events.StageEnded("stage", "cancelled"))
    assert reasons(led) == [reason]
    assert led.coordinator.phase is Phase.GATHERING


def _one_missing() -> Led:
    led = Led()
    led.register(0)
    return led


def test_a_lost_worker_has_less_time_to_come_back_than_a_stage_to_begin() -> None:
    """Its process is started again at once, so the stage is given up earlier."""
    led = Led().run()
    led.step(events.WorkerLost(1, "killed"))
    assert (led.coordinator.phase, led.coordinator.next_deadline()) == (Phase.GATHERING, led.now + 4.0)
    effects = led.pass_time(4.0)
    assert of_kind(effects, events.CancelStage) == [
        events.CancelStage("stage", "workers [1] have not registered in time")
    ]


def test_a_permanent_failure_is_the_end() -> None:
    """It is tried once more, under a claim that proves that the run is still ours; then the reason is the run's."""
    led = restoring()
    assert led.sent(led.fail(1, "parts/x: the file is missing", is_permanent=True), control.Deploy)
    effects = led.fail(1, "parts/x: the file is missing", is_permanent=True)
    assert (led.coordinator.outcome, led.coordinator.reason) == (Outcome.FAILED, "parts/x: the file is missing")
    assert len(led.sent(effects, control.Quit)) == 2


def test_a_late_permanent_failure_is_not_counted() -> None:
    """The damage was of an incarnation that is given up. The present one reads other parts."""
    led = restoring()
    stale = led.coordinator.incarnation
    led.fail(1, "parts/x: the file is missing", is_permanent=True)
    for worker in (0, 1):
        led.feed(worker, control.WorkerFailed(worker, stale, "parts/x: the file is missing", True))
    assert (led.coordinator.outcome, led.coordinator.incarnation) == (None, stale + 1)


def test_what_is_missing_because_the_run_was_taken_is_no_damage() -> None:
    """The newer coordinator has removed the snapshot that this one is about to restore: fenced, not failed."""
    led = restoring()
    led.store.take_claim(Claim(2, "B", "B1"))
    led.fail(1, "parts/x: the file is missing", is_permanent=True)
    assert led.coordinator.outcome is Outcome.FENCED


def test_a_worker_that_dies_in_a_long_delay_has_its_time_to_come_back() -> None:
    """The deadline of the registrations passed while all were there and waited; it was not meant for this."""
    led = Led(replace(SETTINGS, restart_policy=RestartPolicy(delay=60.0, maxDelay=60.0))).run()
    for _ in range(2):  # the first failure of a row has no delay
        led.fail()
        led.register(0, 1)
    led.pass_time(30.0)
    led.step(events.WorkerLost(1, "killed"))
    assert of_kind(led.pass_time(3.0), events.CancelStage) == []
    led.register(1)
    led.pass_time(30.0)
    assert led.coordinator.phase is Phase.RESTORING


def test_delays_grow_and_patience_ends() -> None:
    """The first restart is at once, others wait; too many in a row fail the run, which says the last reason."""
    led = Led(replace(SETTINGS, restart_policy=RestartPolicy(maxRestarts=2, delay=1.0))).run()
    assert led.sent(led.fail(), control.Deploy)
    assert led.sent(led.fail(), control.Deploy) == []
    assert led.coordinator.next_deadline() == led.now + 1.0
    assert led.sent(led.pass_time(1.0), control.Deploy)
    led.fail(reason="the same again")
    assert led.coordinator.outcome is Outcome.FAILED
    assert led.coordinator.reason == "the same again\n(after 2 restarts in a row; maxRestarts is 2)"


def test_a_published_snapshot_ends_a_row_of_failures() -> None:
    """A run that makes progress may fail for ever."""
    led = Led(replace(SETTINGS, restart_policy=RestartPolicy(maxRestarts=1))).run()
    for _ in range(3):
        led.step(events.SnapshotRequested(order(1)))
        led.acknowledge(led.coordinator.incarnation * FIRST)
        led.fail()
        led.restored()
        led.connected()
    assert led.coordinator.phase is Phase.RUNNING


# ---- another life


def next_coordinator(led: Led) -> Led:
    """The coordinator is lost and comes back."""
    return Led(led.settings, store=led.store, instance=f"{led.instance}'", now=led.now)


def test_a_new_life_takes_over_what_runs() -> None:
    """All still run one incarnation: nothing is rolled back; the newest snapshot is announced again (PROTOCOL 7.5)."""
    led = Led().run()
    led.step(events.SnapshotRequested(order(1)))
    led.acknowledge(FIRST)
    successor = next_coordinator(led)
    assert of_kind(successor.register(0, running=1), events.SendToWorker)[0].message == control.Welcome(2, 2)
    successor.feed(0, control.WorkerIdle(0, 1, True))  # said once, before this life knows what runs
    effects = successor.register(1, running=1)
    assert successor.sent(effects, control.DiscardSnapshotsBelow) == [control.DiscardSnapshotsBelow(1, 2 * FIRST)] * 2
    assert (
        successor.sent(effects, control.AnnouncePublished)
        == [control.AnnouncePublished(1, FIRST, 2 * FIRST, False)] * 2
    )
    assert (successor.coordinator.phase, successor.coordinator.incarnation) == (Phase.RUNNING, 1)
    assert successor.triggered(successor.feed(1, control.WorkerIdle(1, 1, True))) == [2 * FIRST]
    successor.acknowledge(2 * FIRST)
    assert successor.coordinator.history == [FIRST, 2 * FIRST]
    successor.fail()
    assert (successor.coordinator.phase, successor.coordinator.incarnation) == (Phase.RESTORING, 3)


def test_a_new_life_rolls_back_what_is_mixed() -> None:
    """One worker was lost while nobody looked."""
    successor = next_coordinator(Led().run())
    successor.register(0, running=1)
    successor.register(1)
    assert reasons(successor) == ["the workers hold different incarnations: [0, 1]; 0 is none"]
    assert (successor.coordinator.phase, successor.coordinator.incarnation) == (Phase.RESTORING, 2)


def test_what_fails_before_a_new_life_has_taken_over_is_not_taken_over() -> None:
    """A worker registers as running, then fails while others are awaited: one failure, with its reason."""
    successor = next_coordinator(Led().run())
    successor.register(0, running=1)
    successor.feed(0, control.WorkerFailed(0, 1, "it raised", False))
    successor.register(1, running=1)
    assert reasons(successor) == ["it raised"]
    assert successor.coordinator.phase is Phase.RESTORING


def test_a_connection_that_breaks_before_a_new_life_has_taken_over_is_made_again() -> None:
    """Losing the line to the coordinator is not losing the data."""
    successor = next_coordinator(Led().run())
    successor.register(0, running=1)
    successor.step(events.WorkerLost(0, "its connection ended"))
    successor.register(1, running=1)
    successor.register(0, running=1)
    assert (successor.coordinator.phase, reasons(successor)) == (Phase.RUNNING, [])


# ---- what is restored


def test_the_newest_manifest_is_read_once() -> None:
    """A new life reads it; a rollback from what was published or read needs no reading."""
    led = Led().run()
    led.step(events.SnapshotRequested(order(1)))
    led.acknowledge(FIRST)
    led.fail()
    assert of_kind(led.effects, events.ReadManifest) == []
    successor = next_coordinator(led)
    successor.register(0, 1)
    deploy = successor.sent(successor.effects, control.Deploy)[0]
    assert deploy.subtasks[0].state is not None
    assert (deploy.incarnation, deploy.subtasks[0].state.snapshot_id) == (3, FIRST)


def test_who_leaves_while_the_manifest_is_read_is_awaited() -> None:
    """The manifest is kept; the wait has a deadline of its own."""
    led = Led().run()
    led.step(events.SnapshotRequested(order(1)))
    led.acknowledge(FIRST)
    successor = next_coordinator(led)
    coordinator = successor.coordinator
    registrations = [control.WorkerRegistered(worker, "stage", 0, b"", 0) for worker in (0, 1)]
    effects = [
        e
        for said in registrations
        for e in coordinator.step(events.WorkerMessageReceived(said.worker, said), successor.now)
    ]
    assert effects[-1] == events.ReadManifest("bank", FIRST)
    assert coordinator.phase is Phase.READING
    assert coordinator.next_deadline() is None
    successor.step(events.WorkerLost(1, "killed"))
    successor.now += 100.0
    successor.step(events.ManifestRead(successor.store.read_manifest(FIRST)))  # type: ignore[arg-type]
    assert (coordinator.phase, coordinator.next_deadline()) == (
        Phase.GATHERING,
        successor.now + SETTINGS.regathering_timeout,
    )
    assert successor.sent(successor.register(1), control.Deploy)


def test_a_manifest_that_cannot_be_read_is_the_end() -> None:
    """Never "empty": the run fails and says why."""
    led = Led()
    led.step(events.RecordsUnusable("snapshots/7: offset 3: checksum differs"))
    assert (led.coordinator.outcome, led.coordinator.reason) == (
        Outcome.FAILED,
        "snapshots/7: offset 3: checksum differs",
    )


def test_a_snapshot_of_another_graph_is_refused() -> None:
    """The difference is the reason."""
    led = Led().run()
    led.step(events.SnapshotRequested(order(1)))
    led.acknowledge(FIRST)
    changed = replace(led.settings.topology, edges=led.settings.topology.edges[:1])
    successor = Led(replace(led.settings, topology=changed), store=led.store, owner="B", instance="B1")
    successor.register(0, 1)
    assert successor.coordinator.outcome is Outcome.FAILED
    assert "- edge Q->P: not in the graph" in successor.coordinator.reason


def test_a_restore_from_a_snapshot_that_is_not_there_is_refused() -> None:
    """What was asked for is not replaced by what there is."""
    led = Led(restore_from=42)
    assert led.coordinator.outcome is Outcome.FAILED
    assert "42" in led.coordinator.reason


def test_a_replay_ends_by_reports_of_its_own_incarnation() -> None:
    """A report of the incarnation before comes late, because its worker repeated its steps ahead of the rollback."""
    led = Led().run()
    led.fail()
    led.pass_time(1.0)
    led.restored()
    for worker in (0, 1):
        led.coordinator._deployment._registry[worker].is_replaying = True  # as behind a snapshot with steps
    led.connected()
    now = led.coordinator.incarnation
    for worker, incarnation in ((0, now), (1, now - 1), (1, now + 1), (7, now)):
        led.feed(worker, control.WorkerReplayed(worker, incarnation))
        assert led.coordinator.phase is Phase.REPLAYING
    led.feed(1, control.WorkerReplayed(1, now))
    assert led.coordinator.phase is Phase.RUNNING
