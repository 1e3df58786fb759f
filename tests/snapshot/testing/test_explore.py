"""Exhaustive exploration: small graphs in every order of steps, and the core without one rule, found each time.

The numbers of states are exact: one more or one less means that the core, or what is explored of it, behaves otherwise.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from snapshot import END, Context, Graph, GraphError, Node, Snapshot, Source
from snapshot.node import End
from snapshot.testing.exploration.search import TooManyStates
from snapshot.testing.explore import Exploration, explore
from tests.snapshot import mutants_of_cuts as cuts
from tests.snapshot import mutants_of_order as order
from tests.snapshot import mutants_of_restore as restore

#: What `a` has at first.
MONEY = 100

#: Larger configurations, of minutes and a few GB.
LONG = os.environ.get("CUTLINE_LONG") == "1"


class Purse(Node):
    """Begins walks of messages, and keeps one coin of each that passes."""

    def __init__(self, balance: int = 0, walks: int = 0, hops: int = 0) -> None:
        self.balance = balance
        self.walks = walks
        self.hops = hops
        self.handled = 0

    def onStart(self, context: Context) -> None:
        for _ in range(self.walks):
            self.pay(10, self.hops, context)

    def onMessage(self, message: Any, context: Context) -> None:
        amount, hops = message
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
    return held + sum(m[0] for c in snapshot.channels for m in snapshot.channel(*c).messages) == MONEY


def graph(edges: str, *, walks: int = 1, hops: int = 1, begins: str = "a", kind: type[Purse] = Purse) -> Graph:
    """Nodes a, b, c; those of `begins` begin the walks. ``edges`` as in "ab bc ca"."""
    made = Graph("purses").addInvariant("money", is_conserved)
    for name in "abc":
        made.add(name, kind(MONEY if name == "a" else 0, *((walks, hops) if name in begins else ())))
    for source, target in edges.split():
        made.connect(source, target)
    return made


RING = "ab bc ca"
CHORD = "ab bc ca ac"
LOOP = "ab bb bc"
JOIN = "ac bc"
LINE = "ab bc"

PARTS = {"receiver's part", "sender's part"}
CRASH = {"restart afresh", "restart from a snapshot", "crash during a snapshot"} | {
    "crash between the last part and the manifest"
}
RESTORE = CRASH | {"restore with channel state"}


def first_through(*channels: str) -> set[str]:
    return {f"first marker through {source}[0]->{target}[0]" for source, target in channels}


@dataclass(frozen=True)
class Case:
    """One configuration, what it has, and what must have occurred in it."""

    name: str
    edges: str
    states: int
    seen: set[str]
    walks: int = 1
    hops: int = 1
    begins: str = "a"
    options: dict[str, Any] = field(default_factory=dict)
    is_long: bool = False

    def explore(self) -> Exploration:
        made = graph(self.edges, walks=self.walks, hops=self.hops, begins=self.begins)
        return explore(made, **self.options)


RING_SEEN = PARTS | RESTORE | {"overlap", "snapshot before restored messages drained"}

CASES = (
    Case("ring: three messages, two snapshots, a crash", RING, 196_580, RING_SEEN, hops=3,
         options={"snapshots": [(), ()], "crashes": 1}),
    Case("ring: several initiators, two snapshots", RING, 165_151,
         PARTS | first_through("ab", "bc", "ca") | {"overlap", "several initiators of one snapshot"}, hops=2,
         options={"snapshots": [("a", "b"), ("c",)]}),
    Case("ring: two snapshots, one is given up", RING, 110_790, PARTS | {"snapshot given up", "late marker dropped"},
         options={"snapshots": [(), ()], "aborts": 1}),
    Case("ring with a chord: several initiators, a crash", CHORD, 14_196,
         PARTS | RESTORE | first_through("ab", "bc", "ca", "ac") | {"several initiators of one snapshot"}, hops=2,
         options={"snapshots": [("a", "b")], "crashes": 1}),
    Case("self-loop: a crash", LOOP, 17_706, PARTS | RESTORE, hops=3, options={"crashes": 1}),
    Case("join: a crash", JOIN, 76_478, PARTS | RESTORE | first_through("ac", "bc"), begins="ab",
         options={"crashes": 1}),
    Case("join, aligned: a crash", JOIN, 4_248, CRASH | {"channel held"} | first_through("ac", "bc"), begins="ab",
         options={"alignment": "aligned", "crashes": 1}),
    Case("join, aligned: two snapshots", JOIN, 19_494, {"channel held", "overlap"},
         options={"alignment": "aligned", "snapshots": [(), ()]}),
    Case("join, aligned for a time", JOIN, 107_074, PARTS | {"channel held", "alignment timed out"}, begins="ab",
         options={"alignment": 2.0}),
    Case("line, aligned for a time: a crash", LINE, 17_288, PARTS | RESTORE | {"alignment timed out"}, hops=2,
         options={"alignment": 2.0, "crashes": 1}),
    Case("line: two messages in a frame, a crash", LINE, 35_968, PARTS | RESTORE | {"cut inside a frame"}, walks=2,
         hops=2, options={"crashes": 1}),
    Case("ring: several initiators, two snapshots, a crash", RING, 486_796, RING_SEEN, hops=2,
         options={"snapshots": [("a", "b"), ("c",)], "crashes": 1}, is_long=True),
    Case("ring: three messages, several initiators, two snapshots, a crash", RING, 1_051_655, RING_SEEN, hops=3,
         options={"snapshots": [("a", "b"), ("c",)], "crashes": 1}, is_long=True),
    Case("ring: two snapshots, one is given up, a crash", RING, 321_431, RING_SEEN | {"late marker dropped"},
         options={"snapshots": [(), ()], "aborts": 1, "crashes": 1}, is_long=True),
    Case("line: two snapshots", LINE, 304_843, PARTS, hops=2, options={"snapshots": [(), ()]}, is_long=True),
    Case("join, aligned for a time: a crash", JOIN, 216_278, PARTS | RESTORE | {"alignment timed out"}, begins="ab",
         options={"alignment": 2.0, "crashes": 1}, is_long=True),
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(600 if LONG else 120)
@pytest.mark.parametrize("case", [case for case in CASES if LONG or not case.is_long], ids=lambda case: case.name)
def test_every_order_of_steps_is_right(case: Case) -> None:
    """All reachable states satisfy every checker, and what makes the configuration hard did occur."""
    found = case.explore()
    print(f"{case.name}: {found}")
    assert found.violation is None, str(found)
    assert case.seen - found.seen == set()
    assert found.states == case.states


class Ticking(Source):
    """Sends two messages when it is polled, then ends."""

    def __init__(self) -> None:
        self.sent = 0

    def poll(self, context: Context) -> float | End | None:
        if self.sent == 2:
            return END
        self.sent += 1
        context.send(self.sent)
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
        self.handled.append(message)
        if message == 1:
            context.requestSnapshot()
            context.registerTimer(5.0)

    def onTimer(self, at: float, context: Context) -> None:
        self.fired += 1

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return [self.handled, self.fired]

    def restoreState(self, state: Any) -> None:
        self.handled, self.fired = state


def test_polls_timers_ends_and_requests_are_explored_too() -> None:
    """A source that is polled, a node that asks for a snapshot itself and has a timer, a crash at any moment."""
    made = Graph("asking").add("source", Ticking()).add("node", Asking()).connect("source", "node")
    found = explore(made, snapshots=[], crashes=1)
    print(found)
    assert found.violation is None, str(found)
    assert found.seen >= RESTORE
    assert found.states == 0


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
    made = graph(LINE).addInvariant("c is poor", lambda snapshot: snapshot.node("c").state[0] == 0)
    made = graph("ab bc", hops=2).addInvariant("c is poor", lambda snapshot: snapshot.node("c").state[0] == 0)
    found = explore(made)
    assert found.violation is not None and "c is poor" in found.violation


@dataclass(frozen=True)
class Mutant:
    """A rule that is taken away, where, and what finds it after how many steps."""

    name: str
    apply: Callable[[pytest.MonkeyPatch], None]
    found_by: str
    steps: int
    edges: str = RING
    hops: int = 2
    begins: str = "a"
    options: dict[str, Any] = field(default_factory=dict)


TWO = {"snapshots": [(), ()]}
MUTANTS = (
    Mutant("1.2 records only what arrives after the cut", cuts.only_after_the_cut, "certificate", 0),
    Mutant("1.1 omits the sender's part", cuts.senders_part_omitted, "certificate", 0),
    Mutant("1.4 never closes a recording", cuts.closing_skipped, "liveness", 0),
    Mutant("1.5 lets a later marker pass an earlier one", cuts.later_marker_first, "order", 0, options=TWO),
    Mutant("1.6 shares recorded messages with handlers", cuts.recorded_message_aliased, "exact cut", 0),
    Mutant("3.3 cuts in any order", order.order_rule_removed, "order", 0, options={"snapshots": [("a",), ("b",)]}),
    Mutant("3.4 obeys a late marker", order.late_marker_obeyed, "completeness", 0, options={**TWO, "aborts": 1}),
    Mutant("4.1 does not hold an aligned channel", order.aligned_channel_not_held, "certificate", 0, edges=JOIN,
           begins="ab", options={"alignment": "aligned"}),
    Mutant("4.1 holds on after an abort", order.held_channel_not_released_by_an_abort, "liveness", 0, edges=JOIN,
           begins="ab", options={"alignment": "aligned", "aborts": 1}),
    Mutant("6.2 does not record restored messages", restore.restored_messages_not_recorded, "certificate", 0,
           options={**TWO, "crashes": 1}),
)  # fmt: skip


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_rule_has_teeth(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    """The core without the rule is found, by the checker that is meant to find it, with the shortest way there."""
    with monkeypatch.context() as patch:
        mutant.apply(patch)
        found = explore(graph(mutant.edges, hops=mutant.hops, begins=mutant.begins), **mutant.options)
    print(f"PROTOCOL {mutant.name}: {found}")
    assert found.violation is not None and mutant.found_by in found.violation, str(found)
    assert len(found.trace) == mutant.steps


def test_the_truth_does_not_need_the_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cut that is not exact is found by what nodes sent and handled, when the certificate is asleep."""
    with monkeypatch.context() as patch:
        patch.setattr("snapshot.coordinator.snapshot_desk.problems", lambda *_: [])
        cuts.last_message_dropped(patch)
        found = explore(graph(RING, hops=2))
    print(found)
    assert found.violation is not None and "exact cut" in found.violation
    assert len(found.trace) == 0
