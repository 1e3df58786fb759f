"""Checkers of snapshots: a sound history passes all of them, and each kind of violation is found and named."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest

from cutline import Snapshot
from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.stored.part import PartKind
from cutline.snapshot.testing.checkers import (
    CheckFailed,
    Verdict,
    causality,
    completeness,
    conservation,
    delivery,
    exactCut,
    fencing,
    flippedBits,
    integrity,
    judge,
)
from cutline.snapshot.testing.checking.values import same
from cutline.snapshot.testing.checking.verdict import verdict_of
from cutline.snapshot.testing.history import History
from cutline.snapshot.testing.payload import pack, unpack
from tests.snapshot import sample
from tests.snapshot.testing.scribe import (
    assert_broken,
    nothing_stored,
    sample_history,
    sample_scribe,
    sample_snapshot,
)

P, Q, PQ, QP = sample.P, sample.Q, sample.PQ, sample.QP
ID, FIRST, SECOND = sample.SNAPSHOT_ID, sample.INCARNATION, sample.INCARNATION + 1


# ---------------------------------------------------------------- verdicts


@pytest.mark.parametrize("rolled_back", [False, True])
def test_a_sound_run_passes_all(rolled_back: bool) -> None:
    """No checker cries wolf, before a rollback and after one."""
    history = sample_history(rolled_back)
    history.snapshots[0] = final(history.snapshots[0])
    verdicts = judge(history, measure=lambda snapshot: snapshot.channels, reference=history, output=len_of_events)
    assert [verdict.checker for verdict in verdicts] == [
        *("integrity", "exact cut", "causality", "completeness", "conservation"),
        *("delivery", "fencing", "liveness", "restore equivalence"),
    ]
    for verdict in verdicts:
        verdict.demand()
        assert verdict.holds


def len_of_events(history: History) -> int:
    """Some output."""
    return len(history.events)


def final(snapshot: Snapshot) -> Snapshot:
    """The same, as the last of its run."""
    return Snapshot(replace(snapshot.manifest, final=True), nothing_stored, sample.CODEC)


def test_what_was_looked_at_is_said() -> None:
    """A verdict that holds says how much it saw, so that an empty run is not taken for a proof."""
    history = sample_history(rolled_back=True)
    name = f"snapshot {ID} of incarnation {FIRST}"
    assert exactCut(history, sample_snapshot()).text == f"{name}: 2 channels exact, 7 messages in flight"
    assert "11 messages were received as they were sent, in 2 incarnations" in delivery(history).text
    assert fencing(history).text == "2 incarnations, 1 snapshots, 1 leftovers refused"
    assert conservation(History(sample.TOPOLOGY, sample.CODEC), lambda snapshot: 200).text.startswith(
        "nothing to measure"
    )


def test_a_failed_check_names_its_checker() -> None:
    """`demand` raises an error that carries the checker's name, also to another process."""
    with pytest.raises(CheckFailed, match="fencing: late") as caught:
        Verdict("fencing", False, "late").demand()
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (copy.checker, copy.text, str(copy)) == ("fencing", "late", "fencing: late")
    assert isinstance(copy, AssertionError)


def test_many_problems_are_counted() -> None:
    """The first ones are named; a verdict shows at a glance whether it holds."""
    few, many = (verdict_of("fencing", [f"problem {n}" for n in range(count)], "fine") for count in (5, 9))
    assert str(few) == "fencing: BROKEN: problem 0; problem 1; problem 2; problem 3; problem 4"
    assert str(many) == f"{few}; and 4 more"
    assert str(verdict_of("fencing", [], "fine")) == "fencing: holds: fine"


# ---------------------------------------------------------------- 1: exact cut


def exact(*in_flight: object) -> Verdict:
    """Of the sample, whose PQ had these messages in flight."""
    return exactCut(sample_scribe(in_flight).history, sample_snapshot())


def test_a_changed_message_is_named() -> None:
    """The channel, the number and both values."""
    verdict = exact("three", (4, "vier"), (5, "five"), {"x": 6}, {"x": 7}, {"eight": 8})
    assert_broken(verdict, f"snapshot {ID}", "P[0]->Q[0]", "message 4 ((4, 'vier'))", "holds (4, 'four') in its place")


