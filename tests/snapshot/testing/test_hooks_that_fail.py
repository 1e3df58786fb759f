"""Every hook of user code, with every bad error and every bad return value: named, bounded, and nothing is lost.

Each run also fails once by plan, so that hooks of a restore are called. Hooks fail once, so the run goes on to its end
and its output shows whether anything was lost or doubled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from cutline import END, Context, Graph, Node, Source
from cutline.snapshot.coordinator.run_state import Outcome
from cutline.snapshot.error_text import REPORT_CHARACTERS_MAX
from cutline.snapshot.errors import NodeError, RestoreRefused
from cutline.snapshot.node import End
from cutline.snapshot.testing.history import History
from cutline.snapshot.trace_events import Kind
from cutline.testing import ListSink, Simulator
from tests.run_size import FACTOR
from tests.snapshot.testing.bad_user_code import (
    NO_KEYS,
    NO_TIMES,
    NOT_STORABLE,
    RAISES,
    NoTruth,
    Unsayable,
    failing_iterator,
)

ITEMS = 6
PLANNED = "poll of numbers[0]: RuntimeError: by plan"
SCHEMA = pa.schema({"n": pa.int64()})


@dataclass
class _Fault:
    """The fault of the present run. Nodes find it here, because each incarnation unpickles new nodes."""

    place: str = ""  #: "node hook", or "" for none
    act: Callable[[], Any] = lambda: None
    is_planned_due: bool = True  #: the failure that each run has
    passes: int = 0  #: calls of the place that pass before the fault
    fired: int = 0


_fault = _Fault()


def _call(place: str, good: Any = None) -> Any:
    """Raise or return what the fault says if the fault is due at `place`, else return `good`."""
    if place != _fault.place or _fault.fired:
        return good
    if _fault.passes:
        _fault.passes -= 1
        return good
    _fault.fired += 1
    return _fault.act()


class _Hooks(Node):
    """The hooks that every node may have."""

    called = ""

    def __init__(self) -> None:
        self.count = 0

    def __setstate__(self, state: Any) -> None:
        self.__dict__.update(state)
        _call(f"{self.called} unpickled")

    def restoreState(self, state: Any) -> Any:
        self.count = state
        return _call(f"{self.called} restoreState")

    def open(self, context: Context) -> Any:
        return _call(f"{self.called} open")

    def onStart(self, context: Context) -> Any:
        return _call(f"{self.called} onStart")

    def onTimer(self, at: float, context: Context) -> Any:
        return _call(f"{self.called} onTimer")

    def onEnd(self, context: Context) -> Any:
        return _call(f"{self.called} onEnd")

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return _call(f"{self.called} snapshotState", self.count)

    def onPublished(self, snapshotId: int) -> Any:
        return _call(f"{self.called} onPublished")

    def close(self) -> Any:
        return _call(f"{self.called} close")


class _Numbers(_Hooks, Source):
    """Sends a few numbers, and fails once by plan."""

    called = "numbers"
    guarantee = "exactly_once"

    def partitions(self) -> Sequence[str]:
        return _call("numbers partitions", ("only",))  # type: ignore[no-any-return]

    def poll(self, context: Context) -> float | End | None:
        if self.count == ITEMS:
            return END
        if self.count == ITEMS // 2 and _fault.is_planned_due:
            _fault.is_planned_due = False
            raise RuntimeError("by plan")
        wait = _call("numbers poll", 0.3)
        context.send({"n": self.count})
        self.count += 1
        return wait  # type: ignore[no-any-return]


class _Middle(_Hooks):
    """Passes messages on, and sets a timer for each."""

    called = "middle"

    def onMessage(self, message: Any, context: Context) -> Any:
        self.count += 1
        context.registerTimer(_call("middle registerTimer", context.now + 0.1))
        context.deleteTimer(_call("middle deleteTimer", 0.0))
        context.send(message["n"])
        return _call("middle onMessage")


class _Batches(_Hooks):
    """Passes the rows of batches on."""

    called = "batches"

    def onBatch(self, batch: pa.RecordBatch, context: Context) -> Any:
        self.count += batch.num_rows
        for row in batch.to_pylist():
            context.send(row["n"])
        return _call("batches onBatch")


class _Ledger(_Hooks, ListSink):
    """Commits in two phases."""

    called = "ledger"

    def __init__(self) -> None:
        _Hooks.__init__(self)
        ListSink.__init__(self)

    def open(self, context: Context) -> Any:
        ListSink.open(self, context)
        return _call("ledger open")

    def onMessage(self, message: Any, context: Context) -> Any:
        ListSink.onMessage(self, message, context)
        return _call("ledger onMessage")

    def prepareCommit(self, snapshotId: int) -> Any:
        _call("ledger prepareCommit")
        return ListSink.prepareCommit(self, snapshotId)

    def commit(self, snapshotId: int, prepared: Any) -> None:
        _call("ledger commit")
        ListSink.commit(self, snapshotId, prepared)

    def discardUncommitted(self, context: Context) -> Any:
        return _call("ledger discardUncommitted")

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return _call("ledger snapshotState", ListSink.snapshotState(self, snapshotId, timestamp))

    def restoreState(self, state: Any) -> Any:
        ListSink.restoreState(self, state)
        return _call("ledger restoreState")


def _key(message: Any) -> Any:
    return _call("numbers key", message["n"])


def _keep(message: Any) -> Any:
    return _call("middle filter", True)


def _same(message: Any) -> Any:
    return _call("middle map", message)


def _each(message: Any) -> Any:
    return _call("middle flatMap", [message])


def _graph() -> Graph:
    graph = Graph("g")
    numbers = graph.source("numbers", _Numbers())
    middle = numbers.keyBy(_key).process("middle", _Middle()).filter(_keep).map(_same).flatMap(_each)
    return middle.union(numbers.process("batches", _Batches(), schema=SCHEMA)).to("ledger", _Ledger())


def _run(place: str, act: Callable[[], Any], passes: int = 0) -> History:
    _fault.place, _fault.act, _fault.passes, _fault.fired, _fault.is_planned_due = place, act, passes, 0, True
    return Simulator(_graph(), 1, snapshotInterval=0.5, validates=False).run()


def _texts(history: History, kind: Kind) -> list[str]:
    return [event.text for event in history.events if event.kind is kind]


def _named(history: History, kind: Kind, *words: str) -> None:
    """Assert that the fault happened, and was reported once, with these words, as text that any console can show."""
    assert _fault.fired == 1
    texts = [text for text in _texts(history, kind) if all(word in text for word in words)]
    assert len(texts) == 1, (words, [text[:300] for text in _texts(history, kind)])
    assert len(texts[0]) <= REPORT_CHARACTERS_MAX + 200
    texts[0].encode()
    assert all(character.isprintable() or character in "\n\t\xa0" for character in texts[0]), ascii(texts[0])


def _nothing_is_lost(history: History) -> None:
    assert history.outcome is Outcome.FINISHED, history.reason[:500]
    assert sorted(history.output("ledger")) == sorted(2 * list(range(ITEMS)))


#: places whose errors roll the run back: "node hook" of each hook that the node has
_HOOKS = (
    *(f"{node} {hook}" for node in ("numbers", "middle", "batches", "ledger") for hook in ("open", "onStart")),
    *(f"{node} {hook}" for node in ("numbers", "middle", "batches", "ledger") for hook in ("restoreState",)),
    *(f"{node} onPublished" for node in ("numbers", "middle", "batches", "ledger")),
    *(f"{node} onEnd" for node in ("middle", "batches", "ledger")),
    *("numbers poll", "middle onMessage", "middle onTimer", "batches onBatch"),
    *("ledger onMessage", "ledger prepareCommit", "ledger commit", "ledger discardUncommitted"),
)


def _giving(value: Any) -> Callable[[], Any]:
    return lambda: value


def _errors(place: str) -> list[tuple[str, Callable[[], Any]]]:
    """All errors; of a smaller run a share, which is another one for each place."""
    stride = max(1, round(1 / FACTOR))
    return list(RAISES.items())[sum(place.encode()) % stride :: stride]


def test_nothing_fails_without_a_fault() -> None:
    """The one failure is the planned one, and each hook is called."""
    history = _run("", lambda: None)
    _nothing_is_lost(history)
    assert [text.partition("\n")[0] for text in _texts(history, Kind.FAILED)] == [PLANNED, "a peer is lost"]
    for place in _HOOKS:
        _run(place, lambda: None)
        assert _fault.fired == 1, place


@pytest.mark.parametrize("place", _HOOKS)
def test_whatever_a_hook_raises_is_the_nodes_error(place: str) -> None:
    """Node, hook and class of the error are named; then the run goes on, and nothing is lost."""
    node, hook = place.split()
    for name, act in _errors(place):
        history = _run(place, act)
        is_refusal = (hook, name) == ("restoreState", "RestoreRefused")  # the node's own word to the user
        where = f"{node}[0]: a user's own" if is_refusal else f"{hook} of {node}[0]: {name.partition(',')[0]}: "
        _named(history, Kind.FAILED, where)
        _nothing_is_lost(history)


@pytest.mark.parametrize("node", ["numbers", "middle", "batches", "ledger"])
def test_a_node_that_refuses_a_snapshot_ends_the_run(node: str) -> None:
    """A refusal is met again by the second start, and is the reason of the run's end."""

    def refuse() -> None:
        _fault.fired = 0
        raise RestoreRefused("a user's own")

    history = _run(f"{node} restoreState", refuse)
    assert (history.outcome, history.reason) == (Outcome.FAILED, f"{node}[0]: a user's own")


