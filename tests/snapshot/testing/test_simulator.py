"""The simulator: schedules by hand, choosers, virtual time, and what is said of steps that cannot be taken."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from cutline import Context, Graph, Node
from cutline.snapshot.coordinator.run_state import Outcome
from cutline.snapshot.testing.checkers import CheckFailed, judge
from cutline.snapshot.testing.choosers import Delays
from cutline.snapshot.testing.history import History
from cutline.snapshot.testing.lists import ListSink, ListSource, Pause
from cutline.snapshot.testing.simulation.faults import hooks_of
from cutline.snapshot.testing.simulation.stepping import go_on
from cutline.snapshot.testing.simulator import Impossible, Simulator
from cutline.snapshot.testing.steps import (
    Arrive,
    Crash,
    Deliver,
    Doubt,
    Fail,
    FailHook,
    FailStage,
    FailStore,
    Freeze,
    HangStore,
    Initiate,
    Inject,
    InProcess,
    NoticeExit,
    Poll,
    Quiesce,
    RequestSnapshot,
    Step,
    TearStore,
    Tick,
    Transmit,
)
from cutline.snapshot.trace_events import Event, Kind, counts_of
from cutline.snapshot.worker.machine import WorkerMachine


class Balls(Node):
    """Holds balls. Told from outside to throw one, it sends it to the other node."""

    def __init__(self, *held: str) -> None:
        self.held = list(held)

    def onMessage(self, message: Any, context: Context) -> None:
        if context.sender is None:
            self.held.remove(message)
            context.send(message)
        else:
            self.held.append(message)

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return self.held

    def restoreState(self, state: Any) -> None:
        self.held = list(state)


class Doubler(Node):
    """Passes on everything, and remembers much: its state is stored as a part of its own."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.ballast = "x" * 400

    def onMessage(self, message: Any, context: Context) -> None:
        self.seen.append(message)
        context.send(message)

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return [self.seen, self.ballast]

    def restoreState(self, state: Any) -> None:
        self.seen, self.ballast = state


class Ticker(Node):
    """Never ends."""

    def onStart(self, context: Context) -> None:
        context.registerTimer(context.now + 1.0)

    def onTimer(self, at: float, context: Context) -> None:
        context.registerTimer(at + 1.0)


def balls() -> Graph:
    """The textbook's two nodes."""
    graph = Graph("balls").add("P", Balls("red", "green", "blue")).add("Q", Balls("brown", "orange", "pink"))
    return graph.connect("P", "Q").connect("Q", "P")


def line(*items: Any) -> Graph:
    """A source, a node with a large state, a sink."""
    graph = Graph("line").add("numbers", ListSource(*(items or range(6)))).add("double", Doubler())
    return graph.add("out", ListSink()).connect("numbers", "double").connect("double", "out")


def of_kind(history: History, *kinds: Kind) -> list[Event]:
    """The events of some kinds, in order."""
    return [event for event in history.events if event.kind in kinds]


def demand(history: History, outcome: Outcome = Outcome.FINISHED) -> History:
    """All checkers hold."""
    for verdict in judge(history):
        verdict.demand()
    assert history.outcome is outcome
    return history


# ---------------------------------------------------------------- scripts


@pytest.mark.parametrize(
    "orange",
    [(), (Transmit("Q", "P"),), (Transmit("Q", "P"), Arrive("Q", "P"))],
    ids=["with its sender", "on the wire", "in the queue"],
)
def test_the_textbook_case(orange: tuple[Step, ...]) -> None:
    """P(red, green, blue), channel PQ empty, Q(brown, pink), channel QP = [orange], wherever orange waits."""
    script = [
        Initiate(1, "P"),
        Inject("P", "green"),  # behind P's cut, so it belongs to neither
        Inject("Q", "orange"),
        *orange,
        Deliver("P", "Q", marker=True),
        Deliver("P", "Q"),
        Deliver("Q", "P", marker=True),
    ]
    history = demand(Simulator(balls(), script).run())
    snapshot = history.snapshot(1)
    assert snapshot.node("P").state == ["red", "green", "blue"]
    assert snapshot.channel("P", "Q").messages == []
    assert snapshot.node("Q").state == ["brown", "pink"]
    assert snapshot.channel("Q", "P").messages == ["orange"]
    assert history.output("P") == ["orange"]  # what it has handled
    assert [event.subtask.node for event in of_kind(history, Kind.INJECT) if event.subtask] == ["P", "Q"]


