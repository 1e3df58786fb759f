"""Simulated runs that repeat steps, in modes inputLogging and deltas: a replay makes the same history again.

Each node sends a chain of links, which depends on all that it has read: messages in their order, their division into
lists and batches, timers, the time, chance, states that expire. What was committed before a failure and what comes
behind it are one chain only if the replay was exact.
"""

from __future__ import annotations

import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from cutline import Context, Deltas, Graph, InputLogging, KeyedAggregate, Node, Subtask
from cutline.snapshot.coordinator.restart_policy import RestartPolicy
from cutline.snapshot.coordinator.run_state import Outcome
from cutline.snapshot.modes.steps.determinants import Cut, Took
from cutline.snapshot.plan.modes import Mode, ModeWish
from cutline.snapshot.testing.checkers import judge
from cutline.snapshot.testing.history import History
from cutline.snapshot.testing.payload import unpack
from cutline.snapshot.testing.steps import Crash, RequestSnapshot, Tick
from cutline.snapshot.trace_events import Kind
from cutline.testing import ListSink, Odds, Simulator
from tests.run_size import FACTOR, scaled
from tests.snapshot.testing.replayed import (
    SCHEMA,
    Batches,
    Divided,
    Each,
    Keyed,
    Lists,
    Slices,
    chain_problems,
    chained,
    steps_of,
    word_of,
)

OUT = Subtask("out")
SIZES = {"a": 24, "b": 18, "c": 14}

#: Faults at any time of a run, because a fault before the first snapshot leads to no replay.
LATE_FAULTS = Odds(fault=400, worst=400)
HASHED = InputLogging(hashes="states")
#: {kind: node, whether it takes batches, mode}
KINDS: dict[str, tuple[type[Node], bool, Mode]] = {
    "each": (Each, False, InputLogging()),
    "lists": (Lists, False, InputLogging()),
    "batches": (Batches, True, InputLogging()),
    "keyed": (Keyed, False, Deltas(every=3)),
    "divided": (Divided, False, Deltas(every=3, fullFactor=0.5)),
    "hashed": (Keyed, False, HASHED),
    "hashed own": (Divided, False, HASHED),
}
MANY = RestartPolicy(maxRestarts=50)


def _run(kind: str, choose: Any, **settings: Any) -> History:
    node, as_batches, mode = KINDS[kind]
    graph = chained(node(), SIZES, as_batches=as_batches)
    settings = {"snapshotInterval": 0.1, "restartPolicy": MANY, "odds": LATE_FAULTS, **settings}
    return Simulator(graph, choose, mode=mode, **settings).run()


@pytest.fixture(scope="module")
def seen() -> Iterator[Counter[str]]:
    """What the runs had."""
    found: Counter[str] = Counter()
    yield found
    if FACTOR >= 1:
        due = ["steps were repeated", "interleaved inputs", "a step whose snapshot was aborted", "several steps"]
        due += [*("Took", "TookTogether", "Fired", "Read", "Exhausted", "Published", "Opened", "Started")]
        due += ["a snapshot with all state", "steps behind a state", "steps since the beginning"]
        due += ["two drivers", "Freeze", "a run was adopted", "a worker crashed", "FailStore", "CrashCoordinator"]
        assert all(found[each] for each in due), found


def _note(history: History, seen: Counter[str]) -> None:
    published = {snapshot.id for snapshot in history.snapshots}
    steps = steps_of(history)
    seen.update(history.seen)
    for record in (snapshot.manifest.records[0] for snapshot in history.snapshots):
        has_base, has_steps = record.base is not None, bool(record.steps)
        seen["a snapshot with all state"] += has_base and not has_steps
        seen["steps behind a state"] += has_base and has_steps
        seen["steps since the beginning"] += not has_base and has_steps
    seen["several steps"] += len(steps) > len(history.topology.subtasks)
    for step in steps:
        seen.update(type(entry).__name__ for entry in step)
        inputs = [entry.input for entry in step if isinstance(entry, Took)]
        seen["interleaved inputs"] += len(inputs) > 3 and len({*inputs}) > 1
        seen["a step whose snapshot was aborted"] += any(
            isinstance(entry, Cut) and entry.snapshot_id not in published for entry in step
        )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("block", range(4))
