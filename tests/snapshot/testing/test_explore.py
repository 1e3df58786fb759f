"""Exhaustive exploration: small graphs in every order of steps, and the core without one rule, found each time.

The numbers of states are exact: one more or one less means that the core, or what is explored of it, behaves otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from cutline import END, Context, Graph, GraphError, Node, Snapshot, Source
from cutline.snapshot.node import End
from cutline.snapshot.testing.exploration.search import TooManyStates
from cutline.snapshot.testing.explore import explore
from tests.run_size import FACTOR
from tests.snapshot.testing import mutants_of_cuts as cuts
from tests.snapshot.testing import mutants_of_order as order
from tests.snapshot.testing import mutants_of_restore as restore

#: What `a` has at first.
MONEY = 100

#: Larger configurations, of minutes and a few GB.
#: reachable states of the largest cases that are explored
STATES_MAX = 10_000_000 if FACTOR >= 10 else 200_000 if FACTOR >= 1 else 60_000


class Purse(Node):
    """Begins walks of messages, and keeps one coin of each that passes."""

    def __init__(self, balance: int = 0, walks: int = 0, hops: int = 0) -> None:
        self.balance = balance
        self.walks = walks
        self.hops = hops
        self.handled = 0

    def onStart(self, context: Context) -> None:
        for _ in range(self.walks if self.hops else 0):
            self.pay(10, self.hops, context)

    def onMessage(self, message: Any, context: Context) -> None:
        amount, hops = message
        message.clear()  # a handler may do what it likes with what it was given (PROTOCOL 1.6, encoded bytes)
        self.handled += 1
        self.balance += amount
        if hops:
            self.pay(amount - 1, hops, context)

    def pay(self, amount: int, hops: int, context: Context) -> None:
        self.balance -= amount
        context.send([amount, hops - 1], context.outputs[hops % len(context.outputs)])

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return [self.balance, self.handled]

    def restoreState(self, state: Any) -> None:
        self.balance, self.handled = state


class Forgetful(Purse):
    """Keeps a part of its state outside `snapshotState`."""

    def restoreState(self, state: Any) -> None:
        self.balance, _ = state


def is_conserved(snapshot: Snapshot) -> bool:
    """All money is somewhere."""
    held = sum(snapshot.node(name).state[0] for name in snapshot.nodes)
    moving = sum(message[0] for channel in snapshot.channels for message in snapshot.channel(*channel).messages)
    return bool(held + moving == MONEY)


def graph(edges: str, *, walks: int = 1, hops: int = 1, begins: str = "a", kind: type[Purse] = Purse) -> Graph:
    """Nodes a, b, c; those of `begins` begin the walks. ``edges`` as in "ab bc ca"."""
    made = Graph("purses").addInvariant("money", is_conserved)
    for name in "abc":
        made.add(name, kind(MONEY if name == "a" else 0, *((walks, hops) if name in begins else ())))
    for edge in edges.split():
        made.connect(edge[0], edge[1])
    return made


RING = "ab bc ca"
CHORD = "ab bc ca ac"
LOOP = "ab bb bc"
JOIN = "ac bc"
LINE = "ab bc"
DIAMOND = "ab ac bc"

PARTS = {"receiver's part", "sender's part"}
CRASH = {"restart afresh", "restart from a snapshot", "crash during a snapshot"} | {
    "crash between the last part and the manifest"
}
RESTORE = CRASH | {"restore with channel state"}


class Ticking(Source):
    """Sends messages when it is polled, then ends."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.sent = 0

    def poll(self, context: Context) -> float | End | None:
        if self.sent == self.count:
            return END
        self.sent += 1
        context.send([self.sent, 0])
        return 1.0

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return self.sent

    def restoreState(self, state: Any) -> None:
        self.sent = state


class Asking(Node):
    """Asks for a snapshot at the first message, and does something later by a timer."""

    def __init__(self) -> None:
        self.handled: list[int] = []
        self.fired = 0

    def onMessage(self, message: Any, context: Context) -> None:
        self.handled.append(message[0])
        if message[0] == 1:
            context.requestSnapshot()
            context.registerTimer(5.0)

    def onTimer(self, at: float, context: Context) -> None:
        self.fired += 1

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return vars(self)

    def restoreState(self, state: Any) -> None:
        vars(self).update(state)


def asking() -> Graph:
    """A source that is polled, and a node that asks for a snapshot itself."""
    return Graph("asking").add("source", Ticking(2)).add("node", Asking()).connect("source", "node")


