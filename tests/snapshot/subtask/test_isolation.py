"""Which messages are kept apart, and which of them are set aside."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pyarrow as pa
from hypothesis import assume, given
from hypothesis import strategies as st

from cutline.snapshot.channel.frame import Frame, PayloadKind
from cutline.snapshot.channel.message_hash import content_hashes
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.coordinator.repeated_failures import Poisoned, RepeatedFailures
from cutline.snapshot.failed_event import DeadLetter, FailedBatch, FailedMessage, IsolatedMessages, Suspects
from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.subtask.isolation import Isolation, Piece
from tests.snapshot.coordinator.test_repeated_failures import B, topology

CODEC = Codec()
CHANNEL = ChannelId(Subtask("a"), B)


def content(message: Any) -> bytes:
    return next(content_hashes(message if isinstance(message, pa.RecordBatch) else [message], CODEC))


def isolation(**suspects: Any) -> Isolation:
    return Isolation(CHANNEL, Suspects(**suspects), None, CODEC)


def pieces(apart: Isolation, messages: Any, number: int = 1) -> list[Piece]:
    """All pieces of a frame of messages, all of them handled."""
    found: list[Piece] = []
    while len(messages):
        assert apart.concerns(Frame(number, len(messages), PayloadKind.VALUES, b"")) or found
        found.append(piece := apart.piece(number, messages))
        apart.note_handled(piece)
        messages, number = messages[piece.count :], number + piece.count
    return found


def letter(number: int, message: Any = None) -> DeadLetter:
    """By its content, or by its number alone."""
    return DeadLetter(CHANNEL, number, None if message is None else content(message), "why")


def test_a_message_is_set_aside_wherever_its_content_comes() -> None:
    """At its number or behind it, and once; another message that has the number goes to the node."""
    assert pieces(isolation(letters=(letter(2, "bad"),)), ["a", "bad", "c"]) == [Piece(1), Piece(1, "why"), Piece(1)]
    moved = pieces(isolation(letters=(letter(2, "bad"),)), ["a", "b", "c", "bad", "bad"])
    assert moved == [Piece(3), Piece(1, "why"), Piece(1)]
    assert pieces(isolation(letters=(letter(4, "bad"),)), ["bad", "b", "c", "d"]) == [Piece(4)]
    several = isolation(letters=(letter(1, "bad"), letter(1, "worse"), letter(3, "bad")))
    assert pieces(several, ["worse", "b", "bad", "bad", "bad"]) == [
        Piece(1, "why"),
        Piece(1),
        Piece(1, "why"),
        Piece(1, "why"),
        Piece(1),
    ]


def test_a_message_whose_content_differs_is_set_aside_by_its_number() -> None:
    """And at no other."""
    assert pieces(isolation(letters=(letter(2),)), ["a", "b", "c"]) == [Piece(1), Piece(1, "why"), Piece(1)]


def test_rows_of_a_batch_are_known_as_messages_are() -> None:
    """By their values, whatever batch they are in."""
    rows = pa.RecordBatch.from_pydict({"n": [1, 2, 3, 4]})
    bad = DeadLetter(CHANNEL, 2, content(pa.RecordBatch.from_pydict({"n": [3]})), "why")
    assert pieces(isolation(letters=(bad,)), rows) == [Piece(2), Piece(1, "why"), Piece(1)]


def test_a_letter_is_not_looked_for_without_end() -> None:
    """Each message behind its number is hashed, and the message may never come."""
    apart = isolation(letters=(letter(5, "bad"),))
    assert apart.concerns(Frame(10_005, 1, PayloadKind.VALUES, b""))
    assert not apart.concerns(Frame(10_006, 1, PayloadKind.VALUES, b""))


def suspect(number: int, message: Any) -> FailedMessage:
    return FailedMessage(CHANNEL, number, content(message))


def test_a_suspect_is_handled_alone_and_reported() -> None:
    """Once, whatever number it has now, and with all numbers that it had."""
    apart = isolation(messages=(suspect(2, "b"), suspect(5, "b"), suspect(4, "d")))
    both = (suspect(2, "b"), suspect(5, "b"))
    assert pieces(apart, ["a", "x", "b", "b", "e"]) == [Piece(2), Piece(1, None, both), Piece(2)]
    assert apart.take_handled() == [*both] and apart.take_handled() == []
    assert apart.concerns(Frame(10_004, 1, PayloadKind.VALUES, b""))
    assert not apart.concerns(Frame(10_005, 1, PayloadKind.VALUES, b""))


def test_a_suspect_is_looked_for_ahead_of_its_number_too() -> None:
    """Among as many messages: each of them is hashed."""
    apart = isolation(messages=(suspect(10_001, "b"),))
    assert pieces(apart, ["b", "b"], number=1)[0] == Piece(1, None, (suspect(10_001, "b"),))
    far = isolation(messages=(suspect(10_003, "b"),))
    assert far.piece(1, ["b", "b"]) == Piece(2)
    assert far.piece(2, ["a", "b"]) == Piece(1) and far.piece(3, ["b"]).suspects


def test_halves_are_passed_apart() -> None:
    """Each range for itself, and what lies between."""
    apart = isolation(isolated=(IsolatedMessages(CHANNEL, 2, 3), IsolatedMessages(CHANNEL, 4, 6)))
    assert [piece.count for piece in pieces(apart, list("abcdefgh"))] == [1, 2, 3, 2]


def test_suspects_of_other_channels_do_not_count() -> None:
    """A subtask gets those of all its inputs."""
    other = ChannelId(Subtask("other"), B)
    suspects = Suspects(
        messages=(FailedMessage(other, 2, b"x"),),
        isolated=(IsolatedMessages(other, 1, 2),),
        letters=(DeadLetter(other, 1, None, "why"),),
    )
    assert suspects.concern(other) and not suspects.concern(CHANNEL)
    assert not Isolation(CHANNEL, suspects, None, CODEC).concerns(Frame(1, 1, PayloadKind.VALUES, b""))
    for name in ("messages", "isolated", "letters"):
        only: Any = {name: getattr(suspects, name)}
        assert Suspects(**only).concern(other) and not Suspects(**only).concern(CHANNEL)


@given(
    inputs=st.lists(st.lists(st.booleans(), max_size=6), min_size=1, max_size=3),
    poison_after=st.integers(1, 4),
    together=st.booleans(),
    stamped=st.booleans(),
    data=st.data(),
)
def test_exactly_what_fails_is_set_aside_behind_several_inputs(
    inputs: list[list[bool]], poison_after: int, together: bool, stamped: bool, data: st.DataObject
) -> None:
    """Each start merges the inputs in another order. Each message set aside has its own error.

    Where messages also differ after each start, only one input keeps its order. Five messages that fail behind several
    inputs could be taken for one that differs.
    """
    if stamped:
        inputs = inputs[:1]
    assume(stamped or len(inputs) == 1 or sum(map(sum, inputs)) < 5)
    values = [[(of, place, is_bad) for place, is_bad in enumerate(each)] for of, each in enumerate(inputs)]
    failures = RepeatedFailures(topology(), poison_after)
    bad = sorted(value for each in values for value in each if value[2])
    restarts = 0
    while True:
        merged = merge(values, data)
        messages = [(*value, restarts) for value in merged] if stamped else merged
        failed, aside = start(failures.suspects(B), messages, together=together)
        if failed is None:
            break
        assert not isinstance(failures.count(failed, error_of(failed, merged)), Poisoned)
        restarts += 1
    assert sorted(aside) == [(value, str(value)) for value in bad]
    if len(inputs) == 1:
        halvings = math.ceil(math.log2(len(merged))) if together and merged else 0
        tries = max(poison_after, 5) if stamped else poison_after
        assert restarts <= len(bad) * (tries + halvings) + (poison_after if together else 0)


def merge(values: list[list[Any]], data: st.DataObject) -> list[Any]:
    """An order of all inputs' messages that keeps the order of each input."""
    turns = [of for of, each in enumerate(values) for _ in each]
    left = [list(each) for each in values]
    return [left[of].pop(0) for of in data.draw(st.permutations(turns))]