def test_a_replay_is_exact(kind: str, block: int, seen: Counter[str]) -> None:
    """With faults of all kinds at random: one chain for each subtask, nothing lost, nothing doubled."""
    for seed in range(scaled(20)):
        history = _run(kind, 1000 * block + seed, faults=4)
        assert history.outcome is Outcome.FINISHED, (seed, history.reason)
        rows = history.output("out")
        assert chain_problems(rows) == [], seed
        assert sum(row[6] for row in rows) == sum(SIZES.values()) * (1 if kind == "batches" else 2), seed
        _note(history, seen)


@pytest.mark.parametrize("kind", KINDS)
def test_a_crash_after_any_number_of_steps(kind: str) -> None:
    """One worker crashes after the n-th step of a run with snapshots, for each n of a small run."""
    reference = _run(kind, 1, snapshotInterval=0.1)
    assert chain_problems(reference.output("out")) == []
    steps = len(reference.schedule)
    for place in range(1, steps, max(1, round(steps / scaled(40)))):
        history = _run(
            kind, [*reference.schedule[:place], Crash(1)], seed=1, snapshotInterval=0.1, skipsImpossible=True
        )
        assert history.outcome is Outcome.FINISHED, (place, history.reason)
        assert chain_problems(history.output("out")) == [], place


@pytest.mark.parametrize("kind", ["each", "keyed", "divided", "hashed"])
def test_every_checker_passes(kind: str) -> None:
    """Exact cuts, causality, completeness, delivery, fencing and integrity hold for steps as for markers."""
    for seed in range(scaled(10)):
        history = _run(kind, 500 + seed, faults=3)
        assert all(verdict.holds for verdict in judge(history)), (seed, list(map(str, judge(history))))


# ---------------------------------------------------------------- nodes that are not deterministic


class Clock(Node):
    """Sends what a clock says that nobody logs."""

    deterministic = True

    def onMessage(self, message: tuple[str, int], context: Context) -> None:
        context.send((message[0], time.perf_counter_ns()))


class Unordered(Node):
    """Sends the same values in another order each time, as a set of words does in another process."""

    deterministic = True

    def onMessage(self, message: tuple[str, int], context: Context) -> None:
        words = [f"{message[0]}{number}" for number in range(9)]
        random.shuffle(words)
        context.send((message[0], words))


class Fewer(Node):
    """Sends a message less when it is called again."""

    deterministic = True
    calls = 0

    def onMessage(self, message: tuple[str, int], context: Context) -> None:
        Fewer.calls += 1
        if message[1] or Fewer.calls < 4:
            context.send(message)


class Timed(Node):
    """Sets a timer by a clock that nobody logs."""

    deterministic = True
    calls = 0

    def onMessage(self, message: tuple[str, int], context: Context) -> None:
        Timed.calls += 1
        context.registerTimer(context.now - Timed.calls)

    def onTimer(self, at: float, context: Context) -> None:
        context.send(at)


GUILTY: dict[str, tuple[Callable[[], Node], str]] = {
    "a clock": (Clock, r"sent something else on node->out than before \(messages near "),
    "an order": (Unordered, r"sent something else on node->out than before \(messages near "),
    "a message less": (Fewer, r"sent [\d,]+ messages on node->out where it had sent [\d,]+"),
    "a timer": (Timed, r"has no timer for -[\d.]+, which had fired"),
}


def crashed_behind_a_snapshot(graph: Graph, mode: ModeWish = "inputLogging") -> History:
    """Take a snapshot in the middle, crash a worker behind it, and go on until all is repeated."""
    simulator = Simulator(graph, [], seed=2, mode=mode, maxSteps=2_000)
    while not any(event.kind is Kind.RECEIVE and event.subtask == OUT for event in simulator.history.events):
        simulator.take(simulator.possible()[0])
    simulator.take(RequestSnapshot())
    while not simulator.history.snapshots:
        simulator.take(simulator.possible()[0])
    simulator.take(Crash(0))
    return simulator.finish()