def sources() -> Graph:
    """Two sources that are polled, into one node."""
    made = Graph("sources").add("a", Ticking(1)).add("b", Ticking(1)).add("c", Purse())
    return made.connect("a", "c").connect("b", "c")


def first_through(*channels: str) -> set[str]:
    """A snapshot began at the channel's target by its marker; ``channels`` as "ab"."""
    return {f"first marker through {channel[0]}[0]->{channel[1]}[0]" for channel in channels}


@dataclass(frozen=True)
class Case:
    """One configuration, what it has, and what must have occurred in it."""

    name: str
    graph: Graph
    states: int
    seen: set[str]
    options: dict[str, Any]


AGAIN = RESTORE | {"overlap", "snapshot before restored messages drained"}
SEVERAL = "several initiators of one snapshot"
TWO: dict[str, Any] = {"snapshots": [(), ()]}
TWO_FROM_ANYWHERE: dict[str, Any] = {"snapshots": [("a", "b"), ("c",)]}
CRASHING: dict[str, Any] = {"crashes": 1}
ALIGNED: dict[str, Any] = {"alignment": "aligned"}
FOR_A_TIME: dict[str, Any] = {"alignment": 2.0}

CASES = (
    Case("ring: three messages, two snapshots, a crash", graph(RING, hops=3), 196_580, PARTS | AGAIN, TWO | CRASHING),
    Case("ring: several initiators, two snapshots", graph(RING, hops=2), 165_151,
         PARTS | first_through("ab", "bc", "ca") | {"overlap", SEVERAL}, TWO_FROM_ANYWHERE),
    Case("ring: two snapshots, one is given up", graph(RING), 110_790,
         PARTS | {"snapshot given up", "late marker dropped"}, TWO | {"aborts": 1}),
    Case("ring with a chord: several initiators, a crash", graph(CHORD, hops=2), 14_196,
         PARTS | RESTORE | first_through("ab", "bc", "ca", "ac") | {SEVERAL}, {"snapshots": [("a", "b")]} | CRASHING),
    Case("self-loop: a crash", graph(LOOP, hops=3), 17_706, PARTS | RESTORE, CRASHING),
    Case("join: a crash", graph(JOIN, begins="ab"), 76_478, PARTS | RESTORE | first_through("ac", "bc"), CRASHING),
    Case("join, aligned: a crash", sources(), 81_769, CRASH | {"channel held"}, ALIGNED | CRASHING),
    Case("join, aligned for a time", graph(JOIN), 41_304, PARTS | {"channel held", "alignment timed out"}, FOR_A_TIME),
    Case("diamond, aligned: two snapshots", graph(DIAMOND, hops=2), 82_427, {"channel held", "overlap"}, ALIGNED | TWO),
    Case("line, aligned for a time: a crash", graph(LINE, hops=2), 17_288, PARTS | RESTORE | {"alignment timed out"},
         FOR_A_TIME | CRASHING),
    Case("line: two messages in a frame, a crash", graph(LINE, walks=2, hops=2), 35_968,
         PARTS | RESTORE | {"cut inside a frame"}, CRASHING),
    Case("polls, timers, ends and a node's own request: a crash", asking(), 9_001, RESTORE,
         {"snapshots": []} | CRASHING),
    Case("ring: several initiators, two snapshots, a crash", graph(RING, hops=2), 486_796, PARTS | AGAIN | {SEVERAL},
         TWO_FROM_ANYWHERE | CRASHING),
    Case("ring: three messages, several initiators, two snapshots, a crash", graph(RING, hops=3), 1_051_655,
         PARTS | AGAIN | {SEVERAL}, TWO_FROM_ANYWHERE | CRASHING),
    Case("ring: two snapshots, one is given up, a crash", graph(RING), 321_431,
         PARTS | AGAIN | {"late marker dropped"}, TWO | CRASHING | {"aborts": 1}),
    Case("line: two snapshots", graph(LINE, hops=2), 304_843, PARTS, TWO),
    Case("join, aligned for a time: a crash", graph(JOIN, begins="ab"), 216_278,
         PARTS | RESTORE | {"alignment timed out"}, FOR_A_TIME | CRASHING),
    Case("diamond, aligned: two snapshots, a crash", graph(DIAMOND, hops=2), 245_649,
         CRASH | {"channel held", "overlap"}, ALIGNED | TWO | CRASHING),
    Case("diamond, aligned: two snapshots, one is given up", graph(DIAMOND, hops=2), 1_154_072,
         {"channel held", "overlap", "snapshot given up"}, ALIGNED | TWO | {"aborts": 1}),
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(600 if FACTOR >= 10 else 120)
@pytest.mark.parametrize("case", [case for case in CASES if case.states <= STATES_MAX], ids=lambda case: case.name)
def test_every_order_of_steps_is_right(case: Case) -> None:
    """All reachable states satisfy every checker, and what makes the configuration hard did occur."""
    found = explore(case.graph, **case.options)
    print(f"{case.name}: {found}")
    assert found.violation is None, str(found)
    assert case.seen - found.seen == set()
    assert found.states == case.states


def test_the_same_is_explored_again() -> None:
    """Two explorations of one graph visit as many states, take as many steps and see the same."""
    made = graph(CHORD, hops=2)
    assert explore(made, crashes=1) == explore(made, crashes=1)


def test_bounds_and_mistakes_have_names() -> None:
    """A graph that is too large and an initiator that does not exist are refused, never cut short in silence."""
    with pytest.raises(TooManyStates, match="more than 1,000"):
        explore(graph(RING, hops=3), statesMax=1_000)
    with pytest.raises(GraphError, match="'d'"):
        explore(graph(RING), snapshots=[("d",)])


# ---- teeth: what is wrong with a node, and the core with one rule taken away


def test_a_node_that_forgets_is_found() -> None:
    """State kept outside `snapshotState` is noticed where a run with a crash comes to rest, with the way there."""
    found = explore(graph(LINE, hops=2, kind=Forgetful), crashes=1)
    print(found)
    assert found.violation is not None and found.violation.startswith("equivalence")
    assert "all workers are lost" in found.trace


def test_an_invariant_that_does_not_hold_is_found() -> None:
    """The graph's own invariants judge every snapshot that is whole."""
    made = graph(LINE, hops=2).addInvariant("poor", lambda snapshot: snapshot.node("c").state[0] == 0)
    found = explore(made)
    assert found.violation is not None and "poor" in found.violation


@dataclass(frozen=True)
class Mutant:
    """A rule that is taken away, where, and what finds it after how many steps."""

    name: str
    apply: Callable[[pytest.MonkeyPatch], None]
    graph: Graph
    options: dict[str, Any]
    found_by: str
    steps: int


MUTANTS = (
    Mutant("1.1 omits the sender's part", cuts.senders_part_omitted, graph(RING, hops=2), {}, "certificate", 14),
    Mutant("1.2 records only what arrives after the cut", cuts.only_after_the_cut, graph(RING, hops=2), {},
           "certificate", 16),
    Mutant("1.4 never closes a recording", cuts.closing_skipped, graph(RING, hops=2), {}, "liveness", 20),
    Mutant("1.5 lets a later marker pass an earlier one", cuts.later_marker_first, graph(RING, hops=0), TWO,
           "order", 25),
    Mutant("1.6 shares recorded messages with handlers", cuts.recorded_message_aliased, graph(RING, hops=2), {},
           "exact cut", 16),
    Mutant("3.3 cuts in any order", order.order_rule_removed, graph(RING, hops=0), {"snapshots": [("a",), ("b",)]},
           "order", 25),
    Mutant("3.4 obeys a late marker", order.late_marker_obeyed, graph(RING), TWO | {"aborts": 1}, "second marker", 15),
    Mutant("4.1 does not hold an aligned channel", order.aligned_channel_not_held, sources(), ALIGNED,
           "certificate", 19),
    Mutant("4.1 holds on after an abort", order.held_channel_not_released_by_an_abort, graph(DIAMOND, hops=2),
           ALIGNED | {"aborts": 1}, "liveness", 28),
    Mutant("6.2 does not record restored messages", restore.restored_messages_not_recorded, graph(RING),
           TWO | CRASHING, "certificate", 30),
)  # fmt: skip


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_rule_has_teeth(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    """The core without the rule is found, by the checker that is meant to find it, with the shortest way there."""
    with monkeypatch.context() as patch:
        mutant.apply(patch)
        found = explore(mutant.graph, **mutant.options)
    print(f"PROTOCOL {mutant.name}: {found}")
    assert found.violation is not None and mutant.found_by in found.violation, str(found)
    assert len(found.trace) == mutant.steps


def test_the_truth_does_not_need_the_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cut that is not exact is found by what nodes sent and handled, when the certificate is asleep."""
    with monkeypatch.context() as patch:
        patch.setattr("cutline.snapshot.coordinator.snapshot_tracker.problems", lambda *_, **__: [])
        cuts.last_message_dropped(patch)
        found = explore(graph(RING, hops=2))
    print(found)
    assert found.violation is not None and "exact cut" in found.violation
    assert len(found.trace) == 16