@pytest.mark.parametrize(
    ("place", "where", "passes"),
    [
        ("middle map", "map of middle[0]->ledger: ", 2),
        ("middle filter", "filter of middle[0]->ledger: ", 2),
        ("middle flatMap", "flatMap of middle[0]->ledger: ", 2),
        ("numbers key", "key of numbers[0]->middle: a dict cannot be spread: ", 0),
        # The sender reads the key of each message before the receiver does.
        ("numbers key", "key of numbers[0]->middle[0]: ", 1),
    ],
)
def test_whatever_a_function_raises_is_named(place: str, where: str, passes: int) -> None:
    """A function of an edge is named by its kind and the edge, inside the hook that sent or handled the message."""
    for name, act in _errors(place):
        history = _run(place, act, passes)
        _named(history, Kind.FAILED, f"NodeError: {where}{name.partition(',')[0]}: ")
        _nothing_is_lost(history)


@pytest.mark.parametrize("node", ["numbers", "middle", "batches", "ledger"])
def test_a_failing_snapshot_state_aborts_one_snapshot(node: str) -> None:
    """Whatever it raises, or returns that cannot be stored, is the reason of the abort, and the run goes on."""
    place = f"{node} snapshotState"
    for name, act in [*_errors(place), *((":", each) for each in NOT_STORABLE)]:
        history = _run(place, act)
        _named(history, Kind.ABORTED, f"snapshotState of {node}[0]: ", name.partition(",")[0])
        _nothing_is_lost(history)


