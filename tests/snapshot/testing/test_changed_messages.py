"""Messages in flight of a program whose class of messages is gone or reads otherwise: each way on is tried.

100 of 300 messages in flight are of a class `Order`. The next program has `Bill` in its place.
"""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pytest

from cutline import ChannelLogs, Graph, GraphError, InputLogging, Node, Undecodable
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.coordinator.run_state import Outcome
from cutline.snapshot.editing.mended_snapshot import MendedSnapshot
from cutline.snapshot.stored.memory_files import MemoryFiles
from cutline.snapshot.stored.run_store import RunStore
from cutline.snapshot.stored.snapshot import Snapshot
from cutline.snapshot.testing.history import History
from cutline.snapshot.testing.steps import Deliver, Initiate, Poll, Quiesce, Step
from cutline.testing import ListSink, ListSource, Simulator
from tests.snapshot.channel.changed_classes import Program
from tests.snapshot.testing.replayed import Slices

_SOURCE = """
@dataclass
class NAME:
    number: int
    FIELD: int

def made(number): return number if number % 3 else NAME(number, 10 * number)

class Numbers(Source):
    def __init__(self): self.sent = 0
    def poll(self, context):
        if self.sent == COUNT: return END
        context.send(made(self.sent))
        self.sent += 1
    def snapshotState(self, snapshotId, timestamp): return self.sent
    def restoreState(self, state): self.sent = state

class Taker(Node):
    def onMessage(self, message, context):
        context.send(message if type(message) is int else (type(message).__name__, message.number, message.FIELD))
HOOK
"""

#: Messages that are sent before the snapshot, of which none is processed.
_IN_FLIGHT = 300

_ORDERS = [number for number in range(_IN_FLIGHT) if number % 3 == 0]

_EDGE = ("numbers", "taker")


def program(
    name: str,
    field: str,
    *,
    count: int = _IN_FLIGHT + 3,
    hook: str = "",
    onError: str | None = None,
    key: Any = None,
    parallelism: int = 1,
) -> Program:
    """A program whose messages are numbers, and each third an object of class `name` with a field `field`."""
    source = _SOURCE.replace("NAME", name).replace("FIELD", field).replace("COUNT", str(count)).replace("HOOK", hook)
    made = Program("from cutline import END\n" + source, name)
    graph = made.graph
    graph.nodes.clear()
    graph.add("numbers", made.names["Numbers"]()).add("taker", made.names["Taker"](), parallelism=parallelism)
    graph.add("out", ListSink())
    if onError is not None:
        graph.add(onError, ListSink())
    graph.connect("numbers", "taker", onError=onError, key=key).connect("taker", "out")
    return made


@pytest.fixture(scope="module")
def stored() -> dict[str, bytes]:
    """The files of a run with the snapshot."""
    return simulated({}, [*(Poll("numbers"),) * _IN_FLIGHT, Initiate(1, "numbers"), *markers()])


def simulated(files: dict[str, bytes], steps: list[Step], hook: str = "") -> dict[str, bytes]:
    """Take steps of a run of the first program. Return the files of its store."""
    simulator = Simulator(program("Order", "cents", count=10**6, hook=hook).graph, [], files=files)
    for step in steps:
        simulator.take(step)
    return files


def after(stored: dict[str, bytes], graph: Graph, **settings: Any) -> History:
    """The run of another program from the snapshot on."""
    return Simulator(graph, 1, files=dict(stored), snapshotInterval=0.05, **settings).run()


def snapshot_in(files: dict[str, bytes], codec: Codec) -> Snapshot:
    """The newest snapshot."""
    return RunStore(MemoryFiles(files), "g").read_snapshots(codec)[-1]


def number_of(message: Any) -> int:
    """The key of a message."""
    number: int = message if type(message) is int else message.number
    return number


def markers(takers: int = 1, source: str = "numbers") -> list[Step]:
    """The steps that bring the markers of a snapshot to all nodes, before the messages."""
    names = ["taker"] if takers == 1 else [f"taker[{index}]" for index in range(takers)]
    steps: list[Step] = []
    for edge in (*((source, name) for name in names), *((name, "out") for name in names)):
        steps += [Deliver(*edge, marker=True), Quiesce()]
    return steps


def numbers_of(messages: list[Any]) -> list[int]:
    """The numbers of messages, whether they are objects or not."""
    return [each if type(each) is int else each[1] for each in messages]


