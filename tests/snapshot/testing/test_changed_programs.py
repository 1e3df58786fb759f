"""Programs that change between two starts: nodes of another name, and states of another version (PROTOCOL 6.13, 6.14).

Each chain is one store, on which one program after another goes on from the newest snapshot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import pytest

from cutline import Context, Graph, KeyedAggregate, Node, keyGroup
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.coordinator.run_state import Outcome
from cutline.snapshot.keyed.segment import decode_piece
from cutline.snapshot.plan.topology import Topology
from cutline.snapshot.stored.manifest import Manifest
from cutline.snapshot.stored.run_store import RunStore
from cutline.snapshot.stored.snapshot import Snapshot
from cutline.snapshot.testing.choosers import Odds
from cutline.snapshot.testing.simulation.store import SimulatedBackend
from cutline.testing import History, ListSink, ListSource, Pause, Simulator, judge
from tests.run_size import FACTOR, scaled
from tests.snapshot.testing.rescaled import COMMITTED, InOrder, Out, Records, due, first_field

Files = dict[str, bytes]


def newest(files: Files, run: str) -> Snapshot | None:
    """The newest snapshot in the store, whose certificate holds."""
    found = list(RunStore(SimulatedBackend(files), run).read_snapshots(Codec()))
    return max(found, key=lambda snapshot: snapshot.id, default=None)


def stopped(graph: Graph, files: Files, *, at: float, **settings: Any) -> History:
    """A run that goes on from the store, and whose driver dies at a time."""
    simulator = Simulator(graph, [], files=files, snapshotInterval=0.5, **settings)
    while simulator.now < at and not simulator.isOver:
        simulator.take(simulator.possible()[0])
    return simulator.history


def finished(graph: Graph, files: Files, **settings: Any) -> History:
    """A run that goes on from the store to its end, with no finding of any checker."""
    history = Simulator(graph, [], files=files, snapshotInterval=0.5, **settings).run()
    assert history.outcome is Outcome.FINISHED, history.reason
    assert [verdict for verdict in judge(history) if not verdict.holds] == []
    return history


# ---------------------------------------------------------------- nodes of another name


def pipeline(
    parallelism: int, source: str, first: str, second: str, formerly: Mapping[str, str], *, count: int = 30
) -> Graph:
    """Two nodes with keyed state behind keyed edges, under any names."""
    graph = Graph("keyed").add(source, Records(3, count), parallelism=parallelism, formerly=formerly.get(source))
    for name in (first, second):
        graph.add(name, InOrder(), parallelism=parallelism, formerly=formerly.get(name))
    graph.add("out", Out("keyed"), parallelism=parallelism)
    graph.connect(source, first, key=first_field).connect(first, second, key=first_field)
    return graph.connect(second, "out", partitioning="rebalance")


#: one program after another: renamed, renamed with another parallelism, and a former name that nobody claims any more
CHAIN: tuple[Any, ...] = (
    (2, "s", "a", "b", {}),
    (2, "s", "c", "b", {"c": "a"}),
    (3, "t", "c", "d", {"c": "a", "d": "b", "t": "s"}),
    (3, "t", "c", "e", {"e": "d"}),
    (1, "t", "a", "e", {"a": "c"}),
)


def go_through(chain: tuple[Any, ...], seed: int, seen: Counter[str]) -> None:
    """Run the programs one after another, cut off somewhere, with faults. Demand that no record is lost or doubled."""
    chance, files = Random(seed), Files()
    COMMITTED.clear()
    for place, program in enumerate(chain):
        is_last = place == len(chain) - 1
        history = Simulator(
            pipeline(*program), chance.randrange(10**6), faults=chance.choice([0, 0, 1, 2]), files=files,
            maxSteps=20_000 if is_last else chance.randrange(250, 600), odds=Odds(request=25, requests=10**6),
            workers=2,
        ).run()  # fmt: skip
        if history.outcome is Outcome.FAILED and "is of another graph" in history.reason:
            return  # no snapshot of the program before, so that its names are not in the store
        bad = [each for each in judge(history) if not each.holds and (is_last or each.checker != "liveness")]
        assert bad == [], (seed, place)
        assert history.outcome is not Outcome.FAILED, (seed, place, history.reason)
        if history.outcome is Outcome.FINISHED and not is_last:
            return
        snapshot = newest(files, "keyed")
        if snapshot is not None:
            seen[f"foreign parts {place}"] += bool(_foreign_nodes(snapshot))
            seen[f"messages in flight {place}"] += any(h.channel for r in snapshot.manifest.records for h in r.handles)
    rows = Counter(tuple(row) for rows in COMMITTED["keyed"].values() for row in rows)
    assert rows == due(3, 30), (seed, rows - due(3, 30), due(3, 30) - rows)
    seen["whole"] += 1


def _foreign_nodes(snapshot: Snapshot) -> set[str]:
    """Names of other nodes whose parts are listed."""
    return {
        entry.handle.subtask.node
        for record in snapshot.manifest.records
        for entry in record.rows or ()
        if entry.handle.subtask.node != record.subtask.node
    }


def test_renamed_nodes_go_on_where_they_were() -> None:
    """State, messages in flight, ends and lists go to the new name, also with another parallelism, through faults."""
    seen: Counter[str] = Counter()
    for seed in range(scaled(12)):
        go_through(CHAIN, seed, seen)
    if FACTOR >= 1:
        assert seen["whole"] > 0 and seen["messages in flight 0"] > 0, seen
        assert seen["foreign parts 1"] > 0, seen


def counting(name: str, *, formerly: str | None = None, pause: float = 1.0) -> Graph:
    """Counts by key with pauses between the messages."""
    words = [each for word in ("a", "b", "a", "b", "a") for each in (word, Pause(pause))]
    graph = Graph("words").add("source", ListSource(*words)).add(name, Counted(), parallelism=2, formerly=formerly)
    graph.add("out", ListSink())
    return graph.connect("source", name, key=itself).connect(name, "out")


def itself(message: Any) -> Any:
    """The key of a word."""
    return message


class Counted(Node):
    """Counts words, and keeps a keyed timer a word."""

    def open(self, context: Context) -> None:
        self.n = context.getReducingState("n", "sum")

    def onMessage(self, message: Any, context: Context) -> None:
        self.n.add(1)
        context.registerTimer(context.now + 100.0 + self.n.get())  # one each, because time begins anew in each program
        context.send((message, self.n.get()))

    def onTimer(self, at: float, context: Context) -> None:
        context.send(("timer", context.key))


def test_a_name_is_given_up_by_a_base() -> None:
    """While the graph says formerly, lists go on. Afterwards the parts of the former name are merged into own ones."""
    files = Files()
    stopped(counting("old"), files, at=1.6)
    stopped(counting("new", formerly="old"), files, at=0.9)  # before compaction merges the parts of both names
    store = RunStore(SimulatedBackend(files), "words")
    renamed = [each for each in store.read_snapshots(Codec()) if "new" in each.nodes]
    assert _foreign_nodes(renamed[-1]) == {"old"}
    stopped(counting("new"), files, at=1.0)
    again = [each for each in store.read_snapshots(Codec()) if each.id > renamed[-1].id]
    assert again and [_foreign_nodes(each) for each in again] == [set()] * len(again)
    history = finished(counting("new"), files)
    assert Counter(key for what, key in history.output("out") if what == "timer") == {"a": 3, "b": 2}
    final = newest(files, "words")
    assert final is not None and final.node("new").keyedState("n") == {"a": 3, "b": 2}


def test_a_former_name_is_claimed_once_and_is_gone() -> None:
    """Two nodes cannot both take over, and a node cannot take over from one that is still there."""
    from cutline.snapshot.errors import GraphError
    from cutline.snapshot.plan.compiled_graph import build

    graph = Graph("g").add("a", ListSource(1), formerly="x").add("b", ListSink(), formerly="x").connect("a", "b")
    with pytest.raises(GraphError, match="nodes 'a', 'b': 2 are formerly 'x', and only one can take over its state"):
        build(graph, "unaligned")
    graph = Graph("g").add("a", ListSource(1)).add("b", ListSink(), formerly="a").connect("a", "b")
    with pytest.raises(GraphError, match="node 'b': is formerly 'a', but the graph has a node 'a'"):
        build(graph, "unaligned")
    graph = Graph("g").add("a", ListSource(1)).add("b", ListSink(), formerly="").connect("a", "b")
    with pytest.raises(GraphError, match="node 'b': formerly '': has 0 characters"):
        build(graph, "unaligned")


def test_streams_take_former_names() -> None:
    """Each method that adds a node has the parameter."""
    from cutline.snapshot.plan.compiled_graph import build

    graph = Graph("g")
    stream = graph.source("s", ListSource(1), formerly="s0").process("n", Counted(), formerly="n0")
    topology: Topology = build(stream.to("t", ListSink(), formerly="t0"), "unaligned").topology
    assert dict(topology.former_names) == {"s": "s0", "n": "n0", "t": "t0"}


def test_a_removed_node_drops_its_state_only_where_that_is_allowed() -> None:
    """A changed graph alone does not drop state. The text names the subtasks, what they keep, and formerly."""
    files = Files()
    stopped(counting("old"), files, at=1.6)
    without = Graph("words").add("source", ListSource("z")).add("out", ListSink()).connect("source", "out", key=itself)
    history = Simulator(without, [], files=dict(files), allow={"changedGraph"}).run()
    assert history.outcome is Outcome.FAILED
    assert "holds state of nodes that the graph no longer has" in history.reason
    assert "old[" in history.reason and "keyed state" in history.reason and "droppedState" in history.reason
    assert "formerly=" in history.reason
    finished(without, dict(files), allow={"changedGraph", "droppedState", "droppedMessages"})


# ---------------------------------------------------------------- versions


def versioned(make: Callable[[], Node], *, parallelism: int = 1) -> Graph:
    """Words to one node with keyed state or own state."""
    words = [each for word in ("a", "b", "a", "c") for each in (word, Pause(1.0))]
    graph = Graph("versions").add("source", ListSource(*words)).add("node", make(), parallelism=parallelism)
    graph.add("out", ListSink())
    return graph.connect("source", "node", key=itself).connect("node", "out", partitioning="rebalance")


class First(Node):
    """Version 1: counts as ints, a list of words, and a map of lengths."""

    def open(self, context: Context) -> None:
        self.n = context.getValueState("n")
        self.words = context.getListState("words")
        self.lengths = context.getMapState("lengths")
        self.unused = context.getValueState("unused")

    def onMessage(self, message: Any, context: Context) -> None:
        self.n.update((self.n.get() or 0) + 1)
        self.words.appendValue(message)
        self.lengths.updateValue(message, len(message))
        self.unused.update("rest")
        context.registerTimer(context.now + 50.0)
        context.send((message, self.n.get(), self.words.get()))

    def onTimer(self, at: float, context: Context) -> None:
        context.send(("timer", context.key))


class Second(First):
    """Version 2: counts in a dict, words in capitals. Does not ask for `unused`."""

    stateVersion = 2

    def open(self, context: Context) -> None:
        self.n = context.getValueState("n")
        self.words = context.getListState("words")
        self.lengths = context.getMapState("lengths")

    def migrateKeyedState(self, name: str, value: Any, fromVersion: int) -> Any:
        assert fromVersion == 1
        match name:
            case "n":
                return {"count": value}
            case "words":
                return value.upper()
            case "lengths":
                return value * 10
            case _:
                return f"migrated {value}"

    def onMessage(self, message: Any, context: Context) -> None:
        count = (self.n.get() or {"count": 0})["count"] + 1
        self.n.update({"count": count})
        self.words.appendValue(message.upper())
        self.lengths.updateValue(message, 10 * len(message))
        context.send((message, count, self.words.get(), [*self.lengths.values()]))


class Third(Second):
    """Version 3: asks for `unused` again."""

    stateVersion = 3

    def open(self, context: Context) -> None:
        super().open(context)
        self.unused = context.getValueState("unused")

    def migrateKeyedState(self, name: str, value: Any, fromVersion: int) -> Any:
        assert fromVersion == 2
        return value


def records_of(files: Files) -> Manifest:
    """The newest manifest."""
    snapshot = newest(files, "versions")
    assert snapshot is not None
    return snapshot.manifest


@pytest.mark.parametrize("parallelism", [1, 2])
def test_keyed_state_is_migrated_at_the_restore(parallelism: int) -> None:
    """Each value of each state, timers not. The first snapshot lists a base. States that nobody asks for stay."""
    files = Files()
    stopped(versioned(First), files, at=2.6)
    stopped(versioned(Second, parallelism=parallelism), files, at=0.9)
    snapshot = newest(files, "versions")
    assert snapshot is not None
    node = snapshot.node("node")
    assert node.keyedState("n")["a"] == {"count": 2} and node.keyedState("n")["b"] == {"count": 1}
    assert node.keyedState("words")["a"] == ["A", "A"]
    assert node.keyedState("lengths")["b"] == {"b": 10}
    assert node.keyedState("unused")["a"] == "migrated rest"
    first = [record.rows[0].handle.first for record in snapshot.manifest.records if record.rows]
    assert first and set(first) == {0}, "the list begins with a base"
    history = finished(versioned(Third), files)
    rows = history.output("out")
    assert ("c", 1, ["C"], [10]) in [tuple(row) for row in rows] or snapshot.node("node").keyedState("n").get("c")
    final = newest(files, "versions")
    assert final is not None
    assert final.node("node").keyedState("unused")["a"] == "migrated rest"


@pytest.mark.parametrize("seed", range(6))
def test_migrations_are_repeated_after_faults(seed: int) -> None:
    """A rollback before the first snapshot migrates again, one after it does not, and a chain finishes alike."""
    files = Files()
    stopped(versioned(First, parallelism=2), files, at=2.6)
    for make, steps in ((Second, 300), (Third, 20_000)):
        history = Simulator(
            versioned(make, parallelism=2), seed, faults=2, files=files, maxSteps=steps, workers=2,
            odds=Odds(request=25, requests=10**6),
        ).run()  # fmt: skip
        assert history.outcome is not Outcome.FAILED, history.reason
        assert [each for each in judge(history) if not each.holds and each.checker != "liveness"] == []
        if history.outcome is Outcome.FINISHED:
            break
        snapshot = newest(files, "versions")
        if snapshot is not None and snapshot.manifest.topology["nodes"][1].get("state_version") != 2:
            return  # no snapshot of version 2
    final = newest(files, "versions")
    assert final is not None
    assert final.node("node").keyedState("n") == {"a": {"count": 2}, "b": {"count": 1}, "c": {"count": 1}}


class Tombstones(First):
    """Removes each value when its key comes again, so that its list has rows and no value."""

    def open(self, context: Context) -> None:
        self.n = context.getValueState("n")

    def onMessage(self, message: Any, context: Context) -> None:
        if self.n.exists():
            self.n.clear()
        else:
            self.n.update(1)


def test_a_base_of_no_rows_replaces_a_list() -> None:
    """A list of tombstones is migrated to a base without rows, because the old list must not be listed any more."""
    files = Files()
    graph = Graph("versions").add("source", ListSource("a", Pause(1.0), "a", Pause(50.0))).add("node", Tombstones())
    graph.add("out", ListSink()).connect("source", "node", key=itself)
    stopped(graph.connect("node", "out", partitioning="rebalance"), files, at=2.6)
    before = records_of(files)
    stopped(versioned(Second), files, at=0.9)
    after = records_of(files)
    assert after.snapshot_id > before.snapshot_id
    (rows,) = [record.rows for record in after.records if record.rows]
    assert rows[0].handle.first == 0
    assert finished(versioned(Second), files).outcome is Outcome.FINISHED


class Kept(Node):
    """Version 1 of a node with own state."""

    def __init__(self) -> None:
        self.words: Any = []

    def onMessage(self, message: Any, context: Context) -> None:
        self.words.append(message)
        context.send(message)

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return self.words

    def restoreState(self, state: Any) -> None:
        self.words = state


class Raised(Kept):
    """Version 2 without a hook."""

    stateVersion = 2


class Lowered(Kept):
    """Version 2 with a hook: words in capitals."""

    stateVersion = 2

    def migrateState(self, state: Any, fromVersion: int) -> Any:
        assert fromVersion == 1
        return [word.upper() for word in state]


class Delta(Kept):
    """Gives its words as deltas."""

    def __init__(self) -> None:
        super().__init__()
        self.new: list[Any] = []

    def onMessage(self, message: Any, context: Context) -> None:
        super().onMessage(message, context)
        self.new.append(message)

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        self.new = []
        return self.words

    def snapshotDelta(self, sinceSnapshotId: int) -> Any:
        new, self.new = self.new, []
        return new or None

    def applyDelta(self, delta: Any) -> None:
        self.words = [*self.words, *delta]


class Whole(Kept):
    """Takes deltas, and gives none any more."""

    applyDelta = Delta.applyDelta


def test_a_class_may_stop_to_give_deltas() -> None:
    """Its whole states go on with the list of the snapshot, and end the deltas in it."""
    files = Files()
    stopped(versioned(Delta), files, at=2.6)
    stopped(versioned(Whole), files, at=1.6)
    finished(versioned(Whole), files)
    final = newest(files, "versions")
    assert final is not None and final.node("node").changes == [[["a", "b", "a", "c"]]], "one whole state"


class Unkeyed(Node):
    """Asks for no keyed state."""

    def onMessage(self, message: Any, context: Context) -> None:
        context.send((message, 0, []))


def test_keyed_state_that_nobody_asks_for_stays_also_where_a_subtask_has_none() -> None:
    """With few keys some subtasks never had a row. All of them go on with lists, so that snapshots are whole."""
    files = Files()
    stopped(versioned(First, parallelism=8), files, at=1.6)
    finished(versioned(Unkeyed, parallelism=8), files)
    final = newest(files, "versions")
    assert final is not None and final.node("node").keyedState("n")["a"] >= 1


def test_own_state_is_migrated_ahead_of_restore_state() -> None:
    """`migrateState` gets what `restoreState` would get."""
    files = Files()
    stopped(versioned(Kept), files, at=1.6)
    finished(versioned(Lowered), files)
    final = newest(files, "versions")
    assert final is not None and final.node("node").state == ["A", "B", "a", "c"]


def refusal(graph: Graph, files: Files) -> str:
    """Why a restore is refused, at once."""
    history = Simulator(graph, [], files=dict(files)).run()
    assert history.outcome is Outcome.FAILED
    assert not any(history.origins.values()), "nothing ran"
    return history.reason


def test_versions_without_a_way_are_refused_by_name() -> None:
    """An older version without its hook, with what to write, and a newer version."""
    files = Files()
    stopped(versioned(Kept), files, at=1.6)
    assert refusal(versioned(Raised), files).endswith(
        "node 'node' has states of version 1 in the snapshot, and its stateVersion is 2: define "
        "migrateState(state, fromVersion), which returns the state as restoreState takes it"
    )
    stopped(versioned(Lowered), files, at=0.9)
    assert refusal(versioned(Kept), files).endswith(
        "node 'node' has states of version 2 in the snapshot, and its stateVersion is 1: submit it with the class that "
        "wrote them, or a newer one"
    )


def test_keyed_state_without_its_hook_is_refused_by_name() -> None:
    """The worker refuses, because only the parts name the states. Nothing runs, and no restart tries again."""

    class Forgetful(First):
        stateVersion = 2

    files = Files()
    stopped(versioned(First), files, at=1.6)
    history = Simulator(versioned(Forgetful), [], files=dict(files)).run()
    assert history.outcome is Outcome.FAILED
    assert "node[0] has states of version 1 in the snapshot, and its stateVersion is 2: define migrateKeyedState(" in (
        history.reason
    )


def test_what_a_migration_returns_is_checked() -> None:
    """None is no value, and an error of the hook is named. The text names state and key."""

    class Nothing(Second):
        def migrateKeyedState(self, name: str, value: Any, fromVersion: int) -> Any:
            return None

    class Broken(Lowered):
        def migrateState(self, state: Any, fromVersion: int) -> Any:
            raise ValueError("no way")

    files = Files()
    stopped(versioned(First), files, at=1.6)
    reason = Simulator(versioned(Nothing), [], files=dict(files)).run().reason
    assert "migrateKeyedState of node[0]" in reason and "None is no value" in reason
    files = Files()
    stopped(versioned(Kept), files, at=1.6)
    reason = Simulator(versioned(Broken), [], files=files).run().reason
    assert "migrateState from version 1: ValueError" in reason and "no way" in reason


# ---------------------------------------------------------------- keys of edges


def totals(key: Any, *, parallelism: int = 2) -> Graph:
    """Counts by two columns, behind an edge with one key or another."""
    rows = [{"a": f"a{n % 3}", "b": f"b{n % 2}"} for n in range(12)]
    items = [each for row in rows for each in (row, Pause(1.0))]
    aggregate = KeyedAggregate(("a", "b"), aggregates={"n": ("a", "count")})
    graph = Graph("totals").add("source", ListSource(*items)).add("totals", aggregate, parallelism=parallelism)
    graph.add("out", ListSink()).connect("source", "totals", key=key, schema="a string, b string")
    return graph.connect("totals", "out", partitioning="rebalance")


DUE = [(f"a{n % 3}", f"b{n % 2}", 2) for n in range(6)]


def counted(history: History) -> list[tuple[str, str, int]]:
    """The result of the aggregate."""
    return sorted((row["a"], row["b"], row["n"]) for row in history.output("out"))


def test_a_changed_key_of_an_aggregate_is_refused_by_name() -> None:
    """Rows lie by the old key, and messages would go by the new one. Nothing runs."""
    files = Files()
    stopped(totals("a"), files, at=3.6)
    history = Simulator(totals("b"), [], files=dict(files)).run()
    assert "~ edge source->totals: hash by a -> hash by b" in history.reason and "changedGraph" in history.reason
    history = Simulator(totals("b"), [], files=dict(files), allow={"changedGraph"}).run()
    assert history.outcome is Outcome.FAILED
    assert "the rows of 'groups' lie by a in the snapshot, and the edge has the key b now" in history.reason
    assert "parallelism 1" in history.reason


def test_a_changed_key_of_an_aggregate_is_no_matter_for_one_subtask() -> None:
    """Its rows become a base that lies by the new key. Segments of both keys could never be merged."""
    files = Files()
    stopped(totals("a", parallelism=1), files, at=3.6)
    stopped(totals("b", parallelism=1), files, at=3.0, allow={"changedGraph"})
    store = RunStore(SimulatedBackend(files), "totals")
    later = [each.manifest for each in store.read_snapshots(Codec()) if each.id > 2_000_000]
    entries = [entry.handle for manifest in later for record in manifest.records for entry in record.rows or ()]
    assert later and entries[0].first == 0
    groupings = {decode_piece(store.read_part(handle), handle.name).grouped_by for handle in entries}
    assert groupings == {("b",)}
    groups = decode_piece(store.read_part(entries[0]), "").rows.column("group").to_pylist()
    assert {*groups} <= {keyGroup("b0"), keyGroup("b1")}
    assert counted(finished(totals("b", parallelism=1), files)) == sorted(DUE)


class Renamed(Node):
    """Counts by the key of the edge."""

    def open(self, context: Context) -> None:
        self.n = context.getValueState("n")

    def onMessage(self, message: Any, context: Context) -> None:
        self.n.update((self.n.get() or 0) + 1)


def test_keyed_state_lies_by_its_own_keys() -> None:
    """With another key of the edge the rows of the old keys stay, and messages find rows of new keys."""

    def graph(key: str, parallelism: int) -> Graph:
        rows = [each for n in range(6) for each in ({"a": f"a{n % 2}", "b": f"b{n % 3}"}, Pause(1.0))]
        made = Graph("keys").add("source", ListSource(*rows)).add("count", Renamed(), parallelism=parallelism)
        return made.connect("source", "count", key=key)

    files = Files()
    stopped(graph("a", 2), files, at=2.6)
    assert "changedGraph" in Simulator(graph("b", 3), [], files=dict(files)).run().reason
    finished(graph("b", 3), files, allow={"changedGraph"})
    final = newest(files, "keys")
    assert final is not None
    found = final.node("count").keyedState("n")
    assert sum(found.values()) == 6 and {"a0", "a1"} < {*found}