def test_concurrent_initiators_of_one_id() -> None:
    """Both start the same snapshot, each for itself, with messages under way both ways: one snapshot, exact."""
    script = [
        *(Inject("P", "green"), Inject("Q", "orange"), Initiate(1, "P"), Initiate(1, "Q")),
        *(Deliver("Q", "P", marker=True), Deliver("P", "Q", marker=True), Quiesce()),
    ]
    simulator = Simulator(balls(), script)
    snapshot = demand(simulator.run()).snapshot(1)
    assert snapshot.channel("P", "Q").messages == ["green"]
    assert snapshot.channel("Q", "P").messages == ["orange"]
    markers = [event for event in of_kind(simulator.history, Kind.MARKER) if event.snapshot_id == snapshot.id]
    assert len(markers) == 2


def test_two_snapshots_overlap() -> None:
    """While 1 still records, 2 starts elsewhere; both are published, and everybody cuts for 1 first (PROTOCOL 3.3)."""
    script = [
        *(Inject("Q", "orange"), Initiate(1, "P"), Inject("P", "green"), Initiate(2, "Q")),
        *(Deliver("P", "Q", marker=True), Deliver("Q", "P", marker=True), Deliver("Q", "P", marker=True)),
    ]
    history = demand(Simulator(balls(), script).run())
    assert history.seen["two snapshots at a time"]
    assert history.snapshot(1).node("P").state == ["red", "green", "blue"]
    assert history.snapshot(2).node("P").state == ["red", "blue"]
    cuts = [(str(event.subtask), event.snapshot_id % 10) for event in of_kind(history, Kind.CUT)][:4]
    assert cuts == [("P[0]", 1), ("Q[0]", 1), ("Q[0]", 2), ("P[0]", 2)]
    counts = [counts_of(event, history.topology) for event in of_kind(history, Kind.CUT)[:4]]
    assert [tuple(sum(each.values()) for each in count) for count in counts] == [(0, 0), (1, 0), (1, 0), (1, 0)]


def test_a_crash_is_recovered_from() -> None:
    """The worker of a subtask dies with a message in its queue; the run goes on from the snapshot before."""
    script = [Poll("numbers"), Deliver("numbers", "double"), Initiate(1, "numbers")]
    script += [Deliver("numbers", "double", marker=True), Deliver("double", "out", marker=True), Quiesce()]
    script += [Poll("numbers"), Transmit("numbers", "double"), Arrive("numbers", "double"), Crash("double")]
    history = demand(Simulator(line(), script).run())
    assert sorted(history.output("out")) == list(range(6))
    first, second = of_kind(history, Kind.DEPLOYED)
    assert (first.snapshot_id, second.snapshot_id) == (0, history.snapshot(1).id)
    assert {event.snapshot_id for event in of_kind(history, Kind.SEND, Kind.END_SENT)} == {0}
    assert all(event.payload for event in of_kind(history, Kind.RESTORED))
    assert history.seen["a worker crashed"] == 1 and "two snapshots at a time" not in history.seen


def test_a_node_that_fails_keeps_its_process() -> None:
    """`Fail` rolls back in place: no worker is forked again."""
    simulator = Simulator(line(), [Poll("numbers"), Deliver("numbers", "double"), Fail("double")])
    history = demand(simulator.run())
    assert sorted(history.output("out")) == list(range(6))
    assert len(simulator._cluster.processes) == 2
    assert [event.text for event in of_kind(history, Kind.FAULT)] == ["Fail('double')"]


def test_a_failing_hook_is_named() -> None:
    """The node's failure says which hook was made to raise, and the run goes on."""
    script = [Quiesce(), FailHook("double", "onMessage"), Poll("numbers")]
    history = demand(Simulator(line(), script).run())
    assert any("a simulated failure of onMessage" in event.text for event in of_kind(history, Kind.FAILED))
    assert history.output("out") == list(range(6))


def test_every_hook_of_a_node_may_fail() -> None:
    """Those that the class of the node defines, timers included, and no others."""
    graph = Graph("ticking").add("ticker", Ticker())
    simulator = Simulator(graph, [])
    simulator.take(Quiesce())
    [worker] = simulator._cluster.workers
    hooks = {fault.hook for fault in hooks_of(simulator._cluster, worker)}
    assert hooks == {name for name in vars(Ticker) if name.startswith("on")}