def test_a_type_is_part_of_a_value() -> None:
    """A list is no tuple."""
    assert_broken(exact("three", [4, "four"], (5, "five"), {"x": 6}, {"x": 7}, {"eight": 8}), "message 4 ([4, 'four'])")


def test_a_missing_message_is_named() -> None:
    """In the middle and at the end; the counts are wrong with it."""
    middle = exact("three", "new", (4, "four"), (5, "five"), {"x": 6}, {"x": 7}, {"eight": 8})
    assert_broken(middle, "P[0] had sent 9 messages at its cut, the snapshot says 8", "message 4 ('new') was in flight")
    last = exact("three", (4, "four"), (5, "five"), {"x": 6}, {"x": 7}, {"eight": 8}, "nine")
    assert_broken(last, "message 9 ('nine') was in flight and is not in the channel state")


def test_a_message_too_many_is_named() -> None:
    """It says where the message belongs, or that nobody knows it."""
    assert_broken(exact("three", (4, "four"), (5, "five"), {"x": 6}, {"x": 7}), "holds {'eight': 8} beyond the 5")
    scribe = sample_scribe(("three", (4, "four"), (5, "five"), {"x": 6}, {"x": 7}))
    scribe.send(PQ, {"eight": 8})
    verdict = exactCut(scribe.history, sample_snapshot())
    assert_broken(verdict, "holds {'eight': 8}, message 8, which was sent behind the cut")


def test_a_processed_message_in_the_channel_state_is_named() -> None:
    """Recorded twice: in the receiver's state and in the channel's."""
    scribe = sample_scribe()
    cut = scribe.history.cuts[FIRST, ID, Q]
    scribe.history.cuts[FIRST, ID, Q] = replace(cut, processed={PQ: 3})
    verdict = exactCut(scribe.history, sample_snapshot())
    assert_broken(verdict, "Q[0] had processed 3", "'three', message 3, which was processed before it")


def test_a_message_across_the_cut_is_named() -> None:
    """Processed before the receiver's cut, sent behind the sender's."""
    scribe = sample_scribe()
    cut = scribe.history.cuts[FIRST, ID, P]
    scribe.history.cuts[FIRST, ID, P] = replace(cut, sent={PQ: 1})
    verdict = exactCut(scribe.history, sample_snapshot())
    assert_broken(verdict, "P[0]->Q[0]: message 2 ('two') was processed before the cut and sent behind it")


def test_a_cut_that_nobody_saw_is_named() -> None:
    """Without a cut there is nothing to hold the snapshot against."""
    scribe = sample_scribe()
    del scribe.history.cuts[FIRST, ID, Q]
    assert_broken(exactCut(scribe.history, sample_snapshot()), "Q[0] was never seen to cut")
    assert_broken(causality(scribe.history, sample_snapshot()), "Q[0] was never seen to cut")


class Opaque:
    """Has no idea of equality."""

    def __init__(self, value: object) -> None:
        self.value = value


def test_pickled_messages_are_compared_by_what_they_hold() -> None:
    """What is pickled, loaded and pickled again has other bytes, and is the same message."""
    message = Opaque("value")  # the field's name: one string here, two after loading
    packed = pack(message, sample.CODEC)
    loaded = unpack(packed, sample.CODEC)
    assert pack(loaded, sample.CODEC) != packed
    scribe = sample_scribe((message, [1]))
    scribe.receive(PQ, loaded)
    assert delivery(scribe.history).holds
    scribe.receive(PQ, loaded)
    assert_broken(delivery(scribe.history), "message 4 ([1]) was due")
    assert same(pack({"a": 1, "b": 2}, sample.CODEC), pack({"b": 2, "a": 1}, sample.CODEC), sample.CODEC)


# ---------------------------------------------------------------- 2: causality


