"""Checkers: a sound history passes all of them, and each kind of violation is found and named."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace

import pytest

from snapshot import Snapshot
from snapshot.coordinator.run_state import Outcome
from snapshot.declared.topology import Topology
from snapshot.ids import ChannelId, Subtask
from snapshot.stored.part import PartKind
from snapshot.testing.checkers import (
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
    liveness,
    numberedDelivery,
    numberedRecord,
    restoreEquivalence,
)
from snapshot.testing.history import History, Kind
from snapshot.testing.payload import pack
from tests.snapshot import sample
from tests.snapshot.testing.scribe import (
    Scribe,
    nothing_stored,
    sample_history,
    sample_scribe,
    sample_snapshot,
)

P, Q, PQ, QP = sample.P, sample.Q, sample.PQ, sample.QP
ID, FIRST, SECOND = sample.SNAPSHOT_ID, sample.INCARNATION, sample.INCARNATION + 1


def assert_broken(verdict: Verdict, *words: str) -> None:
    """It is against the run, and says so in these words."""
    assert not verdict.holds, verdict
    for word in words:
        assert word in verdict.text, verdict


# ---------------------------------------------------------------- verdicts


@pytest.mark.parametrize("rolled_back", [False, True])
def test_a_sound_run_passes_all(rolled_back: bool) -> None:
    """No checker cries wolf, before a rollback and after one."""
    history = sample_history(rolled_back)
    history.snapshots[0] = final(history.snapshots[0])
    verdicts = judge(history, measure=lambda snapshot: snapshot.channels, reference=history, output=len_of_events)
    assert [verdict.checker for verdict in verdicts] == [
        *("exact cut", "causality", "completeness", "integrity", "conservation"),
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
    assert conservation(History(sample.TOPOLOGY, sample.CODEC), len).text.startswith("nothing to measure")


def test_a_failed_check_names_its_checker() -> None:
    """`demand` raises an error that carries the checker's name, also to another process."""
    with pytest.raises(CheckFailed, match="fencing: late") as caught:
        Verdict("fencing", False, "late").demand()
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (copy.checker, copy.text, str(copy)) == ("fencing", "late", "fencing: late")
    assert isinstance(copy, AssertionError)


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


def test_pickled_messages_are_compared_by_value() -> None:
    """A pickle of what was unpickled has other bytes, and is the same message."""
    shared = "s" * 20
    scribe = sample_scribe((complex(1, 2), {"a": frozenset({shared}), "b": shared}))
    codec = scribe.codec
    for number in (3, 4):
        packed = scribe.history.sent[FIRST, PQ][number]
        assert packed is not None
    scribe.receive(PQ, complex(1, 2))
    scribe.receive(PQ, {"b": shared, "a": frozenset({"s" * 20})})
    assert delivery(scribe.history).holds
    assert pack({"a": 1, "b": 2}, codec) != pack({"b": 2, "a": 1}, codec)


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
    return Snapshot(manifest, files.__getitem__, sample.CODEC), files


def test_damage_is_named() -> None:
    """The file, the offset and what is wrong."""
    snapshot, files = apart()
    assert integrity(snapshot).holds
    files["parts/state"] = files["parts/state"][:-1]
    assert_broken(integrity(snapshot), f"snapshot {ID}", "parts/state (state part of P[0]", "ends at offset")


def test_every_flipped_bit_is_noticed() -> None:
    """In the manifest and in every part, inline or in a file."""
    snapshot, files = apart()
    verdict = flippedBits(snapshot, files.__getitem__)
    assert verdict.holds, verdict
    with pytest.raises(ValueError, match="every bit is tried of"):
        flippedBits(snapshot, lambda path: bytes(1_000_000))


def test_a_bit_that_nobody_missed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where parts are read without a look at their checksum."""
    monkeypatch.setattr("snapshot.testing.checking.integrity.decode_part", lambda handle, data: data)
    verdict = flippedBits(sample_snapshot(), nothing_stored)
    assert_broken(verdict, "inline state part of P[0]", "offset 0: nobody noticed that bit 0 was flipped", "more")


# ---------------------------------------------------------------- 6: restore equivalence

LINE = Topology(
    "line",
    (sample.TOPOLOGY.nodes[0], replace(sample.TOPOLOGY.nodes[1], is_sink=True)),
    sample.TOPOLOGY.edges[:1],
    sample.TOPOLOGY.components,
)


def line(*messages: object) -> History:
    """A run that brought these messages to its last node."""
    scribe = Scribe(LINE)
    scribe.deploy(1)
    scribe.send(PQ, *messages)
    for _ in messages:
        scribe.receive(PQ)
    return scribe.finish()


def test_output_is_a_multiset() -> None:
    """Order does not matter, nor that of a dict's keys; a number of times does."""
    due = line(1, 2, {"a": 1, "b": 2}, "x")
    assert restoreEquivalence(line("x", {"b": 2, "a": 1}, 2, 1), due).holds
    verdict = restoreEquivalence(line(1, 1, 2, {"a": 1, "b": 2}), due)
    assert_broken(verdict, "Q: 1 lost of 4: 'x'", "Q: 1 too many of 4: 1")


