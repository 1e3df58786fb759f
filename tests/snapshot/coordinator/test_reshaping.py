"""The plan of reshaped edges: which they are, the numbers and ends of their channels, and what is refused."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutline.snapshot.channel.frame_codec import messages_of
from cutline.snapshot.channel.partitioning import donors_of, heir_of, key_group, subtask_of_group
from cutline.snapshot.channel.rerouting import ReroutedCount
from cutline.snapshot.coordinator.recovery import plan_restore
from cutline.snapshot.coordinator.reshaping import Reshaping, StoredChannels, rerouting_problems, reshaped_edges
from cutline.snapshot.errors import RestoreRefused
from cutline.snapshot.ids import Subtask
from cutline.snapshot.plan.topology import Partitioning, Topology
from cutline.snapshot.stored.certificate import SubtaskStatus
from tests.run_size import FACTOR, scaled
from tests.snapshot.in_flight import CODEC, Flight, channel, edge, ended, restored, snapshot_of

A, B = "A", "B"
WAY_OUT = r"\. Submit it with the parallelism of the snapshot, or restore an older snapshot"
ALIGNED = r', or one that was taken with alignment="aligned", which has no messages in flight'
Flights = Mapping[tuple[int, int], Flight]
NOTHING: Flights = {}


def first(message: Any) -> Any:
    """The key of the edge."""
    return message[0]


def plan_of(
    before: Topology, now: Topology, flights: Flights = NOTHING, statuses: Mapping[Subtask, Any] | None = None
) -> Reshaping:
    """The plan of the edge A->B."""
    stored = StoredChannels(snapshot_of(before, flights, statuses))
    return reshaped_edges(now, before, stored)[A, B]


# ---------------------------------------------------------------- which edges


@pytest.mark.parametrize(
    ("now", "is_reshaped"),
    [
        (edge(2, 3), False),
        (edge(3, 3), True),
        (edge(2, 4), True),
        (edge(2, 3, Partitioning.REBALANCE), True),
        (edge(2, 3, key="second()"), True),
        (replace(edge(2, 3), name="other"), False),
    ],
)
def test_an_edge_is_reshaped_where_its_messages_may_go_elsewhere(now: Topology, is_reshaped: bool) -> None:
    """Another parallelism at either end, another partitioning, another key; nothing else."""
    before = edge(2, 3)
    found = reshaped_edges(now, before, StoredChannels(snapshot_of(before, {})))
    assert ((A, B) in found) == is_reshaped


def test_an_edge_that_the_snapshot_has_not_is_new_and_not_reshaped() -> None:
    """Its channels begin with nothing."""
    before = edge(2, 2)
    cyclic = edge(2, 3, in_cycle=True)
    assert list(reshaped_edges(cyclic, before, StoredChannels(snapshot_of(before, {})))) == [(A, B)]


# ---------------------------------------------------------------- numbers


@pytest.mark.parametrize("has_end", [False, True])
def test_a_new_channel_begins_behind_all_that_its_sender_may_have_sent(has_end: bool) -> None:
    """B is 1, for the end, and what is in flight of every old sender of which the new one is the heir (6.8)."""
    flights = {
        (0, 0): Flight(10, [("x",)] * 3),
        (0, 1): Flight(5, [("x",)] * 2, has_end=has_end),
        (1, 0): Flight(0, [("x",)] * 4),
        (2, 1): Flight(7, [("x",)]),
    }
    statuses = ended(Subtask(A, 0)) if has_end else None
    flights[0, 0] = replace(flights[0, 0], has_end=has_end)
    plan = plan_of(edge(3, 2), edge(2, 2), flights, statuses)
    # Old 0 and 1 have the heir 0: they begin with the groups 0 and 10,923. Old 2 begins with 21,846.
    assert [plan.sent(m) for m in range(2)] == [1 + 3 + 2 + 4 + 2 * has_end, 1 + 1]
    wider = plan_of(edge(3, 2), edge(5, 2), flights, statuses)
    assert [wider.sent(m) for m in range(5)] == [6 + 2 * has_end, 5, 1, 2, 1]


def test_a_wave_is_higher_than_all_waves_before() -> None:
    """Messages without a wave come last of what is in flight, and those of a later restore behind them."""
    waved = {(0, 0): Flight(0, [("x",)] * 3, waves=((1, 2), (2, 5))), (1, 1): Flight(0, [("y",)], waves=((1, 3),))}
    assert plan_of(edge(2, 2), edge(2, 3), waved).plan(0).wave == 6
    assert plan_of(edge(2, 2), edge(2, 3)).plan(0).wave == 1


# ---------------------------------------------------------------- ends


def _ends(plan: Reshaping) -> dict[tuple[int, int], str]:
    return {at: end.value for at, end in plan.ends().items()}


def test_ends_of_senders_that_are_as_many_as_before() -> None:
    """Each sender by itself: open, ending where a donor has not processed the end, closed where all have."""
    flights = {(0, 0): Flight(4, has_end=True), (0, 1): Flight(4), (1, 0): Flight(3), (1, 1): Flight(3)}
    two = edge(2, 2)
    # A[0] has ended. B[1] has processed the end, which is number 4; B[0] has not.
    narrow = plan_of(two, edge(2, 1), flights, ended(Subtask(A, 0)))
    assert _ends(narrow) == {(0, 0): "ending", (1, 0): "open"}
    wide = plan_of(two, edge(2, 4), flights, ended(Subtask(A, 0)))
    assert _ends(wide) == {
        (m, k): ("ending" if k < 2 else "closed") if m == 0 else "open" for m in (0, 1) for k in range(4)
    }
    both = {(i, j): Flight(4) for i in range(2) for j in range(2)}
    closed = plan_of(two, edge(2, 3), both, ended(Subtask(A, 0), Subtask(A, 1)))
    assert set(_ends(closed).values()) == {"closed"}


def test_ends_of_senders_that_are_more_or_fewer() -> None:
    """Only if all had ended: closed where all donors had closed the whole edge, else ending; otherwise none is left."""
    flights = {(0, 0): Flight(4, has_end=True), (0, 1): Flight(4), (1, 0): Flight(3), (1, 1): Flight(3)}
    half = plan_of(edge(2, 2), edge(3, 2), flights, ended(Subtask(A, 0)))
    assert set(_ends(half).values()) == {"open"}
    full = plan_of(edge(2, 2), edge(3, 2), flights, ended(Subtask(A, 0), Subtask(A, 1)))
    assert _ends(full) == {(m, k): ["ending", "closed"][k] for m in range(3) for k in range(2)}


def test_a_cycle_carries_no_end() -> None:
    """It ends as a whole, so all its channels are open."""
    plan = plan_of(edge(2, 2, in_cycle=True), edge(3, 2, in_cycle=True))
    assert set(_ends(plan).values()) == {"open"}


# ---------------------------------------------------------------- refusals


def _refused(
    before: Topology,
    now: Topology,
    flights: Flights,
    statuses: Mapping[Subtask, Any] | None = None,
    *,
    has_divided_state: bool = False,
) -> str:
    with pytest.raises(RestoreRefused) as refused:
        plan_of(before, now, flights, statuses).check(has_divided_state=has_divided_state)
    return str(refused.value)


IN_FLIGHT = {(0, 1): Flight(2, [("x",)] * 3), (1, 1): Flight(0, [("y",)])}
REFUSALS = {
    "directed to a subtask that is gone": (
        edge(2, 2, Partitioning.DIRECTED), edge(2, 1, Partitioning.DIRECTED), IN_FLIGHT,
        "4 messages are in flight to subtasks above 0, which the graph has not",
    ),
    "copies differ": (
        edge(2, 2, Partitioning.BROADCAST), edge(2, 1, Partitioning.BROADCAST), IN_FLIGHT,
        r"B\[0\] takes over from B\[0\] and B\[1\], for which A\[0\] has 0 and 3 messages in flight, and not the same",
    ),
    "copies on a forward edge": (
        edge(2, 2, Partitioning.BROADCAST), edge(2, 2, Partitioning.FORWARD), IN_FLIGHT,
        "4 messages are in flight to all subtasks, and a forward edge has one way for each sender",
    ),
    "copies on a keyed edge": (
        edge(2, 2, Partitioning.BROADCAST), edge(2, 2), IN_FLIGHT,
        "4 messages are in flight to all subtasks, and a keyed edge one for each key",
    ),
    "divided by key on a forward edge": (
        edge(2, 2), edge(2, 2, Partitioning.FORWARD), IN_FLIGHT,
        r"4 messages are in flight, which were divided \(hash\), and a forward edge has one way for each sender",
    ),
    "directed on a forward edge": (
        edge(2, 2, Partitioning.DIRECTED), edge(2, 2, Partitioning.FORWARD), IN_FLIGHT,
        r"4 messages are in flight, which were divided \(directed\), and a forward edge has one way for each sender",
    ),
    "the key is gone": (
        edge(2, 2), edge(2, 2, Partitioning.REBALANCE), IN_FLIGHT,
        r"4 messages are in flight, which were divided by the key first\(\), and the edge has no key now",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSALS)
def test_messages_without_a_place_are_refused(name: str) -> None:
    """By edge, number, reason and way out. The same graphs without messages in flight are restored."""
    before, now, flights, reason = REFUSALS[name]
    text = _refused(before, now, flights)
    assert re.search(rf"^run 'bank', snapshot 7000042: edge A->B: {reason}{WAY_OUT}{ALIGNED}$", text), text
    plan_of(before, now).check(has_divided_state=False)


def test_forward_messages_to_own_state_by_partitions_are_refused() -> None:
    """Key groups decide where the state goes, and not where the messages go. At one parallelism nothing moves."""
    before, now = edge(2, 2, Partitioning.FORWARD), edge(3, 3, Partitioning.FORWARD)
    flights = {(0, 0): Flight(0, [("x",)] * 3)}
    text = _refused(before, now, flights, has_divided_state=True)
    assert "edge A->B: 3 messages are in flight, and B keeps its own state by key groups" in text
    plan_of(before, now, flights).check(has_divided_state=False)
    plan_of(before, now).check(has_divided_state=True)


def test_on_end_is_never_called_twice() -> None:
    """Donors of one subtask of which some had the end of A and some not; a donor whose edge is open again."""
    flights = {(0, 0): Flight(4), (0, 1): Flight(4, has_end=True)}
    text = _refused(edge(1, 2), edge(1, 1), flights, ended(Subtask(A, 0)))
    assert (
        r"onEnd(A) was called at B[0], and would be called again at B[0], which takes over from B[0] and B[1]" in text
    )
    assert re.search(f"{WAY_OUT}$", text), "no other alignment would help"
    plain = edge(1, 1)
    silent = replace(plain, nodes=(plain.nodes[0], replace(plain.nodes[1], acts_on_end=None)))
    plan_of(edge(1, 2), silent, flights, ended(Subtask(A, 0))).check(has_divided_state=False)
    plan_of(edge(1, 2), edge(1, 4), flights, ended(Subtask(A, 0))).check(has_divided_state=False)


@pytest.mark.parametrize("names", [(A,), (B,), (A, B)])
def test_an_ended_cycle_is_refused(names: tuple[str, ...]) -> None:
    """An ended cycle takes no message, and `onEnd` was called inside."""
    before, now = edge(2, 2, in_cycle=True), edge(2, 3, in_cycle=True)
    statuses = ended(*(Subtask(name, i) for name in names for i in range(2)))
    text = _refused(before, now, {}, statuses)
    assert f"edge A->B: {names[0]}[0] has ended, and with it the cycle of the edge. Submit it with" in text
    plan_of(before, now).check(has_divided_state=False)


# ---------------------------------------------------------------- the certificate of rerouting


def _problems(partitioning: Partitioning, now: Topology, counts: list[ReroutedCount]) -> list[str]:
    flights = {(0, 0): Flight(0, [("a",)] * 2, has_end=True), (0, 1): Flight(3, [("b",)] * 2, has_end=True)}
    before = edge(1, 2, partitioning)
    return rerouting_problems(now, snapshot_of(before, flights, ended(Subtask(A, 0))), counts)


def test_rerouting_is_proved_by_counting() -> None:
    """Each message once over all readers; a lost, a doubled and an unread message are named with their channel."""
    one, other = channel(0, 0), channel(0, 1)
    now = edge(1, 3, Partitioning.HASH)
    sound = [ReroutedCount(one, k, 2, 1, taken) for k, taken in ((0, 2), (1, 0))]
    sound += [ReroutedCount(other, k, 2, 1, taken) for k, taken in ((1, 1), (2, 1))]
    assert _problems(Partitioning.HASH, now, sound) == []
    lost = [*sound[:3], replace(sound[3], taken=0)]
    assert _problems(Partitioning.HASH, now, lost) == [
        "A[0]->B[1]: 2 messages were in flight, but 1 and 0 were restored"
    ]
    doubled = [*sound[:1], replace(sound[1], taken=1), *sound[2:]]
    assert _problems(Partitioning.HASH, now, doubled) == [
        "A[0]->B[0]: 2 messages were in flight, but 2 and 1 were restored"
    ]
    assert _problems(Partitioning.HASH, now, sound[:2]) == [
        "A[0]->B[1]: 2 messages were in flight, but 0 were read",
        "A[0]->B[1]: 2 messages were in flight, but 0 were restored",
    ]
    short = [replace(each, messages=1) if each.channel == other else each for each in sound]
    assert _problems(Partitioning.HASH, now, short) == ["A[0]->B[1]: 2 messages were in flight, but 1 were read"]


def test_copies_are_proved_one_by_one() -> None:
    """Each reader takes all, and one that takes none is named."""
    now = edge(1, 1, Partitioning.BROADCAST)
    sound = [ReroutedCount(channel(0, j), 0, 2, 1, 2) for j in range(2)]
    assert _problems(Partitioning.BROADCAST, now, sound) == []
    assert _problems(Partitioning.BROADCAST, now, [sound[0], replace(sound[1], taken=0)]) == [
        "A[0]->B[1]: 2 messages were in flight, but 0 were restored"
    ]


# ---------------------------------------------------------------- plan and messages together


@dataclass(frozen=True)
class World:
    """Two graphs, messages in flight in the first, and which senders have ended. Messages: (key, sender, number)."""

    before: Topology
    now: Topology
    flights: dict[tuple[int, int], Flight]
    statuses: dict[Subtask, SubtaskStatus]

    @property
    def partitioning(self) -> Partitioning:
        """Partitioning of the edge in the snapshot."""
        return self.before.edges[0].partitioning

    @property
    def has_new_key(self) -> bool:
        """Whether the edge is keyed only now."""
        return self.now.edges[0].partitioning is Partitioning.HASH is not self.partitioning

    def parallelisms(self, node: str) -> tuple[int, int]:
        """Before and now."""
        return self.before.node(node).parallelism, self.now.node(node).parallelism

    def places(self, i: int, j: int, key: int) -> list[int]:
        """The receivers of a message of the old channel (i, j), by PROTOCOL 6.8."""
        b, now_b = targets = self.parallelisms(B)
        match self.partitioning:
            case Partitioning.FORWARD | Partitioning.REBALANCE | Partitioning.DIRECTED if self.has_new_key:
                return [subtask_of_group(key_group(key), now_b)]
            case Partitioning.BROADCAST:
                return [k for k in range(now_b) if min(donors_of(k, *targets)) == j]
            case Partitioning.HASH if subtask_of_group(key_group(key), b) == j:
                return [subtask_of_group(key_group(key), now_b)]
            case Partitioning.HASH:
                return [j if now_b > 1 else 0]
            case Partitioning.DIRECTED:
                return [j]
            case Partitioning.FORWARD:
                return [heir_of(i, *self.parallelisms(A))]
            case Partitioning.REBALANCE:
                return [heir_of(j, *targets)]

    def due(self) -> dict[tuple[int, int], list[tuple[int, tuple[object, ...]]]]:
        """{new channel: (wave, message) pairs in their order}."""
        last = 1 + max((wave for each in self.flights.values() for _, wave in each.waves), default=0)
        found: dict[tuple[int, int], list[tuple[int, int, int, tuple[object, ...]]]] = {}
        for (i, j), flight in sorted(self.flights.items()):
            m = heir_of(i, *self.parallelisms(A))
            for number, message in enumerate(flight.messages, flight.processed + 1):
                wave = next((wave for through, wave in flight.waves if number <= through), last)
                for k in self.places(i, j, message[0]):  # type: ignore[arg-type]  # keys are ints
                    found.setdefault((m, k), []).append((wave, i, j, message))
        in_order = {at: sorted(each, key=lambda found: found[:3]) for at, each in found.items()}
        return {at: [(wave, message) for wave, _, _, message in each] for at, each in in_order.items()}


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Any partitioning, keyed now or as before, up to four subtasks at each end, keys that a receiver does not own."""
    partitioning = draw(st.sampled_from(list(Partitioning)))
    a, now_a, b, now_b = (draw(st.integers(1, 4)) for _ in range(4))
    if partitioning is Partitioning.FORWARD:
        b = a
    now_keyed = draw(st.booleans())
    if partitioning is Partitioning.FORWARD and not now_keyed:
        now_b = now_a
    before, now = edge(a, b, partitioning), edge(now_a, now_b, Partitioning.HASH if now_keyed else partitioning)
    over = [i for i in range(a) if draw(st.integers(0, 3)) == 0]
    copies = draw(st.integers(0, 3)) if partitioning is Partitioning.BROADCAST else None
    flights: dict[tuple[int, int], Flight] = {}
    for sent in (each for each in before.channels if each.source.node == A):
        i, j = sent.source.index, sent.target.index
        is_closed = i in over and copies is None and draw(st.booleans())
        count = 0 if is_closed else draw(st.integers(0, 4)) if copies is None else copies
        messages = [(draw(st.integers(0, 29)), i, 100 * j + number) for number in range(count)]
        if copies is not None:
            messages = [(0, i, number) for number in range(count)]
        through = draw(st.integers(0, count)) if copies is None else 0
        waves = ((3 + through, draw(st.integers(1, 4))),) if through else ()
        overtaken = draw(st.integers(0, count))
        flights[i, j] = Flight(3, messages, i in over and not is_closed, overtaken, waves)
    return World(before, now, flights, ended(*(Subtask(A, i) for i in over)))


