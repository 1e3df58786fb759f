"""Messages that fail each time end the run by name, or go to the dead-letter edge (PROTOCOL 6.6, failing messages)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutline import END, ChannelLogs, Context, Graph, GraphError, Node, ReplayableSource
from cutline.snapshot.coordinator.restart_policy import RestartPolicy
from cutline.snapshot.coordinator.run_state import Outcome
from cutline.snapshot.testing.history import History
from cutline.testing import CheckFailed, ListSink, ListSource, Pause, Simulator, checkRecovery, everHandled

_BAD = (3, 4, 11)
_GOOD = [number for number in range(20) if number not in _BAD]


class Parser(Node):
    """Fails on some numbers, after it has sent and counted."""

    def __init__(self) -> None:
        self.seen = 0

    def onMessage(self, message: int, context: Context) -> None:
        self.seen += 1
        context.send(message)
        if message in _BAD:
            raise ValueError(f"cannot parse {message}")

    def snapshotState(self, snapshotId: int, timestamp: float) -> int:
        return self.seen

    def restoreState(self, state: int) -> None:
        self.seen = state


class BatchParser(Node):
    """Fails on batches with some numbers."""

    def onBatch(self, batch: pa.RecordBatch, context: Context) -> None:
        numbers = batch.column("n").to_pylist()
        for number in numbers:
            context.send(number)
        if any(number in _BAD for number in numbers):
            raise ValueError(f"cannot parse {numbers}")


def batch(numbers: range) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"n": pa.array(numbers, pa.int64())})


def parsing(node: Node, source: Any, *, key: Any = None, schema: str | None = None, parallelism: int = 1) -> Graph:
    graph = Graph("g").add("numbers", source).add("parser", node, parallelism=parallelism)
    graph.add("out", ListSink()).add("dead", ListSink())
    return graph.connect("numbers", "parser", key=key, schema=schema, onError="dead").connect("parser", "out")


def check(history: History, message: Any = lambda number: number) -> None:
    assert history.outcome is Outcome.FINISHED, history.reason
    assert sorted(history.output("out")) == _GOOD
    letters = sorted(history.output("dead"), key=lambda letter: letter["error"].partition("cannot parse")[2])
    assert sorted(map(repr, (letter["message"] for letter in letters))) == sorted(repr(message(bad)) for bad in _BAD)
    for letter in letters:
        assert list(letter) == ["message", "error", "node", "channel", "sequenceNumber"]
        assert letter["node"] == "parser" and letter["channel"].startswith("numbers[0]->parser[")
        assert "cannot parse" in letter["error"]


def key_of(number: int) -> int:
    return number % 5


@given(seed=st.integers(0, 10_000))
@settings(deadline=None)
def test_messages_that_fail_are_set_aside_once(seed: int) -> None:
    """Whatever else fails, every other message is handled once, and what a failed hook sent or counted is undone."""
    policy = RestartPolicy(maxRestarts=50, poisonAfter=2)
    for graph in (
        parsing(Parser(), ListSource(*range(20))),
        parsing(Parser(), ListSource(*range(20)), key=key_of, parallelism=2),
    ):
        check(Simulator(graph, seed, snapshotInterval=0.5, restartPolicy=policy).run())


@given(seed=st.integers(0, 10_000))
@settings(deadline=None)
def test_of_a_batch_only_the_rows_that_fail_are_set_aside(seed: int) -> None:
    """Batches as they were sent, and messages gathered to batches."""
    policy = RestartPolicy(maxRestarts=50, poisonAfter=2)
    sent = ListSource(batch(range(7)), batch(range(7, 20)))
    check(
        Simulator(parsing(BatchParser(), sent, schema="n long"), seed, restartPolicy=policy).run(),
        lambda number: {"n": number},
    )


class Lengths(Node):
    """Sends the length of each batch that it can read."""

    def onBatch(self, batch: pa.RecordBatch, context: Context) -> None:
        numbers = batch.column("n").to_pylist()
        if any(number in _BAD for number in numbers):
            raise ValueError(f"cannot parse {numbers}")
        context.send(len(numbers))


@pytest.mark.parametrize("seed", range(4))
def test_rows_that_do_not_fail_stay_together(seed: int) -> None:
    """Behind the rows that are set aside, too: a half that is handled is one call."""
    sent = ListSource(batch(range(7)), batch(range(7, 60)))
    policy = RestartPolicy(maxRestarts=50, poisonAfter=2)
    history = Simulator(parsing(Lengths(), sent, schema="n long"), seed, restartPolicy=policy).run()
    lengths = history.output("out")
    assert sum(lengths) == 60 - len(_BAD) and len(lengths) < 15, lengths


def test_a_message_that_fits_no_schema_is_set_aside() -> None:
    """Messages are gathered without the one that does not fit."""
    rows = [{"n": number} for number in range(6)]
    graph = parsing(BatchParser(), ListSource(*rows[:3], {"m": 1}, *rows[5:]), schema="n long")
    history = Simulator(graph, 0, restartPolicy=RestartPolicy(poisonAfter=1)).run()
    assert history.outcome is Outcome.FINISHED, history.reason
    assert sorted(history.output("out")) == [0, 1, 2, 5]
    (letter,) = history.output("dead")
    assert letter["message"] == {"m": 1} and "message 4 does not fit the edge's schema" in letter["error"]
    assert letter["sequenceNumber"] == 4


@pytest.mark.parametrize("place", range(6))
def test_a_message_that_does_not_fit_costs_the_same_at_each_place(place: int) -> None:
    """It alone has failed, and not the messages that are gathered with it."""
    rows: list[dict[str, Any]] = [{"n": number} for number in (0, 1, 2, 5, 6, 8)]
    rows[place] = {"n": "no number"}
    history = Simulator(
        parsing(BatchParser(), ListSource(*rows), schema="n long"), 0, restartPolicy=RestartPolicy(poisonAfter=1)
    ).run()
    assert history.outcome is Outcome.FINISHED, history.reason
    assert [letter["message"] for letter in history.output("dead")] == [rows[place]]
    assert len(history.output("out")) == 5
    assert len(history.origins) == 2


def test_a_node_that_fails_at_a_letter_ends_the_run() -> None:
    """Its own edge has no onError, so the letter is a message as any other."""
    graph = parsing(Parser(), ListSource(3))
    graph.nodes[-1] = graph.nodes[-1].__class__("dead", Refuses(), 1)
    history = Simulator(graph, 0, restartPolicy=RestartPolicy(maxRestarts=50)).run()
    assert history.outcome is Outcome.FAILED
    assert "message 1 of parser[0]->dead[0] failed 3 times in a row" in history.reason


class Refuses(Node):
    """Fails on each message."""

    def onMessage(self, message: Any, context: Context) -> None:
        raise OSError("no place left")


class Alarm(Node):
    """Fails at each timer."""

    def onMessage(self, message: Any, context: Context) -> None:
        context.registerTimer(context.now + 1.0)

    def onTimer(self, at: float, context: Context) -> None:
        raise ValueError("no alarm")


def test_a_timer_that_fails_ends_the_run_by_name() -> None:
    """Known by its key and its time."""
    graph = Graph("g").add("numbers", ListSource(7)).add("alarm", Alarm()).connect("numbers", "alarm", key=key_of)
    history = Simulator(graph, 0, snapshotInterval=0.2, restartPolicy=RestartPolicy(maxRestarts=50)).run()
    assert history.outcome is Outcome.FAILED
    assert "the timer of alarm[0] with key 2 at" in history.reason and "failed 3 times in a row" in history.reason


def test_the_edge_is_none_of_the_nodes() -> None:
    """A node neither sees it nor sends along it, and no other edge may take its place."""

    class ShowsOutputs(Node):
        def onMessage(self, message: Any, context: Context) -> None:
            context.send(context.outputs)

    history = Simulator(parsing(ShowsOutputs(), ListSource(1)), 0).run()
    assert history.output("out") == [("out",)] and history.output("dead") == []
    with pytest.raises(GraphError, match=r"edge parser->dead: declared 2 times"):
        Simulator(parsing(Parser(), ListSource(1)).connect("parser", "dead"), 0)
    with pytest.raises(GraphError, match=r"there is no node 'nowhere'"):
        Simulator(Graph("g").add("a", ListSource(1)).add("b", Parser()).connect("a", "b", onError="nowhere"), 0)
    with pytest.raises(GraphError, match=r"onError is a int"):
        Simulator(Graph("g").add("a", ListSource(1)).add("b", Parser()).connect("a", "b", onError=7), 0)  # type: ignore[arg-type]


# ---------------------------------------------------------------- what is known of a message


class Forwards(Node):
    """Sends what it gets, from whichever input comes first."""

    def onMessage(self, message: Any, context: Context) -> None:
        context.send(message)


class Stamps(Node):
    """Sends what it gets with the time, which is another after each restart."""

    def onMessage(self, message: int, context: Context) -> None:
        context.send((message, context.now))


class StampParser(Node):
    """Fails on some stamped numbers."""

    def onMessage(self, message: tuple[int, float], context: Context) -> None:
        if message[0] in _BAD:
            raise ValueError(f"cannot parse {message[0]}")
        context.send(message[0])


def sorted_letters(history: History) -> list[tuple[Any, str]]:
    assert history.outcome is Outcome.FINISHED, history.reason
    return sorted((each["message"], each["error"].splitlines()[0]) for each in history.output("dead"))


@given(seed=st.integers(0, 10_000), poison_after=st.integers(1, 3), interval=st.sampled_from([None, 0.1]))
@settings(deadline=None)
def test_no_good_message_is_set_aside_behind_two_inputs(seed: int, poison_after: int, interval: float | None) -> None:
    """A restart mixes the inputs otherwise, so that another message has the number of the one that failed."""
    graph = Graph("g").add("a", ListSource(*range(20))).add("b", ListSource(*range(100, 110)))
    graph.add("mix", Forwards()).add("parser", Parser()).add("out", ListSink()).add("dead", ListSink())
    graph.connect("a", "mix").connect("b", "mix").connect("mix", "parser", onError="dead").connect("parser", "out")
    policy = RestartPolicy(poisonAfter=poison_after)
    history = Simulator(graph, seed, snapshotInterval=interval, restartPolicy=policy).run()
    assert sorted_letters(history) == [
        (bad, f"onMessage of parser[0]: ValueError: cannot parse {bad}") for bad in sorted(_BAD)
    ]
    assert sorted(history.output("out")) == [*_GOOD, *range(100, 110)]


@given(seed=st.integers(0, 10_000), poison_after=st.integers(1, 4))
@settings(deadline=None)
def test_a_message_that_holds_its_time_is_set_aside(seed: int, poison_after: int) -> None:
    """Its content is another after each restart, so it is known by its number."""
    graph = Graph("g").add("numbers", ListSource(*range(20))).add("stamps", Stamps()).add("parser", StampParser())
    graph.add("out", ListSink()).add("dead", ListSink())
    graph.connect("numbers", "stamps").connect("stamps", "parser", onError="dead").connect("parser", "out")
    policy = RestartPolicy(poisonAfter=poison_after)
    history = Simulator(graph, seed, restartPolicy=policy).run()
    assert history.outcome is Outcome.FINISHED, history.reason
    assert sorted(history.output("out")) == _GOOD
    assert sorted(each["message"][0] for each in history.output("dead")) == sorted(_BAD)


@given(seed=st.integers(0, 10_000), parallelism=st.sampled_from([1, 3, 6]))
@settings(deadline=None)
def test_bad_messages_of_many_subtasks_do_not_add_up(seed: int, parallelism: int) -> None:
    """Under the default policy: the failures of each channel are a row of their own."""
    source = ListSource(*(number for number in (3, 0) for _ in range(parallelism)))
    graph = Graph("g").add("numbers", source, parallelism=parallelism).add("parser", Parser(), parallelism=parallelism)
    graph.add("out", ListSink()).add("dead", ListSink())
    graph.connect("numbers", "parser", onError="dead").connect("parser", "out")
    history = Simulator(graph, seed, workers=parallelism).run()
    assert [message for message, _ in sorted_letters(history)] == [3] * parallelism
    assert history.output("out") == [0] * parallelism


# ---------------------------------------------------------------- failures that pass

#: {what a hook was called with: calls}, which no rollback reaches
_TRIED: Counter[Any] = Counter()


class FailsTwice(Node):
    """Handles each message, or list of messages, at the third call."""

    def __init__(self) -> None:
        self.handled = 0

    def onMessage(self, message: Any, context: Context) -> None:
        _TRIED[self.handled] += 1
        if _TRIED[self.handled] <= 2:
            raise OSError("the service does not answer")
        self.handled += 1
        context.send(message)

    def snapshotState(self, snapshotId: int, timestamp: float) -> int:
        return self.handled

    def restoreState(self, state: int) -> None:
        self.handled = state


@pytest.mark.parametrize("on_error", ["dead", None])
def test_equal_messages_that_fail_for_a_while_are_handled(on_error: str | None) -> None:
    """Each of them fails twice in a row and no more, and nothing is published between them."""
    _TRIED.clear()
    graph = Graph("g").add("numbers", ListSource(*[7] * 5)).add("parser", FailsTwice())
    graph.add("out", ListSink()).add("dead", ListSink())
    graph.connect("numbers", "parser", onError=on_error).connect("parser", "out")
    if on_error is None:
        graph.connect("numbers", "dead")
    policy = RestartPolicy(maxRestarts=None, poisonAfter=3)
    history = Simulator(graph, [], snapshotInterval=None, restartPolicy=policy).run()
    assert history.outcome is Outcome.FINISHED, history.reason
    assert history.output("out") == [7] * 5


class FailsAtSevens(Node):
    """Fails once at each seven, and knows them by how many it has handled."""

    def __init__(self) -> None:
        self.sevens = 0

    def onMessage(self, message: Any, context: Context) -> None:
        if message == 7:
            self.sevens += 1
            _TRIED[self.sevens] += 1
            if _TRIED[self.sevens] == 1:
                raise OSError("the service does not answer")
        context.send(message)

    def snapshotState(self, snapshotId: int, timestamp: float) -> int:
        return self.sevens

    def restoreState(self, state: int) -> None:
        self.sevens = state


@pytest.mark.parametrize("on_error", [True, False])
@pytest.mark.parametrize("seed", range(20))
def test_equal_messages_behind_two_inputs_do_not_add_up(seed: int, on_error: bool) -> None:
    """Each fails once, and has another number after the restart."""
    _TRIED.clear()
    graph = Graph("g").add("a", ListSource(7, 7, 7)).add("b", ListSource(*range(100, 130))).add("mix", Forwards())
    graph.add("parser", FailsAtSevens()).add("out", ListSink()).add("dead", ListSink())
    graph.connect("a", "mix").connect("b", "mix").connect("parser", "out")
    graph.connect("mix", "parser", onError="dead" if on_error else None)
    if not on_error:
        graph.connect("a", "dead")
    policy = RestartPolicy(maxRestarts=None, poisonAfter=3)
    history = Simulator(graph, seed, snapshotInterval=None, restartPolicy=policy).run()
    assert history.outcome is Outcome.FINISHED, history.reason
    assert sorted(history.output("out")) == [7, 7, 7, *range(100, 130)]


class Numbers(ReplayableSource):
    """Batches of three numbers."""

    def partitions(self) -> list[str]:
        return ["numbers"]

    def first(self, partition: str) -> int:
        return 0

    def available(self, partition: str, start: int) -> Any:
        return END if start == 12 else start + 3

    def read(self, partition: str, start: int, stop: int, context: Context) -> None:
        context.send(batch(range(start, stop)))


@given(seed=st.integers(0, 10_000))
@settings(deadline=None)
def test_rows_that_fail_for_a_while_are_replayed_as_they_were_taken(seed: int) -> None:
    """A node that gets them as messages takes some of a batch in a step, also where one is a suspect."""
    _TRIED.clear()
    graph = Graph("g").add("rows", Numbers()).add("parser", FailsAtSome()).add("out", ListSink())
    graph.connect("rows", "parser", schema="n long").connect("parser", "out")
    policy = RestartPolicy(maxRestarts=99, poisonAfter=4)
    simulator = Simulator(graph, seed, mode="inputLogging", faults=1, snapshotInterval=0.05, restartPolicy=policy)
    history = simulator.run()
    assert history.outcome is not Outcome.FINISHED or [row["n"] for row in history.output("out")] == [*range(12)]


class FailsAtSome(Node):
    """Fails at some rows for a while, and at no replay."""

    deterministic = True

    def onMessage(self, message: Any, context: Context) -> None:
        _TRIED[message["n"]] += 1
        if message["n"] in (8, 9) and _TRIED[message["n"]] <= message["n"] - 7:
            raise OSError("the service does not answer")
        context.send(message)


class RowWriter(Node):
    """Fails on rows with 0, and once on a row of its own while the service is down."""

    def onBatch(self, batch: pa.RecordBatch, context: Context) -> None:
        numbers = batch.column("n").to_pylist()
        _TRIED[tuple(numbers)] += 1
        if 0 in numbers:
            raise ValueError("cannot parse 0")
        if _TRIED[tuple(numbers)] == 1:
            raise OSError("the service does not answer")
        for number in numbers:
            context.send(number)


@pytest.mark.parametrize("rows", [2, 4])
def test_a_row_that_fails_once_is_not_set_aside(rows: int) -> None:
    """Nor is one whose half was tried alone: each row fails as often as a message does."""
    _TRIED.clear()
    graph = parsing(RowWriter(), ListSource(batch(range(rows))), schema="n long")
    policy = RestartPolicy(maxRestarts=50, poisonAfter=4)
    history = Simulator(graph, [], restartPolicy=policy).run()
    assert [message for message, _ in sorted_letters(history)] == [{"n": 0}]
    assert sorted(history.output("out")) == [*range(1, rows)]
    assert _TRIED[(0,)] == 4


class AsSoonAsPossible(Node):
    """Registers a timer of one time for each message, which fires well at its second call."""

    def __init__(self) -> None:
        self.last: Any = None

    def onMessage(self, message: Any, context: Context) -> None:
        self.last = message
        context.registerTimer(0.0)

    def onTimer(self, at: float, context: Context) -> None:
        _TRIED[self.last] += 1
        if _TRIED[self.last] == 1:
            raise OSError("the service does not answer")
        context.send(self.last)

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return self.last

    def restoreState(self, state: Any) -> None:
        self.last = state


@pytest.mark.parametrize("key", [None, key_of])
@pytest.mark.parametrize("mode", ["markers", ChannelLogs(interval=0.3)], ids=["markers", "channelLogs"])
def test_a_timer_that_fired_well_begins_anew(key: Any, mode: Any) -> None:
    """Though the next one has the same time and the same key."""
    _TRIED.clear()
    items = [each for number in range(5) for each in (5 * number, Pause(3.0))]
    graph = Graph("g").add("numbers", ListSource(*items)).add("node", AsSoonAsPossible()).add("out", ListSink())
    graph.connect("numbers", "node", key=key).connect("node", "out")
    interval = 0.5 if mode == "markers" else None
    policy = RestartPolicy(maxRestarts=20, poisonAfter=2)
    history = Simulator(graph, [], snapshotInterval=interval, mode=mode, restartPolicy=policy).run()
    assert history.outcome is Outcome.FINISHED, history.reason
    assert history.output("out") == [0, 5, 10, 15, 20]


class FailsAtLast(AsSoonAsPossible):
    """The timer of the last message fires badly, those before it fire well."""

    def onTimer(self, at: float, context: Context) -> None:
        if self.last == 4:
            raise ValueError("no alarm")
        context.send(self.last)


@pytest.mark.parametrize("interval", [None, 0.5, 7.0])
def test_equal_timers_that_fire_well_before_it_hide_no_timer(interval: float | None) -> None:
    """Each restart repeats them, and yet the last one fails three times in a row."""
    items = [each for number in range(5) for each in (number, Pause(3.0))]
    graph = Graph("g").add("numbers", ListSource(*items)).add("node", FailsAtLast()).add("out", ListSink())
    graph.connect("numbers", "node").connect("node", "out")
    history = Simulator(graph, [], snapshotInterval=interval, restartPolicy=RestartPolicy(maxRestarts=99)).run()
    assert history.outcome is Outcome.FAILED
    assert "the timer of node[0] at 0.000000 failed 3 times in a row" in history.reason


class AtTen(Node):
    """A timer of each key at one time, which fires well at its second call."""

    def onMessage(self, message: Any, context: Context) -> None:
        context.registerTimer(10.0)

    def onTimer(self, at: float, context: Context) -> None:
        _TRIED[context.key] += 1
        if _TRIED[context.key] == 1:
            raise OSError("the service does not answer")
        context.send(context.key)


def test_timers_of_long_keys_are_told_apart() -> None:
    """Where the shown keys are equal, because they differ in the middle."""
    _TRIED.clear()
    keys = ["x" * 3_000 + str(number) + "y" * 3_000 for number in range(4)]
    graph = Graph("g").add("keys", ListSource(*keys)).add("node", AtTen()).add("out", ListSink())
    graph.connect("keys", "node", key=same).connect("node", "out")
    history = Simulator(graph, [], snapshotInterval=0.5, restartPolicy=RestartPolicy(poisonAfter=2)).run()
    assert history.outcome is Outcome.FINISHED, history.reason
    assert sorted(history.output("out")) == keys


def same(message: Any) -> Any:
    return message


# ---------------------------------------------------------------- what the kit says of them


class Table(Node):
    """A last node that is no sink."""

    def __init__(self) -> None:
        self.rows: list[int] = []

    def onMessage(self, message: int, context: Context) -> None:
        if message in _BAD:
            raise ValueError(f"cannot parse {message}")
        self.rows.append(message)

    def snapshotState(self, snapshotId: int, timestamp: float) -> list[int]:
        return self.rows[:]

    def restoreState(self, state: list[int]) -> None:
        self.rows = state


class ForgetsTotal(Node):
    """Wrong: its total is not saved."""

    def __init__(self) -> None:
        self.total = 0

    def onMessage(self, message: int, context: Context) -> None:
        self.total += message
        context.send(self.total)

    def snapshotState(self, snapshotId: int, timestamp: float) -> None:
        return None

    def restoreState(self, state: None) -> None:
        pass


def ending_in_table(node: Node | None) -> Graph:
    graph = Graph("g").add("numbers", ListSource(5, 3, 7)).add("node", node or Forwards())
    graph.add("table", Table()).add("dead", ListSink())
    return graph.connect("numbers", "node").connect("node", "table", onError="dead")


def test_a_message_that_was_set_aside_was_not_handled() -> None:
    """A dead letter is no output of the node. A place outside got the message only by the calls that failed."""
    history = Simulator(ending_in_table(None), 0, restartPolicy=RestartPolicy(poisonAfter=2)).run()
    assert history.output("table") == history.snapshots[-1].node("table").state == [5, 7]
    assert [letter["message"] for letter in history.output("dead")] == [3]
    assert everHandled(history, "table").count(3) == 2


def test_a_last_node_with_dead_letters_is_compared() -> None:
    """Its dead-letter edge is no output of the node."""
    checkRecovery(ending_in_table(None), examples=10)
    with pytest.raises(CheckFailed, match="table: "):
        checkRecovery(ending_in_table(ForgetsTotal()))