def test_knowledge_from_behind_a_cut_is_named() -> None:
    """The message that carried it, and whose cut it spoils."""
    scribe = sample_scribe()
    assert causality(scribe.history, sample_snapshot()).holds
    scribe.send(PQ, "late")
    for _ in range(7):
        scribe.receive(PQ)
    scribe.cut(Q, ID)
    verdict = causality(scribe.history, sample_snapshot())
    assert_broken(verdict, "the cut of Q[0] knows what P[0] did behind its own", "send of message 9 ('late')", f"{ID}")


# ---------------------------------------------------------------- 3: conservation


def test_a_sum_that_changes_is_named() -> None:
    """Both snapshots, both values."""
    history = sample_history()
    other = Snapshot(sample.manifest(snapshot_id=ID + 1), nothing_stored, sample.CODEC)
    history.snapshots.append(other)
    assert conservation(history, lambda snapshot: 200).holds
    verdict = conservation(history, lambda snapshot: 200 if snapshot.id == ID else 190)
    assert_broken(verdict, f"snapshot {ID + 1}", "measures 190", f"200 in snapshot {ID} of incarnation {FIRST}")


# ---------------------------------------------------------------- 4: completeness


def test_a_subtask_that_is_missing_is_named() -> None:
    """Judged by the graph that ran: a manifest that forgets a node is complete only in its own eyes."""
    history = sample_history()
    spec = sample.TOPOLOGY.nodes[0]
    history.topology = replace(sample.TOPOLOGY, nodes=(*sample.TOPOLOGY.nodes, replace(spec, name="R")))
    assert_broken(completeness(history, sample_snapshot()), f"snapshot {ID}", "R[0]: 0 times a record instead of once")


def test_a_subtask_that_cut_twice_is_named() -> None:
    """The witness saw it, whatever the manifest says."""
    scribe = sample_scribe()
    assert completeness(scribe.history, sample_snapshot()).holds
    scribe.cut(Q, ID)
    assert_broken(completeness(scribe.history, sample_snapshot()), "Q[0] recorded its state 2 times instead of once")


# ---------------------------------------------------------------- 5: integrity


def apart() -> tuple[Snapshot, dict[str, bytes]]:
    """The sample, one part of which has a file of its own."""
    p, q = sample.records()
    state = p.state
    files = {"parts/state": state.inline or b""}
    stored = replace(state, path="parts/state", inline=None)
    handles = tuple(stored if handle is state else handle for handle in p.handles)
    manifest = sample.manifest((replace(p, handles=handles), q))
    return Snapshot(manifest, lambda handle: files[handle.path or ""], sample.CODEC), files


def test_damage_is_named() -> None:
    """The file, the offset and what is wrong."""
    snapshot, files = apart()
    assert integrity(snapshot).holds
    files["parts/state"] = files["parts/state"][:-1]
    assert_broken(integrity(snapshot), f"snapshot {ID}", "parts/state (state part of P[0]", "ends at offset")


def test_every_flipped_bit_is_noticed() -> None:
    """In the manifest and in every part, inline or in a file."""
    snapshot, files = apart()
    verdict = flippedBits(snapshot, lambda handle: files[handle.path or ""])
    assert verdict.holds, verdict
    with pytest.raises(ValueError, match="every bit is tried of"):
        flippedBits(snapshot, lambda handle: bytes(1_000_000))


def test_a_bit_that_nobody_missed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where parts are read without a look at their checksum."""
    monkeypatch.setattr("cutline.snapshot.testing.checking.integrity.decode_part", lambda handle, data: data)
    verdict = flippedBits(sample_snapshot(), nothing_stored)
    assert_broken(verdict, "inline state part of P[0]", "offset 0: nobody noticed that bit 0 was flipped", "more")


def test_parts_of_the_sample_are_what_the_tests_think() -> None:
    """A state, what waited at the receiver, and what the marker overtook."""
    kinds = [handle.kind for record in sample_snapshot().manifest.records for handle in record.handles]
    assert [kinds.count(kind) for kind in (PartKind.STATE, PartKind.RECEIVED, PartKind.SENT)] == [2, 2, 1]
    assert sample_snapshot().channels == (ChannelId(Subtask("P"), Subtask("Q")), QP)
