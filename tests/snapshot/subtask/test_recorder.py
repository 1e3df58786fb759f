"""The marker rules alone: events in, effects out."""

from __future__ import annotations

import pytest

from cutline.snapshot.channel.frame import Marker
from cutline.snapshot.errors import ChannelError
from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.subtask.events import (
    AlignmentTimedOut,
    CaptureState,
    CompleteRecording,
    DiscardRecording,
    HoldChannel,
    MarkerArrived,
    MarkerReached,
    MinSnapshotIdRaised,
    OvertakeWithMarkers,
    ReleaseChannel,
    SendMarker,
    SnapshotRequested,
    StartAlignmentTimer,
    StartRecording,
    StopRecording,
)
from cutline.snapshot.subtask.recorder import Phase, Recorder

ME = Subtask("me")
A, B, OUT = ChannelId(Subtask("a"), ME), ChannelId(Subtask("b"), ME), ChannelId(ME, Subtask("out"))


def recorder(*inputs: ChannelId, aligned: bool = False) -> Recorder:
    """A recorder with one output; both sides aligned or neither."""
    return Recorder(ME, inputs, (OUT,), aligned_inputs=aligned, aligned_outputs=frozenset([OUT] if aligned else []))


def received(
    channel: ChannelId, snapshot_id: int, written: int, *, min_snapshot_id: int = 1, aligned: bool = False
) -> MarkerArrived:
    """A marker that arrives."""
    return MarkerArrived(channel, Marker(snapshot_id, min_snapshot_id, written, aligned))


def test_a_request_records_and_opens_every_input() -> None:
    """Marker-sending rule: state, markers, then every channel is recorded until its own marker comes."""
    machine = recorder(A, B)
    assert machine.step(SnapshotRequested(1, (), 1)) == [
        CaptureState(1), SendMarker(OUT, 1, False), StartRecording(A, 1), StartRecording(B, 1),
    ]  # fmt: skip
    assert machine.step(received(B, 1, 7)) == [StopRecording(B, 1, 7)]
    assert machine.step(received(A, 1, 3)) == [StopRecording(A, 1, 3), CompleteRecording(1)]
    assert machine.phase(1) is Phase.DONE
    machine.validate()


def test_the_first_marker_closes_its_own_channel_with_what_waits() -> None:
    """Marker-receiving rule: the marker's own channel is closed at once, up to the marker's w."""
    machine = recorder(A, B)
    assert machine.step(received(A, 1, 4)) == [
        CaptureState(1), SendMarker(OUT, 1, False), StartRecording(A, 1), StopRecording(A, 1, 4), StartRecording(B, 1),
    ]  # fmt: skip


def test_a_request_after_the_marker_changes_nothing() -> None:
    """Already recorded is a state: any number of initiators make one cut."""
    machine = recorder(A, B)
    machine.step(received(A, 1, 4))
    assert machine.step(SnapshotRequested(1, (), 1)) == []
    assert machine.unfinished() == [1]


def test_a_request_cuts_running_snapshots_first_from_the_minimum_on() -> None:
    """PROTOCOL 3.3 and 3.4: all cut in one order, and what is below the minimum is settled."""
    effects = recorder(A).step(SnapshotRequested(4, (1, 3, 2, 5), 2))
    assert [effect.snapshot_id for effect in effects if isinstance(effect, CaptureState)] == [2, 3, 4]


def test_a_subtask_without_inputs_completes_at_once() -> None:
    """Nothing can arrive, so nothing is awaited."""
    assert recorder().step(SnapshotRequested(1, (), 1)) == [
        CaptureState(1), SendMarker(OUT, 1, False), CompleteRecording(1),
    ]  # fmt: skip


def test_a_request_records_every_lower_running_id_first() -> None:
    """PROTOCOL 3.3: ascending order, without those that are settled or recorded."""
    machine = recorder(A)
    machine.step(SnapshotRequested(2, (), 2))
    effects = machine.step(SnapshotRequested(5, (4, 3, 2, 1), 2))
    assert [effect.snapshot_id for effect in effects if isinstance(effect, CaptureState)] == [3, 4, 5]


def test_what_is_below_the_floor_is_dropped() -> None:
    """PROTOCOL 3.4: recordings are discarded, late markers and requests do nothing."""
    machine = recorder(A, B)
    machine.step(received(A, 1, 4))
    assert machine.step(MinSnapshotIdRaised(2)) == [DiscardRecording(1)]
    assert machine.step(received(B, 1, 9)) == []
    assert machine.step(SnapshotRequested(1, (), 1)) == []
    assert machine.step(MinSnapshotIdRaised(1)) == []
    assert (machine.min_snapshot_id, machine.unfinished()) == (2, [])


def test_a_marker_brings_the_floor_with_it() -> None:
    """PROTOCOL 3.4: what a marker's floor settles is discarded before the marker is obeyed."""
    machine = recorder(A)
    machine.step(SnapshotRequested(1, (), 1))
    effects = machine.step(received(A, 2, 4, min_snapshot_id=2))
    assert effects[:2] == [DiscardRecording(1), CaptureState(2)]


def test_a_second_marker_on_a_channel_is_an_error() -> None:
    """A marker comes once per channel and snapshot."""
    machine = recorder(A, B)
    machine.step(received(A, 1, 4))
    with pytest.raises(ChannelError, match=r"a\[0\]->me\[0\]: a second marker of snapshot 1"):
        machine.step(received(A, 1, 4))