def test_what_a_sink_made_visible_is_its_output() -> None:
    """A list sink's rows are those that it has committed."""
    due, found = line(1, 2), line(1, 2)
    for history in (due, found):
        history.list_sinks = frozenset({"Q"})
        history.committed["Q"]["Q[0]/1/1"] = [pack(1, history.codec)]
    assert restoreEquivalence(found, due).holds
    found.committed["Q"]["Q[0]/2/2"] = [pack(1, found.codec)]
    assert_broken(restoreEquivalence(found, due), "Q: 1 too many of 1: 1")


def test_the_user_says_what_output_is() -> None:
    """By a function of the history; a graph that has no end needs one."""
    due = line(1, 2)
    assert restoreEquivalence(line(3), due, output=lambda history: history.topology.name).holds
    assert_broken(restoreEquivalence(line(3), due, output=lambda h: h.output("Q")), "[3], but without faults [1, 2]")
    with pytest.raises(ValueError, match="no sink and no node without outputs"):
        restoreEquivalence(sample_history(), sample_history())


def test_another_ending_is_named() -> None:
    """A run that failed, or was cut off, is not equivalent, even where its output is."""
    failed = line(1)
    failed.outcome, failed.reason = Outcome.FAILED, "too many restarts"
    verdict = restoreEquivalence(failed, line(1))
    assert_broken(verdict, "the run ended failed (too many restarts), but without faults it ended finished")
    failed.outcome = None
    assert_broken(restoreEquivalence(failed, line(1)), "was cut off before its end")


# ---------------------------------------------------------------- 7: delivery


def received(*messages: object) -> Verdict:
    """P sends a, b, c; Q receives these."""
    scribe = Scribe(sample.TOPOLOGY)
    scribe.deploy(1)
    scribe.send(PQ, "a", "b", "c")
    for message in messages:
        scribe.receive(PQ, message)
    return delivery(scribe.finish(None))


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        (("a", "a", "b"), "message 2 ('b') was due, but 'a' was received in its place: that is message 1, doubled"),
        (("a", "c"), "message 2 ('b') was due, but 'c' was received in its place: that is message 3, so"),
        (("a", "B"), "message 2 ('b') was changed on the way: 'B' was received in its place"),
        (("a", "b", "c", "d"), "'d' was received as message 4, which nobody sent"),
    ],
)
def test_a_wrong_message_is_named(messages: tuple[str, ...], words: str) -> None:
    """Doubled, lost, changed, made up."""
    assert received("a", "b", "c").holds
    assert_broken(received(*messages), "P[0]->Q[0] in incarnation 1: ", words)


def test_a_lost_message_is_named_at_the_end() -> None:
    """A run that finished has received all; one that was cut off need not."""
    scribe = Scribe(sample.TOPOLOGY)
    scribe.deploy(1)
    scribe.send(PQ, "a", "b")
    scribe.receive(PQ)
    assert delivery(scribe.finish(None)).holds
    assert_broken(delivery(scribe.finish()), "message 2 ('b') was lost: the run finished, 1 of 2 received")


def test_a_restored_channel_goes_on_from_the_cut() -> None:
    """What was in flight comes first; a channel that forgot it is found."""
    assert delivery(sample_history(rolled_back=True)).holds
    scribe = sample_scribe()
    scribe.deploy(SECOND, (FIRST, ID))
    scribe.send(PQ, "nine")
    scribe.receive(PQ, "nine")
    assert_broken(
        delivery(scribe.history), f"in incarnation {SECOND}", "message 3 ('three') was due", "that is message 9"
    )


def test_numbers_have_no_gap() -> None:
    """Neither those that are sent nor those that are received."""
    history = sample_history()
    history.events = [event for event in history.events if (event.channel, event.number) != (PQ, 4)]
    assert_broken(delivery(history), "message 5 was sent where 4 was due", "was received as 5 where 4 was due")


def test_numbered_records() -> None:
    """Lost, doubled, out of order, corrupt: each counted and named."""
    records = [numberedRecord(number) for number in range(5)]
    numbers = range(5)
    assert numberedDelivery(records, numbers).holds
    assert_broken(numberedDelivery(records[:4], numbers), "record 4 was lost")
    assert_broken(numberedDelivery([*records, records[2]], numbers), "record 2 came twice")
    assert_broken(numberedDelivery([*records[1:], records[0]], numbers), "record 0 came behind 4")
    corrupt = (3, records[3][1], b"?")
    assert_broken(numberedDelivery([*records[:3], corrupt, records[4]], numbers), "corrupt: (3,", "record 3 was lost")


