"""The worker's machine under any order of events, those of other incarnations and coordinators among them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cutline.snapshot.coordinator import control
from cutline.snapshot.errors import ChannelError, NodeError
from cutline.snapshot.subtask.restored import RestoredChannels
from cutline.snapshot.worker import events
from cutline.snapshot.worker.events import Stage
from cutline.snapshot.worker.restored_parts import RestoredParts
from tests.snapshot.worker.programs import A, B, Machine, deploy, sent

_INCARNATIONS = st.integers(1, 3)

#: Effects that a dropped message may have.
_NOTHING = (events.Log,)


def _read(incarnation: int) -> events.PartsRead:
    channels = {A: RestoredChannels(), B: RestoredChannels()}
    return events.PartsRead(RestoredParts(deploy(incarnation), {A: None, B: None}, channels))


_MESSAGES = st.one_of(
    st.builds(control.Welcome, st.integers(1, 4), st.just(4)),
    _INCARNATIONS.map(deploy),
    st.builds(control.Connect, _INCARNATIONS, st.just((b"x", b"y"))),
    st.builds(control.StartProcessing, _INCARNATIONS),
    st.builds(
        lambda incarnation, snapshot_id: control.TriggerSnapshot(incarnation, snapshot_id, (A,), (), snapshot_id),
        _INCARNATIONS,
        st.integers(1, 5),
    ),
    st.builds(control.DiscardSnapshotsBelow, _INCARNATIONS, st.integers(1, 6)),
    st.builds(lambda i, s: control.AnnouncePublished(i, s, s + 1, False), _INCARNATIONS, st.integers(1, 5)),
)

_EVENTS = st.one_of(
    _MESSAGES.map(events.CoordinatorMessageReceived),
    st.just(events.CoordinatorConnected()),
    _INCARNATIONS.map(_read),
    _INCARNATIONS.map(events.PeersConnected),
    st.builds(events.PeerLost, _INCARNATIONS, st.just("a peer is lost")),
    st.builds(events.PartsUnreadable, _INCARNATIONS, st.just(OSError("no such file"))),
    st.sampled_from([NodeError("a hook raised"), ChannelError("a gap")]).map(events.DataFailed),
    st.booleans().map(events.TurnEnded),
)


def rollback(incarnation: int) -> list[events.Event]:
    """The events of a whole rollback, so that random orders meet workers that run."""
    return [
        events.CoordinatorMessageReceived(deploy(incarnation)),
        _read(incarnation),
        events.CoordinatorMessageReceived(control.Connect(incarnation, ())),
        events.PeersConnected(incarnation),
        events.CoordinatorMessageReceived(control.StartProcessing(incarnation)),
        events.TurnEnded(False),
    ]


#: A coordinator with a lower claim comes after another one.
_FENCED = [events.CoordinatorMessageReceived(control.Welcome(claim, 4)) for claim in (4, 1)]

_PARTS = st.one_of(_EVENTS.map(lambda event: [event]), _INCARNATIONS.map(rollback), st.just(_FENCED))
_HISTORIES = st.lists(_PARTS, max_size=12)


@given(_HISTORIES)
def test_any_order_keeps_the_rules(history: list[list[events.Event]]) -> None:
    """After each event all invariants hold; incarnations and claims never fall; what is stale has no effect."""
    worker, claim, is_fenced = Machine(), 0, False
    for event in (event for part in history for event in part):
        before, stage = worker.machine.incarnation, worker.machine.stage
        effects = worker.step(event)  # validates
        assert worker.machine.incarnation >= before
        if isinstance(event, events.CoordinatorConnected):
            is_fenced = False
        if not isinstance(event, events.CoordinatorMessageReceived):
            continue
        match event.message:
            case control.Welcome(number, _):
                is_fenced = number < claim
                claim = max(claim, number)
                assert any(isinstance(effect, events.DisconnectCoordinator) for effect in effects) is is_fenced
            case _ if is_fenced:
                assert all(isinstance(effect, _NOTHING) for effect in effects), effects
            case control.Deploy(incarnation) if incarnation < before:
                assert all(isinstance(effect, _NOTHING) for effect in effects), effects
            case control.Deploy() | control.Finish() | control.Quit():
                pass
            case message if message.incarnation != before or stage in (Stage.WAITING, Stage.FAILED):
                assert all(isinstance(effect, _NOTHING) for effect in effects), effects
            case _:
                pass


@given(_HISTORIES)
def test_reports_are_of_the_present_incarnation(history: list[list[events.Event]]) -> None:
    """The coordinator drops messages of other incarnations, so the worker must not send any."""
    worker = Machine()
    for event in (event for part in history for event in part):
        effects = worker.step(event)
        assert {message.incarnation for message in sent(effects)} <= {worker.machine.incarnation}


@given(_HISTORIES)
def test_a_failed_worker_comes_back_by_a_deployment_alone(history: list[list[events.Event]]) -> None:
    """Peers roll back to one snapshot together, so no other event makes subtasks run again."""
    worker = Machine()
    for event in (event for part in history for event in part):
        stage = worker.machine.stage
        worker.step(event)
        is_deploy = isinstance(event, events.CoordinatorMessageReceived) and isinstance(event.message, control.Deploy)
        if stage is Stage.FAILED and not is_deploy:
            assert worker.machine.stage is Stage.FAILED