def test_aligned_channels_are_held_until_all_markers_are_reached() -> None:
    """PROTOCOL 4.1: the cut comes with the last marker; no channel state, and markers keep their place."""
    machine = recorder(A, B, aligned=True)
    assert machine.step(received(A, 1, 4, aligned=True)) == [StartAlignmentTimer(1)]
    assert machine.step(received(B, 1, 6, aligned=True)) == []
    assert machine.step(MarkerReached(B, 1)) == [HoldChannel(B)]
    machine.validate()
    assert machine.step(MarkerReached(A, 1)) == [
        CaptureState(1), SendMarker(OUT, 1, True),
        StartRecording(A, 1), StopRecording(A, 1, 4), StartRecording(B, 1), StopRecording(B, 1, 6),
        ReleaseChannel(B), ReleaseChannel(A), CompleteRecording(1),
    ]  # fmt: skip
    assert machine.step(AlignmentTimedOut(1)) == [OvertakeWithMarkers(1)]


def test_a_timeout_cuts_at_once_unaligned() -> None:
    """PROTOCOL 4.3: inputs and outputs are unaligned for that snapshot."""
    machine = recorder(A, B, aligned=True)
    machine.step(received(A, 1, 4, aligned=True))
    assert machine.step(AlignmentTimedOut(1)) == [
        CaptureState(1), SendMarker(OUT, 1, False), StartRecording(A, 1), StopRecording(A, 1, 4), StartRecording(B, 1),
    ]  # fmt: skip
    assert machine.step(MarkerReached(A, 1)) == []  # nothing is held any more


def test_an_unaligned_marker_ends_the_alignment() -> None:
    """PROTOCOL 4.3: whoever meets a marker that has overtaken cuts at once, releasing what is held."""
    machine = recorder(A, B, aligned=True)
    machine.step(received(A, 1, 4, aligned=True))
    machine.step(MarkerReached(A, 1))
    effects = machine.step(received(B, 1, 6))
    assert effects[:2] == [CaptureState(1), SendMarker(OUT, 1, False)]
    assert effects[-2:] == [ReleaseChannel(A), CompleteRecording(1)]


def test_what_cuts_early_does_not_pass_a_lower_snapshot() -> None:
    """PROTOCOL 3.3: a snapshot that is cut unaligned takes the lower ones that still align with it, first."""
    machine = recorder(A, B, aligned=True)
    machine.step(received(A, 1, 4, aligned=True))
    effects = machine.step(received(A, 2, 6))
    assert [effect.snapshot_id for effect in effects if isinstance(effect, CaptureState)] == [1, 2]


def test_an_abort_releases_held_channels() -> None:
    """PROTOCOL 3.4 and 4.1: an aborted snapshot ends here, and the channels go on."""
    machine = recorder(A, B, aligned=True)
    machine.step(received(A, 1, 4, aligned=True))
    machine.step(MarkerReached(A, 1))
    assert machine.step(MinSnapshotIdRaised(2)) == [ReleaseChannel(A), DiscardRecording(1)]
    assert machine.step(AlignmentTimedOut(1)) == []


def test_crossing_ids_are_independent() -> None:
    """PROTOCOL 3.3: initiated without the rule, ids may cross; each snapshot is complete by itself."""
    machine = recorder(A, B)
    machine.step(received(A, 2, 4))
    machine.step(received(B, 1, 3))
    assert machine.unfinished() == [1, 2]
    assert machine.step(received(A, 1, 5)) == [StopRecording(A, 1, 5), CompleteRecording(1)]
    assert machine.step(received(B, 2, 9)) == [StopRecording(B, 2, 9), CompleteRecording(2)]


def by_epochs(*inputs: ChannelId) -> Recorder:
    """A recorder that holds no input, because messages have epochs (PROTOCOL 13.10, markers as low watermarks)."""
    return Recorder(ME, inputs, (OUT,), aligned_inputs=True, aligned_outputs=frozenset([OUT]), holds=False)


def test_by_epochs_no_input_is_held() -> None:
    """The marker is sent on, behind all that was sent, when it has come through on every input."""
    machine = by_epochs(A, B)
    machine.step(received(A, 1, 4, aligned=True))
    assert machine.step(MarkerReached(A, 1)) == []
    machine.step(received(B, 1, 2, aligned=True))
    assert machine.step(MarkerReached(B, 1)) == [
        CaptureState(1), SendMarker(OUT, 1, True), StartRecording(A, 1), StopRecording(A, 1, 4),
        StartRecording(B, 1), StopRecording(B, 1, 2), CompleteRecording(1),
    ]  # fmt: skip
    machine.validate()


def test_by_epochs_an_aborted_snapshot_releases_nothing() -> None:
    """And its late marker counts for no other snapshot."""
    machine = by_epochs(A, B)
    machine.step(received(A, 1, 4, aligned=True))
    machine.step(MarkerReached(A, 1))
    assert machine.step(MinSnapshotIdRaised(2)) == [DiscardRecording(1)]
    machine.step(received(A, 2, 6, aligned=True))
    assert machine.step(MarkerReached(A, 2)) == []
    assert machine.step(MarkerReached(B, 1)) == []
    assert machine.phase(2) is Phase.ALIGNING
    machine.validate()