# ---------------------------------------------------------------- 8: fencing


def deployed_twice() -> Scribe:
    """The sample is published, and restored."""
    scribe = sample_scribe()
    scribe.publish(sample_snapshot())
    scribe.deploy(SECOND, (FIRST, ID))
    return scribe


def late_publication(scribe: Scribe) -> None:
    scribe.note(Kind.PUBLISHED, ID + 1, incarnation=FIRST)


def id_published_again(scribe: Scribe) -> None:
    scribe.note(Kind.PUBLISHED, ID)


def id_begun_again(scribe: Scribe) -> None:
    scribe.cut(P, ID)


def unpublished_restored(scribe: Scribe) -> None:
    scribe.tell(Q, Kind.RESTORED, snapshot_id=ID + 5)


def older_restored(scribe: Scribe) -> None:
    scribe.deploy(SECOND + 1)


def unpublished_committed(scribe: Scribe) -> None:
    scribe.tell(Q, Kind.COMMIT, snapshot_id=ID + 5)


def left_behind_committed(scribe: Scribe) -> None:
    scribe.note(Kind.PUBLISHED, ID + 6)
    scribe.note(Kind.DEPLOYED, ID + 6, incarnation=SECOND + 2)
    scribe.note(Kind.PUBLISHED, ID + 7, incarnation=SECOND + 2)
    scribe.tell(Q, Kind.COMMIT, snapshot_id=ID + 7)


@pytest.mark.parametrize(
    ("trespass", "words"),
    [
        (late_publication, f"{ID + 1} (incarnation {FIRST}) was published after incarnation {SECOND} was deployed"),
        (id_published_again, f"was published before, by incarnation {FIRST}: its id was used again"),
        (id_begun_again, f"(incarnation {SECOND}, P[0]) was begun before, by incarnation {FIRST}"),
        (unpublished_restored, f"snapshot {ID + 5} (incarnation {SECOND}, Q[0]) was restored from, but was never"),
        (older_restored, f"snapshot 0 (incarnation {SECOND + 1}) was restored from, but {ID} was published before"),
        (unpublished_committed, "Q[0]) was committed, but was never published"),
        (left_behind_committed, f"restored from {ID + 6}, which knows nothing of it"),
    ],
)
def test_a_trespass_is_named(trespass: Callable[[Scribe], None], words: str) -> None:
    """Whatever an older incarnation leaves in what is published."""
    scribe = deployed_twice()
    assert fencing(scribe.history).holds
    trespass(scribe)
    assert_broken(fencing(scribe.history), words)


# ---------------------------------------------------------------- 9: liveness


def test_a_run_that_does_not_end_is_named() -> None:
    """Cut off, failed, or late."""
    scribe = sample_scribe()
    scribe.note(Kind.FAULT, text="Crash('P')")
    scribe.publish(sample_snapshot())
    assert liveness(scribe.finish(Outcome.STOPPED)).holds
    assert_broken(liveness(scribe.finish(None)), "the run did not end, at 1 s, after the last fault, Crash('P') at 1 s")
    assert_broken(liveness(scribe.finish(Outcome.FAILED, "no luck")), "ended failed", "no luck")
    scribe.now = 9.0
    assert liveness(scribe.finish(), within=8.0).holds
    assert_broken(liveness(scribe.finish(), within=7.5), "ended at 9 s, more than 7.5 s after the last fault")


def test_a_run_without_a_snapshot_behind_the_last_fault_is_named() -> None:
    """It says what was aborted instead; a late one is found too."""
    scribe = sample_scribe()
    scribe.publish(sample_snapshot())
    scribe.note(Kind.FAULT, text="Crash('P')")
    scribe.note(Kind.ABORTED, ID + 1, "timed out")
    verdict = liveness(scribe.finish(Outcome.STOPPED))
    assert_broken(verdict, "no snapshot was published after the last fault", f"aborted: {ID + 1} (timed out)")
    scribe.now = 5.0
    scribe.note(Kind.PUBLISHED, ID + 2)
    assert liveness(scribe.finish(Outcome.STOPPED)).holds
    assert_broken(liveness(scribe.finish(Outcome.STOPPED), within=3.0), f"snapshot {ID + 2} was published at 5 s")
    assert liveness(sample_scribe().finish(Outcome.STOPPED)).holds


def test_parts_of_the_sample_are_what_the_tests_think() -> None:
    """A state, what waited at the receiver, and what the marker overtook."""
    kinds = [handle.kind for record in sample_snapshot().manifest.records for handle in record.handles]
    assert [kinds.count(kind) for kind in (PartKind.STATE, PartKind.RECEIVED, PartKind.SENT)] == [2, 2, 1]
    assert sample_snapshot().channels == (ChannelId(Subtask("P"), Subtask("Q")), QP)
