"""Checkers of whole runs: equivalence, delivery, fencing, liveness; each kind of violation is found and named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from cutline.snapshot.coordinator.run_state import Outcome
from cutline.snapshot.plan.topology import Topology
from cutline.snapshot.testing.checkers import (
    Verdict,
    delivery,
    fencing,
    liveness,
    numberedDelivery,
    numberedRecord,
    restoreEquivalence,
)
from cutline.snapshot.testing.history import History
from cutline.snapshot.testing.payload import pack
from cutline.snapshot.trace_events import Kind
from tests.snapshot import sample
from tests.snapshot.testing.scribe import Scribe, assert_broken, sample_history, sample_scribe, sample_snapshot

P, Q, PQ = sample.P, sample.Q, sample.PQ
ID, FIRST, SECOND = sample.SNAPSHOT_ID, sample.INCARNATION, sample.INCARNATION + 1

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
    assert verdict.checker == "restore equivalence"


def test_a_record_is_computed_from_its_number() -> None:
    """By Knuth's constant, so that a record that was written long ago is checked as well."""
    header = 0x9E3779B97F4A7C15
    assert numberedRecord(1) == (1, header, header.to_bytes(8, "big"))
    assert numberedRecord(2)[1] == 2 * header % 2**64


def test_what_a_rollback_undid_is_no_output() -> None:
    """Events behind the restored cut are left out, and each message is received once."""
    for rolled_back in (False, True):
        history = sample_history(rolled_back)
        received = [(event.channel, event.number) for event in history.handled("Q")]
        assert received == [(sample.PQ, number) for number in range(1, 9)]


def test_what_a_sink_made_visible_is_its_output() -> None:
    """A list sink's rows are those that it has committed."""
    due, found = line(1, 2), line(1, 2)
    for history in (due, found):
        history.list_sinks = {"Q": None}
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
    assert numberedDelivery(records, numbers).holds and numberedDelivery(records, numbers).checker == "delivery"
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
    scribe.note_event(Q, Kind.RESTORED, snapshot_id=ID + 5)


def older_restored(scribe: Scribe) -> None:
    scribe.deploy(SECOND + 1)


def unpublished_committed(scribe: Scribe) -> None:
    scribe.note_event(Q, Kind.COMMIT, snapshot_id=ID + 5)


def left_behind_committed(scribe: Scribe) -> None:
    scribe.note(Kind.PUBLISHED, ID + 6)
    late = scribe.incarnation
    scribe.incarnation = SECOND + 2
    scribe.note_event(P, Kind.RESTORED, snapshot_id=ID + 6)
    scribe.incarnation = late
    scribe.note(Kind.PUBLISHED, ID + 7, incarnation=SECOND + 2)
    scribe.note_event(Q, Kind.COMMIT, snapshot_id=ID + 7)


@pytest.mark.parametrize(
    ("trespass", "words"),
    [
        (late_publication, f"{ID + 1} (incarnation {FIRST}) was published after incarnation {SECOND} had begun"),
        (id_published_again, f"was published before, by incarnation {FIRST}: its id was used again"),
        (id_begun_again, f"(incarnation {SECOND}, P[0]) was begun before, by incarnation {FIRST}"),
        (unpublished_restored, f"snapshot {ID + 5} (incarnation {SECOND}, Q[0]) was restored from, but was never"),
        (
            older_restored,
            f"snapshot 0 (incarnation {SECOND + 1}, P[0]) was restored from, but {ID} was published before",
        ),
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


def test_an_incarnation_that_never_began_fences_nothing() -> None:
    """A coordinator that dies before anybody hears of its rollback is followed by one that goes on without it."""
    scribe = deployed_twice()
    scribe.note(Kind.DEPLOYED, ID, incarnation=SECOND + 1)
    scribe.note(Kind.PUBLISHED, ID + 1)
    assert fencing(scribe.history).holds


# ---------------------------------------------------------------- 9: liveness


def test_a_run_that_does_not_end_is_named() -> None:
    """Cut off, failed, or late."""
    scribe = sample_scribe()
    scribe.note(Kind.FAULT, text="Crash('P')")
    scribe.publish(sample_snapshot())
    assert liveness(scribe.finish(Outcome.STOPPED)).holds
    cut_off = liveness(scribe.finish(None))
    assert_broken(cut_off, "the run did not end, at 1 s, after the last fault, Crash('P') at 1 s")
    assert str(cut_off).endswith("at 1 s")
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