@pytest.mark.parametrize("node", ["numbers", "middle", "batches", "ledger"])
def test_a_failing_close_is_noted(node: str) -> None:
    """It is in the history, and the run goes on."""
    place = f"{node} close"
    for name, act in _errors(place):
        history = _run(place, act)
        _named(history, Kind.FAILED, f"close of {node}[0]: {name.partition(',')[0]}: ")
        _nothing_is_lost(history)


@pytest.mark.parametrize("node", ["numbers", "middle", "batches", "ledger"])
def test_a_node_that_cannot_be_unpickled_is_named(node: str) -> None:
    """Its class may raise anything while a worker unpickles the node."""
    place = f"{node} unpickled"
    for name, act in _errors(place):
        history = _run(place, act, passes=node == "numbers")  # its partitions are listed by another copy before
        _named(history, Kind.FAILED, f"{node}[0]: its node cannot be unpickled here: {name.partition(',')[0]}: ")
        _nothing_is_lost(history)


def test_partitions_that_cannot_be_listed_are_named() -> None:
    """Nothing starts then, so the error is raised where the run is submitted."""
    lists: tuple[Any, ...] = (
        None,
        5,
        "abc",
        b"abc",
        [1],
        [""],
        ["a", "a"],
        ["\ud800"],
        [None],
        NoTruth(),
        [Unsayable()],
    )
    wrong: list[tuple[str, Callable[[], Any]]] = [*RAISES.items(), ("", failing_iterator)]
    for name, act in [*wrong, *(("", _giving(each)) for each in lists)]:
        with pytest.raises(NodeError, match=r"^partitions of numbers: ") as raised:
            _run("numbers partitions", act)
        assert name.partition(",")[0] in str(raised.value)
        assert len(str(raised.value)) <= REPORT_CHARACTERS_MAX + 200