def error_of(failed: FailedMessage | FailedBatch, merged: list[Any]) -> str:
    return str(merged[failed.number - 1]) if isinstance(failed, FailedMessage) else "several"


def start(
    suspects: Suspects, messages: list[Any], *, together: bool
) -> tuple[FailedMessage | FailedBatch | None, list[Any]]:
    """Pass all messages to a hook that fails on bad ones. Return what failed, and what was set aside with its error."""
    apart = Isolation(CHANNEL, suspects, None, CODEC)
    number, aside = 1, []
    while number <= len(messages):
        rest = messages[number - 1 :]
        is_concerned = apart.concerns(Frame(number, len(rest), PayloadKind.VALUES, b""))
        piece = apart.piece(number, rest) if is_concerned else Piece(len(rest))
        some = rest[: piece.count]
        if piece.error is not None:
            aside.append((some[0][:3], piece.error))
        elif any(value[2] for value in some):
            if together and len(some) > 1:
                return FailedBatch(CHANNEL, number, number + len(some) - 1), aside
            first = next(place for place, value in enumerate(some) if value[2])
            return FailedMessage(CHANNEL, number + first, content(some[first])), aside
        number += piece.count
    return None, aside


def test_the_merge_keeps_the_order_of_each_input() -> None:
    """Else the property above would say nothing of streams."""

    @given(data=st.data())
    def check(data: st.DataObject) -> None:
        merged = merge([[1, 2, 3], [10, 20]], data)
        assert [each for each in merged if each < 10] == [1, 2, 3]
        assert Counter(merged) == Counter([1, 2, 3, 10, 20])

    check()
