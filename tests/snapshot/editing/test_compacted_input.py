"""Compacted input: a restore begins with messages that stand for the input, and comes to the same states.

Each word has a chain of outputs (word, before, number). What was visible before a compaction, and what comes behind
it, are one chain only if the states behind the compacted messages were those of the whole input.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import msgpack
import pyarrow as pa
import pytest

from cutline import Context, Graph, InputLogging, Node, NodeError, Snapshot, SnapshotEditor
from cutline.snapshot.coordinator.run_state import Outcome
from cutline.snapshot.editing import compacted_input
from cutline.snapshot.errors import RestoreRefused
from cutline.snapshot.modes.steps import renumbering
from cutline.snapshot.modes.steps.determinants import Began, Compacted, Read, decode_step
from cutline.snapshot.plan.modes import ModeWish
from cutline.snapshot.stored.own_changes import decode_changes
from cutline.snapshot.testing.checkers import judge
from cutline.snapshot.testing.history import History
from cutline.snapshot.testing.payload import unpack
from cutline.snapshot.testing.steps import Crash, RequestSnapshot
from cutline.state_backends.verify import verify_run
from cutline.testing import ListSink, Odds, Simulator
from tests.run_size import FACTOR, scaled
from tests.snapshot.editing.mended_runs import in_memory, opened
from tests.snapshot.testing.replayed import SCHEMA, Relay, Slices, word_of

HASHED = InputLogging(hashes="states")
SIZES = {"a": 40, "b": 30, "c": 22}
#: Messages that stand for a partition, at most.
KEPT = 3


class Newest(Node):
    """Keeps the greatest number of each word, and sends each that is greater than all before."""

    deterministic = True

    def open(self, context: Context) -> None:
        self.newest = context.getValueState("newest")

    def onMessage(self, message: tuple[str, int], context: Context) -> None:
        context.registerTimer(4.0)  # pending at some cuts, and fired ahead of others
        before = self.newest.get()
        if before is None or before < message[1]:
            self.newest.update(message[1])
            context.send((message[0], before, message[1]))


class Timing(Newest):
    """Sets a timer for each message."""

    def onMessage(self, message: tuple[str, int], context: Context) -> None:
        super().onMessage(message, context)
        context.registerTimer(context.now + 2.0 + message[1] / 10)


class NewestOwn(Node):
    """As `Newest`, with a state of its own."""

    deterministic = True

    def __init__(self) -> None:
        self.newest: dict[str, int] = {}

    def onMessage(self, message: tuple[str, int], context: Context) -> None:
        before = self.newest.get(message[0])
        if before is None or before < message[1]:
            self.newest[message[0]] = message[1]
            context.send((message[0], before, message[1]))

    def snapshotState(self, snapshotId: int, timestamp: float) -> dict[str, int]:
        return self.newest

    def restoreState(self, state: dict[str, int]) -> None:
        raise AssertionError("a replay makes the state again")


class Compacting(Slices):
    """Slices whose last messages stand for all."""

    def compactInput(self, partition: str, stop: int) -> Iterable[Any]:
        return [(f"{partition}{number % 3}", number) for number in range(max(0, stop - KEPT), stop)]


class Forgetful(Compacting):
    """Forgets a word."""

    def compactInput(self, partition: str, stop: int) -> Iterable[Any]:
        return [*super().compactInput(partition, stop)][1:]


class Lengthy(Compacting):
    """Sends all twice, from the first number on."""

    def compactInput(self, partition: str, stop: int) -> Iterable[Any]:
        return [(f"{partition}{number % 3}", number) for number in [*range(stop), *range(stop)]]


class Failing(Compacting):
    """Fails."""

    def compactInput(self, partition: str, stop: int) -> Iterable[Any]:
        raise KeyError(partition)


def graph(
    node: Node,
    source: type[Slices] = Compacting,
    *,
    endless: bool = False,
    parallelism: int = 2,
    name: str = "compacted",
) -> Graph:
    """A diamond, and two subtasks behind it in turn."""
    made = Graph(name).add("slices", source(SIZES, endless=endless), parallelism=2)
    made.add("left", Relay(), parallelism=2).add("right", Relay())
    made.add("node", node, parallelism=parallelism).add("turns", Relay(), parallelism=2).add("out", ListSink())
    made.connect("slices", "left").connect("slices", "right")
    made.connect("left", "node", key=word_of).connect("right", "node", key=word_of)
    return made.connect("node", "turns", partitioning="rebalance").connect("turns", "out")


def run(files: dict[str, bytes], made: Graph, choose: Any, mode: ModeWish = HASHED, **settings: Any) -> History:
    """A run with the store of these files."""
    return Simulator(made, choose, mode=mode, snapshotInterval=0.1, files=files, **settings).run()


def stopped(files: dict[str, bytes], seed: int, made: Graph, steps: int, mode: ModeWish = HASHED) -> History:
    """A run that is stopped by a requested snapshot after so many steps."""
    begun = run(dict(files), made, seed, mode, maxSteps=steps).schedule
    history = run(files, made, [*begun, RequestSnapshot(stop=True)], mode, seed=seed)
    assert history.outcome is Outcome.STOPPED, history.reason
    return history


def compact(files: dict[str, bytes], made: Graph) -> Snapshot:
    """Compact the newest snapshot, and publish the result."""
    return SnapshotEditor(opened(in_memory(files), "compacted")).compactInput(made).write(force=True)


def log_of_source(snapshot: Snapshot) -> list[Any]:
    """All entries of the logs of the source."""
    return [
        entry
        for record in snapshot.records("slices")
        for handle in record.steps or ()
        for _, step in decode_changes(snapshot.read_part(handle), "")
        for entry in decode_step(step, "")
    ]


def check_whole(histories: Iterable[History]) -> None:
    """Check that each word has one chain of all that became visible, up to its last number."""
    by_token: dict[str, list[Any]] = {}
    for history in histories:
        for token, rows in history.committed["out"].items():
            by_token[token] = [unpack(row, history.codec) for row in rows]
    followers: dict[str, dict[int | None, int]] = defaultdict(dict)
    for word, before, number in (row for rows in by_token.values() for row in rows):
        assert before not in followers[word], (word, before, number)
        followers[word][before] = number
    for word, of_word in followers.items():
        numbers: list[int | None] = [None]
        while numbers[-1] in of_word:
            numbers.append(of_word[numbers[-1]])
        assert len(numbers) == len(of_word) + 1, (word, numbers, of_word)
        assert numbers[-1] == max(range(int(word[1]), SIZES[word[0]], 3)), (word, numbers)
    assert len(followers) == 3 * len(SIZES)


# ---------------------------------------------------------------- runs that go on


@pytest.mark.parametrize("make", [Newest, NewestOwn])
def test_a_run_goes_on_behind_compacted_input(make: Callable[[], Node]) -> None:
    """Compacted twice, in the middle of the input, and then with crashes. All checkers pass."""
    seen: Counter[str] = Counter()
    for seed in range(scaled(16)):
        files: dict[str, bytes] = {}
        histories = []
        for part in range(2):
            histories.append(stopped(files, seed + 100 * part, graph(make(), endless=True), 50 + 4 * seed))
            before = log_of_source(opened(in_memory(files), "compacted"))
            seen["read behind compacted input"] += part == 1 and any(isinstance(entry, Read) for entry in before)
            entries = log_of_source(compact(files, graph(make(), endless=True)))
            assert not verify_run(in_memory(files), "compacted").problems
            assert sum(isinstance(entry, Began) for entry in entries) == 2
            assert not any(isinstance(entry, Read) for entry in entries)
            stops = [msgpack.unpackb(entry.stop) for entry in entries if isinstance(entry, Compacted)]
            seen["compacted in the middle"] += KEPT < sum(stops) < sum(SIZES.values())
        last = run(files, graph(make()), seed, faults=3, odds=Odds(fault=400, worst=400))
        assert last.outcome is Outcome.FINISHED, (seed, last.reason)
        assert all(verdict.holds for verdict in judge(last)), (seed, list(map(str, judge(last))))
        check_whole([*histories, last])
        seen["repeated"] += last.seen["steps were repeated"]
    if FACTOR >= 1:
        assert all(seen[each] for each in ("read behind compacted input", "compacted in the middle", "repeated")), seen


@pytest.mark.timeout(300)
def test_a_crash_after_any_number_of_steps() -> None:
    """In the replay of the compacted input, and behind it."""
    files: dict[str, bytes] = {}
    first = stopped(files, 5, graph(Newest(), endless=True), 90)
    compact(files, graph(Newest(), endless=True))
    schedule = run(dict(files), graph(Newest()), 1).schedule
    for place in range(1, len(schedule), max(1, round(len(schedule) / scaled(40)))):
        last = run(dict(files), graph(Newest()), [*schedule[:place], Crash(1)], seed=1, skipsImpossible=True)
        assert last.outcome is Outcome.FINISHED, (place, last.reason)
        check_whole([first, last])


class Greatest(Node):
    """Keeps the greatest number of each word, by the column."""

    deterministic = True

    def open(self, context: Context) -> None:
        self.greatest = context.getReducingState("greatest", "max")

    def onBatch(self, batch: pa.RecordBatch, context: Context) -> None:
        self.greatest.addAll(batch.column("word"), batch.column("number"))
        words = pa.array(sorted({*batch.column("word").to_pylist()}))
        context.send(pa.RecordBatch.from_arrays([words, pa.array(self.greatest.getAll(words))], schema=SCHEMA))


class CompactingBatches(Slices):
    """Slices in batches, whose last rows stand for all."""

    def compactInput(self, partition: str, stop: int) -> Iterable[pa.RecordBatch]:
        rows = [{"word": f"{partition}{n % 3}", "number": n} for n in range(max(0, stop - KEPT), stop)]
        return [pa.RecordBatch.from_pylist(rows, SCHEMA)]


def in_batches(*, endless: bool = False) -> Graph:
    """Batches, and totals by the column."""
    source = CompactingBatches(SIZES, as_batches=True, endless=endless)
    made = Graph("compacted").add("slices", source, parallelism=2).add("node", Greatest(), parallelism=2)
    made.connect("slices", "node", key="word", schema=SCHEMA)
    return made.add("out", ListSink()).connect("node", "out", schema=SCHEMA)


def test_batches_stand_for_batches() -> None:
    """Compacted to a batch for each partition; the greatest numbers are at last those of the whole input."""
    for seed in range(scaled(8)):
        files: dict[str, bytes] = {}
        stopped(files, seed, in_batches(endless=True), 50 + 2 * seed)
        compact(files, in_batches(endless=True))
        last = run(files, in_batches(), seed, faults=2)
        assert last.outcome is Outcome.FINISHED, (seed, last.reason)
        assert all(verdict.holds for verdict in judge(last)), seed
        greatest = {row["word"]: row["number"] for row in last.output("out")}
        assert all(number == max(range(int(w[1]), SIZES[w[0]], 3)) for w, number in greatest.items()), (seed, greatest)


def test_a_finished_run_can_be_compacted() -> None:
    """Ends of streams are repeated; the run has nothing left to do."""
    files: dict[str, bytes] = {}
    first = run(files, graph(Newest()), 3)
    compact(files, graph(Newest()))
    again = run(files, graph(Newest()), 4)
    assert first.outcome is again.outcome is Outcome.FINISHED
    check_whole([first, again])


def test_a_copy_under_another_name_goes_on() -> None:
    """With parts of its own, beside the run, which keeps its whole log."""
    files: dict[str, bytes] = {}
    first = stopped(files, 5, graph(Newest(), endless=True), 90)
    editor = SnapshotEditor(opened(in_memory(files), "compacted")).compactInput(graph(Newest(), endless=True))
    copy = editor.write("copy")
    assert {handle.run for record in copy.manifest.records for handle in record.all_handles} == {"copy"}
    assert editor.edits[0].startswith("compacted the input: a log of ")
    for name in ("copy", "compacted"):
        check_whole([first, run(files, graph(Newest(), name=name), 2)])


# ---------------------------------------------------------------- what is refused

REFUSED: dict[str, tuple[type[Newest], Callable[[], Graph], type[Exception], str]] = {
    "another state": (
        Newest, lambda: graph(Newest(), Forgetful, endless=True), RestoreRefused,
        r"snapshot \d+.*: node 'node', subtask [01] has another state behind the compacted input "
        r"\(in newest(, timers)?\): the messages of compactInput do not stand for the input",
    ),
    "more messages": (
        Newest, lambda: graph(Newest(), Lengthy, endless=True), RestoreRefused,
        r"the compacted input leads to [\d,]+ messages more on slices\[\d\]->",
    ),
    "no compactInput": (
        Newest, lambda: graph(Newest(), Slices, endless=True), RestoreRefused,
        "source 'slices' has no compactInput, so its input cannot be compacted",
    ),
    "a failure": (
        Newest, lambda: graph(Newest(), Failing, endless=True), NodeError, r"compactInput of slices\[\d\]: KeyError",
    ),
    "pending timers": (
        Timing, lambda: graph(Timing(), endless=True), RestoreRefused,
        r"another state behind the compacted input \(in timers\)",
    ),
    "another graph": (
        Newest, lambda: graph(Newest(), endless=True, parallelism=3), RestoreRefused,
        "work to repeat behind its last state",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", REFUSED)
def test_a_wrong_compaction_changes_nothing(kind: str) -> None:
    """Refused by name, before anything is written. The run goes on with its whole log."""
    node, make, error, text = REFUSED[kind]
    files: dict[str, bytes] = {}
    first = stopped(files, 5, graph(node(), endless=True), 90)
    before = dict(files)
    with pytest.raises(error, match=text):
        compact(files, make())
    assert files == before
    check_whole([first, run(files, graph(node()), 6)])


@pytest.mark.parametrize(
    ("mode", "text"),
    [("inputLogging", "has no hashes of its state, by which a compaction is checked: run the graph in mode "),
     ("deltas", "there is no log from the beginning of the run; only mode 'inputLogging' has one"),
     ("markers", "there is no log from the beginning of the run; only mode 'inputLogging' has one")],
)  # fmt: skip
def test_a_run_without_hashes_cannot_be_compacted(mode: ModeWish, text: str) -> None:
    """Because nothing would tell whether the messages stand for the input."""
    files: dict[str, bytes] = {}
    stopped(files, 5, graph(Newest(), endless=True), 90, mode)
    with pytest.raises(RestoreRefused, match=text):
        compact(files, graph(Newest(), endless=True))


class Asking(Newest):
    """Asks for a snapshot at each message."""

    def onMessage(self, message: tuple[str, int], context: Context) -> None:
        super().onMessage(message, context)
        context.requestSnapshot()


def test_a_node_that_asks_for_snapshots_is_answered() -> None:
    """No snapshot is taken while the compacted input is handled, and the node goes on."""
    files: dict[str, bytes] = {}
    first = stopped(files, 5, graph(Asking(), endless=True), 90)
    compact(files, graph(Asking(), endless=True))
    check_whole([first, run(files, graph(Asking()), 6)])


# ---------------------------------------------------------------- mutants


def _without_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compacted_input._Rehearsed, "_compare", lambda self, cut: None)


def _without_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renumbering, "beginning_of", lambda step, name: None)


MUTANTS = {"comparison": (_without_comparison, Forgetful), "numbers": (_without_numbers, Compacting)}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_mutants_die(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the comparison a wrong compaction breaks a chain. Without the numbers no replay comes to its cut."""
    change, source = MUTANTS[mutant]
    change(monkeypatch)
    files: dict[str, bytes] = {}
    first = stopped(files, 5, graph(Newest(), source, endless=True), 90)
    compact(files, graph(Newest(), source, endless=True))
    with pytest.raises(AssertionError):
        check_whole([first, run(files, graph(Newest(), source), 6)])


def test_a_snapshot_with_steps_is_not_copied_and_its_rows_are_not_edited() -> None:
    """Before any claim, so that the name stays free, and the snapshot is held by nobody."""
    files: dict[str, bytes] = {}
    made = graph(Newest(), endless=True)
    stopped(files, 3, made, 400)
    store = in_memory(files)
    editor = SnapshotEditor(opened(store, "compacted"))
    for _ in range(2):
        with pytest.raises(RestoreRefused, match=r"it has steps of .* which another run cannot repeat"):
            editor.write("copy")
    assert not [path for path in store.files() if path.startswith("copy")]
