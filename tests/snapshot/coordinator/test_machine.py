"""The coordinator: snapshots, publication, the end of a run, the fence. Workers and stages are in test_deployment."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cutline.snapshot.coordinator import control, events
from cutline.snapshot.coordinator.fence_events import (
    CheckForClaim,
    ClaimSeen,
    DecideManifest,
    ManifestAborted,
    ManifestUndecided,
    ManifestWritten,
    TakeClaim,
    WriteManifest,
)
from cutline.snapshot.coordinator.machine import Outcome, Phase
from cutline.snapshot.coordinator.retention import RemovalRequest
from cutline.snapshot.ids import Subtask
from cutline.snapshot.plan.modes import ChannelLogs
from cutline.snapshot.stored.history import Claim
from cutline.snapshot.stored.layout import record_path
from cutline.snapshot.stored.local_checkpoint import LocalCheckpoint, first_record_number
from tests.snapshot.led import BUSY, ENDED, OVER, POLICY, RUN, SETTINGS, Led, of_kind, order, record
from tests.snapshot.sample import TOPOLOGY, P, Q

FIRST = 1_000_000


def policy(**changes: object) -> Led:
    """A running coordinator with another policy."""
    return Led(replace(SETTINGS, policy=replace(POLICY, **changes))).run()  # type: ignore[arg-type]


# ---- triggering


def test_an_interval_triggers() -> None:
    """The first snapshot is due an interval after the claim, the next one an interval after it."""
    led = policy(interval=1.0)
    assert led.coordinator.next_deadline() == 101.0
    assert led.triggered(led.pass_time(1.0)) == [FIRST]
    assert led.triggered(led.pass_time(0.5)) == []
    assert led.triggered(led.pass_time(0.5)) == [FIRST + 1]
    assert led.triggered(led.pass_time(1.0)) == []  # two are pending, so there is no room


def test_a_trigger_goes_to_initiators_and_names_what_runs() -> None:
    """Whom the named initiators reach is not told; lower ids that run come with the trigger (PROTOCOL 3.3, 3.5)."""
    led = Led().run()
    led.step(events.SnapshotRequested(order(1)))
    effects = led.step(events.SnapshotRequested(order(2, initiators=(Q,))))
    assert effects == [events.SendToWorker(1, control.TriggerSnapshot(1, FIRST + 1, (Q,), (FIRST,), FIRST))]


def test_an_order_for_a_subtask_that_is_not_there_is_refused() -> None:
    """The reason names it, and the coordinator lives."""
    led = Led().run()
    led.step(events.SnapshotRequested(order(1, initiators=(Subtask("R"),))))
    assert led.closed() == {1: "there is no R[0]"}


def test_orders_wait_for_room_and_not_beyond_their_deadline() -> None:
    """A third order waits while two are pending; when its time is over it is answered."""
    led = Led().run()
    for request in (1, 2):
        led.step(events.SnapshotRequested(order(request)))
    led.step(events.SnapshotRequested(order(3, deadline=101.0)))
    led.step(events.SnapshotRequested(order(4)))
    led.pass_time(1.0)
    assert led.closed() == {3: "none could be started in time; the run is running"}
    assert led.triggered(led.acknowledge(FIRST)) == [FIRST + 2]


def test_idleness_triggers_until_the_run_is_over() -> None:
    """Without an interval: a cycle that is over is told once, and snapshots go on until one is final."""
    led = Led().run()
    assert led.triggered(led.idle()) == [FIRST]
    effects = led.acknowledge(FIRST, OVER)
    assert led.sent(effects, control.EndComponent) == [control.EndComponent(1, ("P", "Q"))] * 2
    assert led.triggered(effects) == [FIRST + 1]
    effects = led.acknowledge(FIRST + 1, OVER)  # its cut was before the message came
    assert led.sent(effects, control.EndComponent) == []
    assert led.triggered(effects) == [FIRST + 2]
    led.acknowledge(FIRST + 2, ENDED)
    assert led.coordinator.phase is Phase.FINISHING
    assert led.sent(led.committed(FIRST + 2), control.Finish) == [control.Finish("all nodes have ended")] * 2
    assert led.coordinator.outcome is Outcome.FINISHED


def test_a_node_may_ask_and_policy_may_refuse() -> None:
    """The trigger is the answer; where there is no room, or nothing runs, the answer is a refusal."""
    led = Led().run()
    for count in range(2):
        effects = led.feed(1, control.SnapshotAskedFor(1, Q))
        assert led.sent(effects, control.TriggerSnapshot)[0].subtasks == (Q,)
        assert led.triggered(effects) == [FIRST + count]
    assert led.feed(1, control.SnapshotAskedFor(1, Q)) == [events.SendToWorker(1, control.AnswerSnapshotRequest(1, Q))]
    led.fail()
    assert led.feed(1, control.SnapshotAskedFor(1, Q)) == [events.SendToWorker(1, control.AnswerSnapshotRequest(1, Q))]


# ---- collecting, publishing, giving up


def test_whole_is_checked_written_and_announced() -> None:
    """The manifest lists every record; everybody is told to commit, and what is settled."""
    led = Led().run()
    led.step(events.SnapshotRequested(order(7, pinned=True)))
    effects = led.acknowledge(FIRST)
    assert led.sent(effects, control.AnnouncePublished) == [control.AnnouncePublished(1, FIRST, FIRST + 1, False)] * 2
    assert (led.closed(), led.coordinator.history) == ({7: FIRST}, [FIRST])
    snapshot = led.store.read_manifest(FIRST)
    assert (snapshot.pinned, snapshot.timestamp, len(snapshot.records)) == (True, 1100.0, 2)  # type: ignore[union-attr]


def test_an_inexact_cut_is_never_published() -> None:
    """A certificate that does not hold aborts the snapshot, by channel."""
    led = Led().run()
    led.step(events.SnapshotRequested(order(1)))
    led.acknowledge(FIRST, in_flight=1)
    assert led.coordinator.history == []
    assert "P[0]->Q[0]" in str(led.closed()[1])


def test_a_higher_one_that_is_whole_first_takes_over_the_orders() -> None:
    """Publication goes up only: the lower one is over, and whoever waits for it gets the higher one."""
    led = Led().run()
    led.step(events.SnapshotRequested(order(1, pinned=True)))
    led.step(events.SnapshotRequested(order(2)))
    led.acknowledge(FIRST + 1)
    assert led.closed() == {2: FIRST + 1, 1: FIRST + 1}
    assert led.acknowledge(FIRST) == []
    assert led.coordinator.aborted.newest == ((FIRST, f"snapshot {FIRST + 1} was whole first"),)


def test_a_deadline_names_who_is_missing() -> None:
    """An abort says so to everybody, raises min_snapshot_id, and to whoever ordered it."""
    led = Led().run()
    led.step(events.SnapshotRequested(order(1)))
    led.acknowledge_one(P, FIRST)
    effects = led.pass_time(10.0)
    assert led.sent(effects, control.DiscardSnapshotsBelow) == [control.DiscardSnapshotsBelow(1, FIRST + 1)] * 2
    assert led.closed() == {1: f"snapshot {FIRST}: not whole after 10 s; 1 of 2 are missing: Q[0]"}


def test_too_many_failures_in_a_row_roll_back_once() -> None:
    """Two snapshots that run out of time together are two failures, and one rollback; then counting starts anew."""
    led = policy(tolerable_failures=1)
    for request in (1, 2):
        led.step(events.SnapshotRequested(order(request)))
    led.pass_time(10.0)
    assert [restart.reason[:28] for restart in led.coordinator.restarts.newest] == ["2 snapshots in a row failed,"]
    led.restored()
    led.connected()
    led.step(events.SnapshotRequested(order(3)))
    led.feed(0, control.SnapshotDeclined(led.coordinator.incarnation, 2 * FIRST, P, "no space"))
    assert led.coordinator.restarts.count == 1


def test_declined_acknowledged_and_late_messages_of_what_is_over_do_nothing() -> None:
    """A snapshot that is settled cannot fail or succeed any more."""
    led = Led().run()
    led.step(events.SnapshotRequested(order(1)))
    led.acknowledge(FIRST)
    assert led.feed(0, control.SnapshotDeclined(1, FIRST, P, "too late")) == []
    assert led.acknowledge(FIRST) == []


def test_retention_asks_once() -> None:
    """What was asked for is not asked for again: not while it is under way, and not when it was left for good."""
    led = Led().run()

    def publish(number: int) -> list[tuple[int, ...]]:
        led.step(events.SnapshotRequested(order(number)))
        effects = led.acknowledge(FIRST + number)
        return [effect.snapshot_ids for effect in of_kind(effects, events.DeleteSnapshots)]

    def removed(*snapshot_ids: int) -> list[tuple[int, ...]]:
        effects = led.step(events.SnapshotsDeleted(snapshot_ids))
        return [effect.snapshot_ids for effect in of_kind(effects, events.DeleteSnapshots)]

    asked = [publish(number) for number in range(5)]
    assert asked == [[], [], [(FIRST,)], [], []]
    # The first one is pinned. Those that expired meanwhile are asked for now, because no further one may be published.
    assert removed() == [(FIRST + 1, FIRST + 2)]
    assert removed(FIRST + 1, FIRST + 2) == []
    assert led.coordinator.history == [FIRST, FIRST + 3, FIRST + 4]


def test_a_removal_waits_for_a_lower_snapshot() -> None:
    """One that was started below the newest while that was written. When it is settled, the removal goes on."""
    led = Led(settings=replace(SETTINGS, retained=1)).run()
    led.step(events.SnapshotRequested(order(1)))
    led.acknowledge(FIRST)
    led.step(events.SnapshotInitiated(FIRST + 2))
    led.holds_store = True
    led.acknowledge(FIRST + 2)
    led.step(events.SnapshotInitiated(FIRST + 1))
    led.holds_store = False
    assert of_kind(led.perform_held(), events.DeleteSnapshots) == []
    assert (led.coordinator.history, led.coordinator.pending) == ([FIRST, FIRST + 2], [FIRST + 1])
    effects = led.feed(0, control.SnapshotDeclined(1, FIRST + 1, P, "no space"))
    assert of_kind(effects, events.DeleteSnapshots) == [events.DeleteSnapshots((FIRST,))]


def test_replaced_records_are_removed_and_one_removal_is_pending() -> None:
    """The first record that a newer one replaces is removed at once; those of meanwhile go together afterwards."""
    led = Led(replace(SETTINGS, topology=replace(TOPOLOGY, mode=ChannelLogs()))).run()
    parts = [record(TOPOLOGY, P, 1, first_record_number(1) + number, BUSY) for number in range(4)]

    def removed(event: events.Event) -> list[tuple[str, ...]]:
        return [effect.paths for effect in of_kind(led.step(event), events.RemoveRecords)]

    def announce(number: int) -> list[tuple[str, ...]]:
        new = LocalCheckpoint(RUN, first_record_number(1) + number, parts[number], (), (), 0)
        return removed(events.WorkerMessageReceived(0, control.RecordAnnounced(1, new, 0.1)))

    paths = [record_path(part.state) for part in parts]
    assert [announce(number) for number in range(4)] == [[], [(paths[0],)], [], []]
    assert removed(events.RecordsRemoved()) == [(paths[1], paths[2])]
    assert removed(events.RecordsRemoved()) == []


def test_a_removal_is_requested_and_answered() -> None:
    """With the id when the snapshot is gone, and with a reason when it stays or may not go."""
    led = Led().run()
    for number in range(2):
        led.step(events.SnapshotRequested(order(number)))
        led.acknowledge(FIRST + number)

    def request(number: int, snapshot_id: int) -> list[events.Effect]:
        return led.step(events.RemovalRequested(RemovalRequest(number, snapshot_id)))

    (refused,) = of_kind(request(10, FIRST + 1), events.CloseRequest)
    assert (refused.request_id, refused.snapshot_id) == (10, None) and "continues from it" in refused.reason
    assert of_kind(request(11, FIRST), events.DeleteSnapshots) == [events.DeleteSnapshots((FIRST,))]
    (stays,) = of_kind(led.step(events.SnapshotsDeleted(())), events.CloseRequest)
    assert (stays.request_id, stays.snapshot_id) == (11, None) and "is pinned or needed" in stays.reason
    request(12, FIRST)
    assert request(13, FIRST) == []
    answers = of_kind(led.step(events.SnapshotsDeleted((FIRST,))), events.CloseRequest)
    assert [(each.request_id, each.snapshot_id, each.reason) for each in answers] == [(12, FIRST, ""), (13, FIRST, "")]
    led.step(events.StopRequested(None))
    (late,) = of_kind(request(14, FIRST), events.CloseRequest)
    assert late.snapshot_id is None and late.reason


def test_a_removal_waits_until_the_history_is_known() -> None:
    """A new instance does not refuse what it cannot know yet."""
    first = Led().run()
    for number in range(2):
        first.step(events.SnapshotRequested(order(number)))
        first.acknowledge(FIRST + number)
    led = Led(store=first.store, instance="A2", holds_store=True)
    for number, snapshot_id in ((10, FIRST), (11, FIRST + 7)):
        assert led.step(events.RemovalRequested(RemovalRequest(number, snapshot_id))) == []
    effects = []
    while led.held:
        effects += led.perform_held()
    assert of_kind(effects, events.DeleteSnapshots) == [events.DeleteSnapshots((FIRST,))]
    (refused,) = of_kind(effects, events.CloseRequest)
    assert (refused.request_id, refused.snapshot_id) == (11, None)


def test_a_changed_pin_is_reported() -> None:
    """The reports show the pin as it is now, and retention asks again for a snapshot that it had left."""
    led = Led().run()
    for number in range(4):
        led.step(events.SnapshotRequested(order(number)))
        led.acknowledge(FIRST + number)
    led.step(events.SnapshotsDeleted(()))  # the first one is pinned
    led.step(events.PinChanged(FIRST, True))
    pinned = {report["id"]: report["pinned"] for report in led.coordinator.table.reports(0.0)}
    assert pinned == {FIRST: True, FIRST + 1: False, FIRST + 2: False, FIRST + 3: False}
    effects = led.step(events.SnapshotsDeleted((FIRST + 1,)))
    assert of_kind(effects, events.DeleteSnapshots) == [events.DeleteSnapshots((FIRST,))]


# ---- the store is slow, or unsure


def test_a_rollback_while_a_manifest_is_written_leaves_it_to_the_listing() -> None:
    """The late answer is not acted upon; the next claim finds the manifest, and restores from it (PROTOCOL 7.6)."""
    led = Led().run()
    led.step(events.SnapshotRequested(order(1)))
    led.holds_store = True
    led.acknowledge(FIRST)
    led.fail()
    assert [type(request.effect) for request in led.held] == [WriteManifest, TakeClaim]
    assert list(led.coordinator._tracker.undecided) == [FIRST]
    led.holds_store = False
    effects = led.perform_held()
    assert (led.coordinator.history, list(led.coordinator._tracker.undecided)) == ([FIRST], [])
    assert led.sent(effects, control.AnnouncePublished) == []
    assert {deploy.subtasks[0].state is not None for deploy in led.sent(effects, control.Deploy)} == {True}
    assert led.closed() == {}  # whoever waits gets the next one
    led.restored()
    assert led.triggered(led.connected()) == [2 * FIRST]
    led.acknowledge(2 * FIRST)
    assert led.closed() == {1: 2 * FIRST}


def test_a_manifest_that_cannot_be_written_counts_as_aborted() -> None:
    """Undecided, then decided against: the snapshot fails; the next one, which waited, is written."""
    led = policy(tolerable_failures=0)
    led.holds_store = True
    for request in (1, 2):
        led.step(events.SnapshotRequested(order(request)))
        led.acknowledge(FIRST + request - 1)
    (writing,) = led.held
    assert isinstance(writing.effect, WriteManifest)
    led.held.clear()
    led.step(events.StoreAnswered(ManifestUndecided(writing.effect)))
    (deciding,) = led.held
    assert isinstance(deciding.effect, DecideManifest)
    led.held.clear()
    led.step(events.StoreAnswered(ManifestAborted(deciding.effect)))
    # The failure rolls back at once; what the fence had begun before goes first.
    assert [type(request.effect) for request in led.held] == [WriteManifest, TakeClaim]
    assert led.coordinator.aborted.newest[0] == (FIRST, "its manifest could not be written")


def publishing() -> tuple[Led, WriteManifest]:
    """A run whose store has been asked to write a manifest, and to check for a higher claim behind it."""
    led = Led().run()
    led.holds_store = True
    led.step(events.SnapshotRequested(order(1)))
    led.acknowledge(FIRST)
    (asked,) = led.held
    assert isinstance(asked.effect, WriteManifest)
    assert asked.check == CheckForClaim(2)
    led.held.clear()
    return led, asked.effect


def test_a_manifest_that_was_checked_is_published_at_once() -> None:
    """One answer of the store is enough, because the check behind the manifest came with it (PROTOCOL 7.2)."""
    led, write = publishing()
    led.step(events.StoreAnswered(ManifestWritten(write), ClaimSeen(CheckForClaim(2), None)))
    assert led.held == []
    assert led.closed() == {1: FIRST}


def test_a_claim_that_is_seen_with_the_manifest_fences() -> None:
    """The manifest is written, but nobody acts on it."""
    led, write = publishing()
    seen = ClaimSeen(CheckForClaim(2), Claim(2, "B", "B1"))
    led.step(events.StoreAnswered(ManifestWritten(write), seen))
    assert led.coordinator.outcome is Outcome.FENCED
    assert str(led.closed()[1]).startswith("the run has ended: claim 2 took the run")


def test_a_foreign_claim_ends_the_run_here() -> None:
    """Fenced: workers quit, whoever waits is told, nothing more is written."""
    led = Led().run()
    led.step(events.SnapshotRequested(order(1)))
    led.store.take_claim(Claim(2, "B", "B1"))
    effects = led.acknowledge(FIRST)
    assert led.coordinator.outcome is Outcome.FENCED
    assert len(led.sent(effects, control.Quit)) == 2
    assert led.closed() == {1: "the run has ended: claim 2 took the run: it was submitted again elsewhere"}
    assert led.sent(led.register(0), control.Quit) == [control.Quit(led.coordinator.reason)]


def test_a_newer_life_of_the_same_owner_takes_the_workers_over() -> None:
    """Superseded: this life leaves without a word to the workers, which are the other's."""
    led = Led().run()
    led.step(events.SnapshotRequested(order(1)))
    led.store.take_claim(Claim(2, "A", "A2"))
    effects = led.acknowledge(FIRST)
    assert led.coordinator.outcome is Outcome.SUPERSEDED
    assert of_kind(effects, events.SendToWorker) == []
    assert led.register(0) == []