def test_a_broken_invariant_is_named_with_its_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """An assertion of Cutline's own code is no failure of a node, and ends the simulation."""

    def broken(machine: WorkerMachine) -> None:
        raise AssertionError("two of one id")

    monkeypatch.setattr(WorkerMachine, "validate", broken)
    with pytest.raises(CheckFailed, match=r"invariant: worker \d: AssertionError\('two of one id'\)"):
        Simulator(line(), 1).run()


def test_an_exit_after_the_end_of_its_stage_is_not_noticed() -> None:
    """A stage that has failed has no barrier task any more that could notice."""
    simulator = Simulator(line(), [])
    for step in (Quiesce(), FailStage()):
        simulator.take(step)
    assert NoticeExit(0) not in simulator.possible()
    demand(simulator.finish())


def test_a_request_is_answered_once() -> None:
    """A second answer changes nothing, and one that is not open is no request to stop."""
    simulator = Simulator(line(), [])
    for step in (Quiesce(), Poll("numbers"), RequestSnapshot(), Quiesce()):
        simulator.take(step)
    driver = simulator._cluster.driver
    assert driver.simulated is not None
    driver.answered(driver.simulated, 1, 1_000_001)
    assert not driver.requests.is_stopping
    demand(simulator.finish())


def test_a_run_that_is_over_takes_no_step() -> None:
    """Whoever goes on until the end sees that it is reached."""
    simulator = Simulator(line(), [])
    demand(simulator.finish())
    assert simulator.isOver
    assert not go_on(simulator._cluster)


def test_frames_are_spilled_in_a_cycle() -> None:
    """Messages larger than the memory of a channel go to a file, because a full cycle must not wait for itself."""
    large = [letter * 200_000 for letter in "xyz"]
    graph = Graph("balls").add("P", Balls(*large)).add("Q", Balls()).connect("P", "Q").connect("Q", "P")
    history = demand(Simulator(graph, [Inject("P", each) for each in large]).run())
    assert history.seen["a frame was spilled"]


def test_time_is_virtual() -> None:
    """A pause of an hour takes no time; `Tick` passes as much as it says."""
    simulator = Simulator(line(1, Pause(3600.0), 2))
    simulator.take(Poll("numbers"))
    simulator.take(Poll("numbers"))
    before = simulator.now
    with pytest.raises(Impossible, match=r"Poll\('numbers'\) is not possible now"):
        simulator.take(Poll("numbers"))
    simulator.take(Tick(3599.0))
    assert simulator.now == before + 3599.0
    simulator.take(Tick(1.0))
    simulator.take(Poll("numbers"))
    history = demand(simulator.finish())
    assert history.output("out") == [1, 2]
    assert simulator.isOver
    assert history.now >= 3600.0


def test_a_run_can_be_stopped_with_a_snapshot() -> None:
    """The driver's order to stop ends the run after a snapshot, before its sources have."""
    history = demand(Simulator(line(), [Poll("numbers"), RequestSnapshot(stop=True)]).run(), Outcome.STOPPED)
    assert len(history.snapshots) == 1


def test_a_graph_that_never_ends_is_cut_off() -> None:
    """The history says so, and has no outcome."""
    graph = Graph("endless").add("ticker", Ticker())
    history = Simulator(graph, maxSteps=500).run()
    assert history.outcome is None
    assert history.reason.startswith("cut off after 500 steps: driver A: running")


def test_without_a_choice_the_seed_is_zero() -> None:
    """A simulator that is told nothing repeats the history of seed 0, and no other."""
    unchosen, zero, one = (Simulator(line(), *choose).run().events for choose in ((), (0,), (1,)))
    assert unchosen == zero != one


def test_steps_print_as_they_are_written() -> None:
    """A schedule that is printed pastes into a test, so nothing that its author must say is left out."""
    steps = [
        *(Poll("numbers"), Deliver("P", "Q[1]", marker=True), Tick(), Tick(0.5), InProcess(0, Poll("numbers"))),
        *(RequestSnapshot(), RequestSnapshot(stop=True), RequestSnapshot(pinned=True)),
    ]
    assert repr(steps) == (
        "[Poll('numbers'), Deliver('P', 'Q[1]', marker=True), Tick(), Tick(seconds=0.5), "
        "InProcess(0, Poll('numbers')), "
        "RequestSnapshot(), RequestSnapshot(stop=True), RequestSnapshot(pinned=True)]"
    )