@pytest.mark.parametrize("kind", GUILTY)
def test_a_node_that_is_not_deterministic_is_found(kind: str) -> None:
    """At the replay: with step, node, subtask and edge. The run ends, because each replay would differ."""
    make, said = GUILTY[kind]
    Fewer.calls = Timed.calls = 0
    graph = Graph("guilty").add("slices", Slices({"a": 3}, endless=True)).add("node", make()).add("out", ListSink())
    graph.connect("slices", "node").connect("node", "out")
    history = crashed_behind_a_snapshot(graph)
    failed = [event.text for event in history.events if event.kind is Kind.FAILED]
    pattern = rf"step \d+: node 'node', subtask 0 {said}.*: it is not deterministic"
    assert history.outcome is Outcome.FAILED, (history.outcome, failed)
    assert re.search(pattern, history.reason), history.reason
    assert any("it is not deterministic" in text for text in failed)


class Secretive(Node):
    """Keeps words in the order of a set, and sends only how many there are."""

    deterministic = True

    def open(self, context: Context) -> None:
        self.words = context.getListState("words")

    def onMessage(self, message: tuple[str, int], context: Context) -> None:
        words = [f"{message[0]}{number}" for number in range(9)]
        random.shuffle(words)  # as the set has another order in another process
        self.words.appendList(words)
        context.send((message[0], len(list(self.words.get()))))


class SecretiveOwn(Node):
    """Keeps words in the order of a set as a state of its own, and sends only how many there are."""

    deterministic = True

    def __init__(self) -> None:
        self.words: list[str] = []

    def onMessage(self, message: tuple[str, int], context: Context) -> None:
        words = [f"{message[0]}{number}" for number in range(9)]
        random.shuffle(words)
        self.words += words
        context.send((message[0], len(self.words)))

    def snapshotState(self, snapshotId: int, timestamp: float) -> list[str]:
        return self.words

    def restoreState(self, state: list[str]) -> None:
        raise AssertionError("a replay makes the state again")


@pytest.mark.parametrize(("make", "part"), [(Secretive, "words"), (SecretiveOwn, "snapshotState")])
def test_a_state_that_shows_in_no_output_is_found(make: type[Node], part: str) -> None:
    """With hashes of states, by step, node, subtask and part of the state. Hashes of outputs do not find it."""
    graph = Graph("guilty").add("slices", Slices({"a": 3}, endless=True)).add("node", make()).add("out", ListSink())
    graph.connect("slices", "node", key=word_of).connect("node", "out")
    assert crashed_behind_a_snapshot(graph).outcome is not Outcome.FAILED
    history = crashed_behind_a_snapshot(graph, HASHED)
    said = rf"step \d+: node 'node', subtask 0 has another state than before \(in {part}\): it is not deterministic"
    assert history.outcome is Outcome.FAILED
    assert re.search(said, history.reason), history.reason


class Hidden(Node):
    """Has an attribute from its first message on, which no snapshotState gives."""

    deterministic = True

    def open(self, context: Context) -> None:
        self.ready = True

    def onMessage(self, message: tuple[str, int], context: Context) -> None:
        self.last = message
        context.send(message)


def test_an_attribute_that_has_no_hash_ends_the_run() -> None:
    """By its name, with the last snapshot at the latest. Attributes of `open` may be there, which do not change."""
    graph = Graph("hidden").add("slices", Slices({"a": 3})).add("node", Hidden()).add("out", ListSink())
    history = Simulator(graph.connect("slices", "node").connect("node", "out"), 1, mode=HASHED).run()
    assert history.outcome is Outcome.FAILED
    assert "node[0] changes its attributes last, which have no hash" in history.reason


class Columns(Node):
    """Counts by the column, and sends nothing but a total."""

    deterministic = True

    def open(self, context: Context) -> None:
        self.seen = context.getReducingState("seen", "sum", ttl=0.4)

    def onBatch(self, batch: pa.RecordBatch, context: Context) -> None:
        self.seen.addAll(batch.column("word"), batch.column("number"))
        context.send(batch)


@pytest.mark.parametrize(
    "make", [Columns, lambda: KeyedAggregate("word", aggregates={"n": ("number", "sum")})], ids=["columns", "groups"]
)
def test_rows_by_the_column_have_hashes(make: Callable[[], Node]) -> None:
    """Equal ones in replays, which change from step to step."""
    for seed in range(scaled(8)):
        graph = chained(make(), SIZES, as_batches=True)
        settings: Any = {"snapshotInterval": 0.1, "restartPolicy": MANY, "odds": LATE_FAULTS, "faults": 4}
        history = Simulator(graph, seed, mode=HASHED, **settings).run()
        assert history.outcome is Outcome.FINISHED, history.reason
        steps = [step for step in steps_of(history) if step[-1].states]
        assert len({step[-1].states for step in steps}) > 2