@pytest.mark.parametrize(
    ("place", "where"),
    [
        ("numbers poll", "poll of numbers[0]: "),
        ("middle registerTimer", "onMessage of middle[0]: NodeError: middle[0]: registerTimer: "),
        ("middle deleteTimer", "onMessage of middle[0]: NodeError: middle[0]: deleteTimer: "),
    ],
)
def test_what_is_no_time_is_refused(place: str, where: str) -> None:
    """No value makes a run wait for ever, and none escapes the machine."""
    for value in NO_TIMES:
        history = _run(place, _giving(value))
        _named(history, Kind.FAILED, where, "seconds ")
        _nothing_is_lost(history)


def test_what_is_no_key_is_refused() -> None:
    """Sender and edge are named."""
    for value in NO_KEYS:
        history = _run("numbers key", _giving(value))
        _named(
            history, Kind.FAILED, "poll of numbers[0]: NodeError: key of numbers[0]->middle: a dict cannot be spread"
        )
        _nothing_is_lost(history)


def test_what_functions_return_wrongly_is_refused() -> None:
    """A filter's result has a truth, a flatMap's can be iterated, and a map's can be sent."""
    for place, act in (
        ("filter", NoTruth),
        ("flatMap", lambda: None),
        ("flatMap", lambda: 5),
        ("flatMap", failing_iterator),
    ):
        history = _run(f"middle {place}", act, 2)
        _named(history, Kind.FAILED, f"NodeError: {place} of middle[0]->ledger: ")
        _nothing_is_lost(history)
    for act in NOT_STORABLE:
        history = _run("middle map", act, 2)
        _named(history, Kind.FAILED, "onMessage of middle[0]: ")
        _nothing_is_lost(history)


@pytest.mark.parametrize("place", [place for place in _HOOKS if place.split()[1] not in ("poll", "prepareCommit")])
def test_what_other_hooks_return_means_nothing(place: str) -> None:
    """Their contract has no return value, so none is read."""
    for value in (float("nan"), END, [1], NoTruth()):
        _nothing_is_lost(_run(place, _giving(value)))
        assert _fault.fired == 1


class _Poison:
    """A state that can be unpickled when it is captured, and not when it is restored."""

    def __reduce__(self) -> Any:
        return _unpickled, ()


def _unpickled() -> int:
    _fault.place, _fault.fired = ("", 0) if _fault.is_planned_due else ("state", 0)
    return _call("state", 0)  # type: ignore[no-any-return]


class _Poisoned(ListSink):
    """Saves a state that nobody can read."""

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return _Poison()


def test_a_state_that_cannot_be_unpickled_ends_the_run_by_name() -> None:
    """A retry is useless, so the run fails, and the reason names the node."""
    for name, act in RAISES.items():
        _fault.act, _fault.is_planned_due = act, True
        graph = Graph("g").add("numbers", _Numbers()).add("ledger", _Poisoned()).connect("numbers", "ledger")
        history = Simulator(graph, 1, snapshotInterval=0.2).run()
        assert history.outcome is Outcome.FAILED
        assert "ledger[0]: a stored state cannot be read here: " in history.reason
        assert f": {name.partition(',')[0]}: " in history.reason