def test_a_class_that_is_gone_refuses_the_restore(stored: dict[str, bytes]) -> None:
    """By edge, number and name, with the ways out, and before any message is processed."""
    history = after(stored, program("Bill", "cents").graph)
    assert history.outcome is Outcome.FAILED
    for text in ("numbers[0]->taker[0]: message 1 in flight", "__main__.Order", "; 99 messages more", "graph.alias"):
        assert text in history.reason
    assert history.handled("taker") == []


def test_an_alias_gives_objects_of_the_new_class(stored: dict[str, bytes]) -> None:
    """All 300 messages are processed, each once, and those that were objects are of the new class."""
    made = program("Bill", "cents")
    made.graph.alias("__main__.Order", made.names["Bill"])
    rows = after(stored, made.graph).output("out")
    assert numbers_of(rows) == list(range(_IN_FLIGHT + 3))
    assert [row for row in rows if type(row) is tuple][:2] == [("Bill", 0, 0), ("Bill", 3, 30)]


def test_messages_of_a_class_that_is_gone_go_to_the_dead_letter_edge(stored: dict[str, bytes]) -> None:
    """Without a restart, each once; the others are processed in order."""
    history = after(stored, program("Bill", "cents", onError="dead").graph, allow=("changedGraph",))
    assert history.outcome is Outcome.FINISHED, history.reason
    assert [row for row in numbers_of(history.output("out")) if row < _IN_FLIGHT] == [
        number for number in range(_IN_FLIGHT) if number % 3
    ]
    letters = history.output("dead")
    assert [letter["sequenceNumber"] for letter in letters] == [number + 1 for number in _ORDERS]
    assert {type(letter["message"]) for letter in letters} == {Undecodable}
    assert {letter["message"].names for letter in letters} == {("__main__.Order",)}
    assert len(history.origins) == 2, "one incarnation each, of the program before and of this one"


_RENAMES = """
    messageVersion = 2
    def migrateMessage(self, message, fromVersion):
        assert fromVersion == 1
        return message if type(message) is int else Order(message.number, message.cents / 100)
"""


def test_a_message_of_an_older_version_is_migrated_before_the_first_is_processed(stored: dict[str, bytes]) -> None:
    """One for one. Messages that the program sends itself are not migrated."""
    history = after(stored, program("Order", "cents", hook=_RENAMES).graph)
    rows = history.output("out")
    assert numbers_of(rows) == list(range(_IN_FLIGHT + 3))
    assert [row[2] for row in rows if type(row) is tuple] == [*(number / 10 for number in _ORDERS), _IN_FLIGHT * 10]


@pytest.mark.parametrize(
    ("hook", "text"),
    [
        (
            "    messageVersion = 2",
            "messages of version 1 in the snapshot, and its messageVersion is 2: define m",
        ),
        (
            _RENAMES.replace("return", "return 1 / 0 #"),
            r"migrateMessage\(Order\(number=0, cents=0\), 1\): ZeroDivisionError",
        ),
        (_RENAMES.replace("return message", "return lambda: message"), "cannot be stored"),
    ],
)
def test_a_migration_that_fails_refuses_the_restore(stored: dict[str, bytes], hook: str, text: str) -> None:
    """By channel and message."""
    history = after(stored, program("Order", "cents", hook=hook).graph)
    assert history.outcome is Outcome.FAILED
    assert re.search(text, history.reason), history.reason


def test_a_newer_version_is_refused(stored: dict[str, bytes]) -> None:
    """A program never gets messages of a version that it does not know."""
    files = simulated(dict(stored), [Initiate(2, "numbers"), *markers()], hook=_RENAMES)
    history = after(files, program("Order", "cents").graph)
    assert history.outcome is Outcome.FAILED
    assert "messages of version 2 in the snapshot, and its messageVersion is 1" in history.reason