# ---- the end


def test_stop_without_a_snapshot_is_at_once() -> None:
    """Workers finish, orders are answered, and later ones too."""
    led = Led().run()
    led.step(events.SnapshotRequested(order(1)))
    effects = led.step(events.StopRequested(None))
    assert led.sent(effects, control.Finish) == [control.Finish("stopped by the driver")] * 2
    led.step(events.SnapshotRequested(order(2)))
    led.step(events.StopRequested(order(3)))
    assert led.closed() == dict.fromkeys((1, 2, 3), "the run has ended: stopped by the driver")
    assert led.coordinator.next_deadline() is None


@pytest.mark.parametrize("fails", ["never", "while pending", "while finishing"])
def test_a_stop_with_a_snapshot_is_not_forgotten(fails: str) -> None:
    """A rollback does not make the run go on: a snapshot follows, or its commits are repeated, and then it ends."""
    led = Led().run()
    led.step(events.StopRequested(order(1)))
    snapshot_id = FIRST
    if fails == "while pending":
        led.fail()
        led.restored()
        (snapshot_id,) = led.triggered(led.connected())
    led.acknowledge(snapshot_id)
    assert (led.coordinator.phase, led.closed()) == (Phase.FINISHING, {1: snapshot_id})
    if fails == "while finishing":
        led.fail()
        effects = led.restored()
        assert led.sent(effects, control.Connect) == []
    else:
        effects = led.committed(snapshot_id)
    assert led.coordinator.outcome is Outcome.STOPPED
    assert len(led.sent(effects, control.Finish)) == 2