@pytest.fixture(scope="module")
def seen() -> Iterator[Counter[str]]:
    """What the random worlds had."""
    found: Counter[str] = Counter()
    yield found
    if FACTOR >= 1:
        assert all(found[each.value] for each in Partitioning), found
        assert found["messages"] and found["ends"] and found["refused"] and found["waves"], found
        assert found["newly keyed"], found


@settings(max_examples=scaled(500), deadline=None)  # so many, because few worlds broadcast
@given(world=worlds())
def test_each_message_has_one_place_and_channels_are_in_a_legal_state(seen: Counter[str], world: World) -> None:
    """Random graphs and messages: numbers (B - R, B] without a gap, in order, with their waves, the end last."""
    manifest = snapshot_of(world.before, world.flights, world.statuses)
    try:
        plan = plan_restore(world.now, manifest, ("changedGraph",), {})
        parts = restored(plan, world.now, first)
    except RestoreRefused as refusal:
        if not re.search(r"edge A->B|A\[\d\]->B\[\d\]", str(refusal)):
            raise
        seen["refused"] += 1
        return
    assert not rerouting_problems(world.now, manifest, parts.rerouted)
    if not plan[0].fresh_outputs:
        return
    of, due = {each.subtask: each for each in plan}, world.due()
    seen[world.partitioning.value] += bool(due)
    seen["newly keyed"] += bool(due) and world.has_new_key
    for new in (each for each in world.now.channels if each.source.node == A):
        channels = parts.channels[new.target]
        frames = channels.frames[new]
        assert [frame.first for frame in frames] == [
            channels.processed[new] + 1 + sum(each.count for each in frames[:place]) for place in range(len(frames))
        ]
        last = frames[-1].last if frames else channels.processed[new]
        assert 0 <= channels.processed[new] <= last == dict(of[new.source].sent)[new]
        has_end = [frame.is_control for frame in frames]
        assert not any(has_end[:-1])
        messages = [message for frame in frames for message in messages_of(frame, CODEC)]
        pairs = due.get((new.source.index, new.target.index), [])
        assert messages == [message for _, message in pairs]
        numbers = range(channels.processed[new] + 1, last + 1 - any(has_end))
        waves = [next(wave for through, wave in channels.waves[new] if number <= through) for number in numbers]
        assert waves == [wave for wave, _ in pairs]
        seen.update({"messages": len(messages), "ends": sum(has_end), "waves": len(set(waves)) > 1})