def test_the_keys_of_a_difference_are_named() -> None:
    """Behind a keyed edge: keys of the block that differs."""
    graph = (
        Graph("guilty")
        .add("slices", Slices({"a": 3}, endless=True))
        .add("node", Clock())
        .add("each", Each(), parallelism=2)
    )
    graph.add("out", ListSink()).connect("slices", "node").connect("node", "each", key=word_of).connect("each", "out")
    history = crashed_behind_a_snapshot(graph)
    assert "node 'node', subtask 0 sent something else on node->each than before (keys near 'a" in history.reason


# ---------------------------------------------------------------- the mode of a run


def _words() -> Graph:
    return chained(Lists(), SIZES)


def _files(mode: Any) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    Simulator(_words(), 3, mode=mode, snapshotInterval=0.2, files=files).run()
    return files


def test_a_run_keeps_its_mode() -> None:
    """Another one is refused by name, in both directions."""
    modes: list[tuple[ModeWish, ModeWish]] = [("inputLogging", "markers"), ("markers", "inputLogging")]
    for before, now in modes:
        history = Simulator(_words(), 3, mode=now, files=_files(before)).run()
        assert history.outcome is Outcome.FAILED
        said = f"run 'chained' was made in mode '{before}'; submit it so, or under another name"
        assert history.reason == said


def test_another_graph_is_refused() -> None:
    """Nothing of it can be repeated, and nothing is dropped for allow=."""
    files = _files(InputLogging())
    for graph, said in (
        (_words().withParallelism({"node": 3}), "\n  node node: parallelism 2 -> 3"),
        (_words().add("more", ListSink()).connect("node", "more"), "+ node more"),
    ):
        history = Simulator(graph, 3, mode="inputLogging", files=dict(files), allow={"changedGraph"}).run()
        assert history.outcome is Outcome.FAILED
        assert "has work to repeat behind its last state, and this is another graph:" in history.reason
        assert said in history.reason


def _stopped(seed: int, every: int) -> tuple[dict[str, bytes], dict[str, list[Any]]]:
    """What a run in mode deltas has stored and made visible, stopped by a request in the middle."""
    files: dict[str, bytes] = {}
    graph = chained(Keyed(), SIZES, endless=True)
    settings: Any = {"mode": Deltas(every), "snapshotInterval": 0.1}
    begun = Simulator(graph, seed, maxSteps=400 + 40 * seed, **settings).run().schedule
    history = Simulator(graph, [*begun, RequestSnapshot(stop=True)], seed=seed, files=files, **settings).run()
    assert history.outcome is Outcome.STOPPED, history.reason
    return files, history.committed["out"]


@pytest.mark.parametrize("every", [1, 3, 10])
def test_a_requested_snapshot_has_all_state_and_can_be_rescaled(every: int) -> None:
    """Whatever its id would have been. The next run goes on with other parallelisms, without a replay."""
    for seed in range(scaled(8)):
        files, visible = _stopped(seed, every)
        graph = chained(Keyed(), SIZES).withParallelism({"slices": 3, "node": 1 + seed % 4, "left": 1})
        settings: Any = {"mode": Deltas(every), "snapshotInterval": 0.1, "files": files, "allow": {"changedGraph"}}
        history = Simulator(graph, seed, faults=2, odds=LATE_FAULTS, **settings).run()
        assert history.outcome is Outcome.FINISHED, history.reason
        by_token = {**visible, **history.committed["out"]}
        rows = [unpack(row, history.codec) for packed in by_token.values() for row in packed]
        assert chain_problems(rows) == [], seed
        assert sum(row[6] for row in rows) == 2 * sum(SIZES.values())


class ListsSink(ListSink):
    """Takes messages in lists."""

    def onMessages(self, messages: Any, context: Context) -> None:
        self.rows += list(messages)


class BatchSink(ListSink):
    """Takes messages in batches."""

    def onBatch(self, batch: pa.RecordBatch, context: Context) -> None:
        self.rows += [(row["word"], row["number"]) for row in batch.to_pylist()]


class MarkingSink(ListSink):
    """Changes the messages that it gets, which are its own."""

    def onMessage(self, message: dict[str, Any], context: Context) -> None:
        self.rows.append((message["word"], message["number"]))
        message.clear()