def test_two_callers_stop_the_run() -> None:
    """The first snapshot of any of them is the last one."""
    led = Led().run()
    led.step(events.StopRequested(order(1)))
    led.step(events.StopRequested(order(2)))
    led.acknowledge(FIRST)
    assert led.coordinator.phase is Phase.FINISHING and led.closed()[1] == FIRST
    led.committed(FIRST)
    assert led.coordinator.outcome is Outcome.STOPPED and set(led.closed()) == {1, 2}


def test_a_stop_whose_snapshot_fails_leaves_the_run_running() -> None:
    """Whoever ordered it learns why, and may order again."""
    led = Led().run()
    led.step(events.StopRequested(order(1)))
    led.pass_time(10.0)
    assert led.coordinator.phase is Phase.RUNNING
    assert "not whole" in str(led.closed()[1])


def test_commits_that_hang_are_ended() -> None:
    """While finishing too there is a deadline: the stage is given up, and the restore repeats the commits."""
    led = Led().run()
    led.step(events.StopRequested(order(1)))
    announced = led.sent(led.acknowledge(FIRST), control.AnnouncePublished)
    assert [each.is_last for each in announced] == [True, True]
    led.feed(0, control.PublicationDone(1, FIRST, (P,)))
    effects = led.pass_time(10.0)
    reason = "Q[0] have not committed the last snapshot in time"
    assert of_kind(effects, events.CancelStage) == [events.CancelStage("stage", reason)]
    assert led.coordinator.restarts.newest[0].reason == reason
    led.step(events.StageLaunched("next stage"))
    led.register(0, 1, launch="next stage")
    led.restored()
    assert led.coordinator.outcome is Outcome.STOPPED


def test_a_finished_run_submitted_again_repeats_its_commits_and_nothing_else() -> None:
    """Workers restore the final snapshot, which commits again, and leave: nothing connects, nothing starts."""
    led = Led().run()
    led.idle()
    led.acknowledge(FIRST, ENDED)
    led.committed(FIRST)
    again = Led(store=led.store, owner="B", instance="B1")
    again.register(0, 1)
    effects = again.restored()
    assert again.coordinator.outcome is Outcome.FINISHED
    assert [type(effect.message) for effect in of_kind(effects, events.SendToWorker)] == [control.Finish] * 2
    assert again.triggered(again.effects) == []


def test_the_driver_may_give_up() -> None:
    """A driver that cannot launch stages ends the run, with its reason."""
    led = Led()
    led.step(events.RunGivenUp("Spark is gone"))
    assert (led.coordinator.outcome, led.coordinator.reason) == (Outcome.FAILED, "Spark is gone")