# ---------------------------------------------------------------- what cannot be


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ([Deliver("P", "Q")], "nothing is on its way, or the subtask is held"),
        ([Deliver("P", "Q", marker=True)], r"no marker comes through on P\[0\]->Q\[0\] now"),
        ([Inject("P", "green"), Initiate(1, "P"), Deliver("P", "Q")], "a marker has overtaken it, deliver that first"),
        ([Inject("P", "green"), Deliver("P", "Q", end=True)], r"Deliver\('P', 'Q'\) is next"),
        ([Deliver("P", "P")], r"there is no channel P\[0\]->P\[0\]"),
        ([Poll("P")], r"Poll\('P'\) is not possible now"),
        ([Inject("R", "green")], r"there is no R\[0\]; there are P\[0\], Q\[0\]"),
        (
            [
                Initiate(2, "P"),
                Deliver("P", "Q", marker=True),
                Deliver("Q", "P", marker=True),
                Quiesce(),
                Initiate(1, "P"),
            ],
            "snapshot 1 is over, or a later one is: an id is used once",
        ),
        ([Crash(7)], "there is no process 7 yet; there are "),
        ([Quiesce(), Crash(0), Crash(0)], "process 0 has ended"),
        ([Quiesce(), InProcess(0, Deliver("P", "Q"))], "is not possible now in process 0"),
        ([Doubt("perhaps")], "a write is 'done', 'late' or 'never'"),
        ([Fail("P")], r"no worker runs P\[0\] now"),
        ([FailHook("P", "onMessage")], r"P\[0\] does not run now"),
        ([Quiesce(), FailHook("P", "onTimer")], r"P\[0\] has no onTimer"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_what_is_impossible_says_why(script: list[Step], why: str) -> None:
    """A script stops at the step that cannot be taken; the text says what would have to be otherwise."""
    with pytest.raises(Impossible, match=why):
        Simulator(balls(), script).run()


def test_what_is_impossible_can_be_skipped() -> None:
    """Then the schedule says what was done."""
    script: list[Step] = [Deliver("P", "Q"), Inject("P", "green"), Poll("Q"), Deliver("P", "Q")]
    history = demand(Simulator(balls(), script, skipsImpossible=True).run())
    assert history.schedule == [Inject("P", "green"), Deliver("P", "Q")]


# ---------------------------------------------------------------- functions that choose


def merge() -> Graph:
    """Two sources into one sink."""
    graph = Graph("merge").add("a", ListSource("a1", "a2", "a3")).add("b", ListSource("b1", "b2", "b3"))
    return graph.add("m", Balls()).connect("a", "m").connect("b", "m")


@pytest.mark.parametrize("first", ["a", "b"])
def test_a_function_decides_every_delivery(first: str) -> None:
    """It is asked each time, told messages from ends and markers, and what it says happens."""
    asked: list[Deliver] = []

    def choose(possible: Sequence[Step]) -> Step:
        deliveries = [step for step in possible if isinstance(step, Deliver)]
        others = [step for step in possible if not isinstance(step, Deliver)]
        if others and not isinstance(others[0], Tick):
            return others[0]
        asked.extend(deliveries)
        mine = [step for step in deliveries if step.source.node == first]
        return [*mine, *deliveries, *others][0]

    history = demand(Simulator(merge(), choose).run())
    other = "b" if first == "a" else "a"
    assert history.output("m") == [f"{node}{number}" for node in (first, other) for number in (1, 2, 3)]
    assert [step.end for step in asked if step.source.node == first] == [False, False, False, True]


def test_a_function_may_leave_the_rest_to_the_run() -> None:
    """None: it has nothing more to say."""
    history = Simulator(merge(), lambda possible: None).run()
    assert sorted(demand(history).output("m")) == ["a1", "a2", "a3", "b1", "b2", "b3"]


def test_a_single_message_is_delayed() -> None:
    """One message is long on the wire: what is behind it on its channel waits, other channels do not."""

    def delay(arrival: Arrive, number: int) -> float:
        return 5.0 if arrival.source.node == "a" and number == 2 else 0.0

    history = demand(Simulator(merge(), Delays(delay)).run())
    assert history.output("m")[-2:] == ["a2", "a3"]
    times = {event.number: event.at for event in history.handled("m") if event.channel and event.channel[0].node == "a"}
    assert times[2] >= times[1] + 5.0


def test_delays_do_not_add_up_and_time_is_not_skipped() -> None:
    """What is sent at one time arrives at one time; a pause is over when it is over, whatever is on its way."""
    history = demand(Simulator(line(1, 2, Pause(0.25), 3), Delays(lambda arrival, number: 1.0)).run())
    assert [event.at for event in history.handled("double")] == [1.0, 1.0, 1.25]


def test_a_single_marker_is_delayed() -> None:
    """A marker is told from a message; what comes before it belongs to the channel's state."""
    markers: list[Arrive] = []

    def delay(arrival: Arrive, number: int) -> float:
        if arrival.marker:
            markers.append(arrival)
        return 3.0 if arrival.marker and arrival.source.node == "Q" else 0.0

    history = Simulator(balls(), Delays(delay, [Initiate(1, "P"), Quiesce(), Inject("Q", "orange")])).run()
    demand(history)
    assert len(markers) >= 2
    at = {event.channel: event.at for event in of_kind(history, Kind.MARKER) if event.snapshot_id % 10 == 1}
    assert max(at.values()) >= min(at.values()) + 3.0


# ---------------------------------------------------------------- zombies, and faults of the store


def test_a_zombie_goes_on_after_its_replacement() -> None:
    """A frozen worker wakes when another process runs its subtasks: it has steps of its own, is refused, and ends."""
    simulator = Simulator(line(1, 2, Pause(100.0), 3), [])
    for step in (Poll("numbers"), Deliver("numbers", "double"), Freeze(0, 30.0), Crash(1)):
        simulator.take(step)
    while simulator.now < 30.0:
        simulator.take(Quiesce())
        simulator.take(Tick())
    for zombies in (InProcess(0, Poll("numbers")), InProcess(0, Transmit("numbers", "double"))):
        assert zombies in simulator.possible()
        simulator.take(zombies)
    history = demand(simulator.finish())
    assert [event.text for event in of_kind(history, Kind.REFUSED)] == ["numbers[0]->double[0]: the receiver is gone"]
    assert history.output("out") == [1, 2, 3]


@pytest.mark.parametrize("fault", [FailStore, TearStore])
def test_a_part_that_cannot_be_stored_aborts_its_snapshot(fault: type[FailStore] | type[TearStore]) -> None:
    """That snapshot is given up, by name; the next one is published, and the run is not rolled back."""
    script: list[Step] = [Quiesce(), Poll("numbers"), fault(0), Initiate(1, "numbers"), Quiesce()]
    history = demand(Simulator(line(), script).run())
    (aborted,) = of_kind(history, Kind.ABORTED)
    assert "numbers[0] could not be stored" in aborted.text
    assert history.snapshots
    assert len(of_kind(history, Kind.DEPLOYED)) == 1
    assert not history.seen["a snapshot was aborted by its deadline"]


def test_a_store_that_hangs_costs_one_snapshot() -> None:
    """The deadline aborts it; data goes on meanwhile."""
    script = [Quiesce(), Poll("numbers"), HangStore(0, 60.0), HangStore(1, 60.0), Initiate(1, "numbers"), Quiesce()]
    history = demand(Simulator(line(1, Pause(100.0), 2), script).run())
    assert "not whole after" in of_kind(history, Kind.ABORTED)[0].text
    assert history.seen["a snapshot was aborted by its deadline"] == len(of_kind(history, Kind.ABORTED))
    assert history.output("out") == [1, 2]


@pytest.mark.parametrize("what", ["done", "late", "never"])
def test_a_manifest_whose_answer_is_lost_is_decided(what: str) -> None:
    """Written or not, nobody was told: reading it back decides, and the result is the same (PROTOCOL 7.6)."""
    script = [Quiesce(), Poll("numbers"), Doubt(what), Initiate(1, "numbers")]
    history = demand(Simulator(line(), script).run())
    assert history.seen["a manifest was undecided"] == 1
    assert history.output("out") == list(range(6))