def test_messages_are_dropped_and_replaced_by_number(stored: dict[str, bytes]) -> None:
    """Without their class: neither is decoded, and `where` never sees one."""
    made = program("Bill", "cents")
    snapshot = snapshot_in(dict(stored), made.codec)
    editor = MendedSnapshot(snapshot)
    listed = editor.messages(_EDGE)
    (channel,) = {each.channel for each in listed}
    numbers = [each.number for each in listed if isinstance(each.message, Undecodable)]
    assert (len(listed), numbers) == (_IN_FLIGHT, [number + 1 for number in _ORDERS])
    seen: list[Any] = []
    with pytest.raises(GraphError, match="none of 300 messages in flight; 100 cannot be decoded here: `messages`"):
        editor.dropMessages(_EDGE, seen.append)
    assert len(seen) == 200
    place = (channel.source, channel.target)
    editor.replaceMessages(place, numbers=numbers[:50], replacement=lambda message: -len(message.names))
    editor.dropMessages(place, numbers=numbers[50:])
    kept = [each.message for each in editor.messages(_EDGE)]
    assert kept[:4] == [-1, 1, 2, -1] and len(kept) == 250 and not any(isinstance(each, Undecodable) for each in kept)
    for numbers_, text in (([999], r"no messages \[999\]"), ([], "not empty")):
        with pytest.raises(GraphError, match=text):
            editor.dropMessages(place, numbers=numbers_)


@pytest.mark.parametrize(("parallelism", "outcome"), [(2, Outcome.FAILED), (3, Outcome.FINISHED)])
def test_a_migrated_message_keeps_a_key_of_its_subtask(parallelism: int, outcome: Outcome) -> None:
    """It is refused with both messages, and goes to the subtask of its new key where messages are put on others."""
    files: dict[str, bytes] = {}
    first = Simulator(program("Order", "cents", count=10**6, key=number_of, parallelism=2).graph, [], files=files)
    for step in (*(Poll("numbers"),) * 4, Initiate(1, "numbers"), *markers(2)):
        first.take(step)
    hook = _RENAMES.replace("return message if", "return 7 if")
    made = program("Order", "cents", count=4, key=number_of, hook=hook, parallelism=parallelism)
    history = after(files, made.graph)
    assert history.outcome is outcome, history.reason
    if outcome is Outcome.FAILED:
        assert re.search(r"migrateMessage made 7 of [12], whose key is one of taker\[[01]\]", history.reason)
    else:
        assert sorted(map(repr, history.output("out"))) == ["('Order', 0, 0.0)", "('Order', 3, 0.3)", "7", "7"]


class Rows(Node):
    """Passes rows on, of batches of an older version or not."""

    messageVersion = 2

    def onMessage(self, message: Any, context: Any) -> None:
        context.send(message)

    def migrateMessage(self, message: Any, fromVersion: int) -> Any:
        return {"n": message["n"], "word": f"word {message['n']}"}


class OldRows(Node):
    """Passes rows on."""

    def onMessage(self, message: Any, context: Any) -> None:
        context.send(message)


def rows(node: Node, schema: str) -> Graph:
    """A graph whose source sends one batch of two rows."""
    batch = pa.RecordBatch.from_pydict({"n": pa.array([1, 2])})
    graph = Graph("g").add("rows", ListSource(batch)).add("taker", node).add("out", ListSink())
    return graph.connect("rows", "taker", schema=schema).connect("taker", "out")


def test_rows_of_batches_become_rows_of_the_edges_schema() -> None:
    """With a column more."""
    files: dict[str, bytes] = {}
    first = Simulator(rows(OldRows(), "n long"), [], files=files)
    for step in (Poll("rows"), Initiate(1, "rows"), *markers(1, "rows")):
        first.take(step)
    history = after(files, rows(Rows(), "n long, word string"))
    assert history.output("out") == [{"n": 1, "word": "word 1"}, {"n": 2, "word": "word 2"}], history.reason


class Repeated(OldRows):
    """Passes messages on."""

    deterministic = True


class Newer(Repeated):
    """Takes messages of another version."""

    messageVersion = 2


def slices(node: Node) -> Graph:
    """A graph whose source can be read again, and has no end."""
    graph = Graph("g").add("in", Slices({"a": 5}, endless=True)).add("taker", node)
    return graph.connect("in", "taker")


@pytest.mark.parametrize("mode", [InputLogging(), ChannelLogs(0.05)])
def test_logs_that_are_repeated_refuse_another_version(mode: Any) -> None:
    """A replay would compare other messages."""
    files: dict[str, bytes] = {}
    Simulator(slices(Repeated()), 1, files=files, mode=mode, snapshotInterval=0.05, maxSteps=600).run()
    history = after(files, slices(Newer()), mode=mode, maxSteps=600)
    assert history.outcome is Outcome.FAILED
    assert "messages of version 1 in logs that are repeated" in history.reason