class MarkingListsSink(MarkingSink):
    """Takes messages in lists, and changes them."""

    def onMessages(self, messages: Any, context: Context) -> None:
        for message in messages:
            self.onMessage(message, context)


@pytest.mark.parametrize(
    ("make", "as_batches"), [(ListsSink, False), (BatchSink, True), (MarkingSink, True), (MarkingListsSink, True)]
)
def test_a_sink_is_left_out_of_a_replay(make: type[ListSink], as_batches: bool) -> None:
    """Its state is in the snapshot, so the lists and batches that its log names come again, and are dropped.

    They are the same messages, whatever the sink did to them.
    """
    graph = Graph("sunk").add("slices", Slices({"a": 400}, as_batches=as_batches))
    graph.add("out", make())
    graph.connect("slices", "out", schema=SCHEMA if as_batches else None)
    simulator = Simulator(graph, [], seed=2, mode="inputLogging", snapshotInterval=0.05, restartPolicy=MANY)
    chance = random.Random(1)
    while not simulator.history.snapshots:
        possible = [each for each in simulator.possible() if not isinstance(each, Tick)]
        simulator.take(chance.choice(possible) if possible and chance.randrange(6) else Tick(0.02))
    simulator.take(Crash("out"))
    history = simulator.finish()
    assert history.outcome is Outcome.FINISHED, history.reason
    assert history.seen["steps were repeated"]
    assert sorted(history.output("out")) == sorted((f"a{number % 3}", number) for number in range(400))


class Newer(Keyed):
    """Keeps its chains as lists from version 2 on."""

    stateVersion = 2

    def migrateKeyedState(self, name: str, value: Any, fromVersion: int) -> Any:
        return value


class NewerDivided(Divided):
    """Cannot read the states of version 1."""

    stateVersion = 2


def test_a_listed_state_of_another_version_is_refused() -> None:
    """By the worker, because the record of a snapshot that lists an earlier state does not say whether there is one."""
    files: dict[str, bytes] = {}
    settings: dict[str, Any] = {"mode": Deltas(every=1000), "snapshotInterval": 0.01, "files": files}
    begun = Simulator(chained(Divided(), {"a": 300}), 1, maxSteps=1500, **settings).run()
    assert begun.snapshots[-1].id % 1000, "the newest snapshot has no state of its own"
    history = Simulator(chained(NewerDivided(), {"a": 300}), 1, **settings).run()
    assert history.outcome is Outcome.FAILED
    assert re.match(r"node\[\d\] has states of version 1 in the snapshot, and its stateVersion is 2", history.reason)


@pytest.mark.parametrize(
    ("graph", "allow"),
    [
        (lambda: chained(Keyed(), SIZES).connect("slices", "out"), {"changedGraph"}),
        (lambda: chained(Newer(), SIZES), ()),
    ],
    ids=["edge", "version"],
)
def test_another_graph_begins_with_a_state_of_its_own(graph: Callable[[], Graph], allow: Any) -> None:
    """Its first snapshot lists no state of the graph before, which has other channels or versions (PROTOCOL 12.11)."""
    files: dict[str, bytes] = {}
    mode = Deltas(every=3)
    settings: dict[str, Any] = {"snapshotInterval": 0.1, "restartPolicy": MANY}
    begun = Simulator(chained(Keyed(), SIZES), 4, mode=mode, maxSteps=600, **settings).run().schedule
    schedule = [*begun, RequestSnapshot(stop=True)]
    stopped = Simulator(chained(Keyed(), SIZES), schedule, seed=4, mode=mode, files=files, **settings).run()
    assert stopped.outcome is Outcome.STOPPED
    simulator = Simulator(graph(), [], seed=4, mode=mode, files=files, allow=allow, **settings)
    new: list[Any] = []
    while not (new or simulator.isOver):
        simulator.take(simulator.possible()[0])
        new = [each for each in simulator.history.snapshots if each.id > stopped.snapshots[-1].id]
    assert new, simulator.finish().reason
    assert new[0].id % 3 == 0, "the first snapshot has state"
    if not simulator.isOver:
        simulator.take(Crash(0))
    history = simulator.finish()
    assert history.outcome is Outcome.FINISHED, history.reason
