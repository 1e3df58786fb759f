"""Modes inputLogging and deltas on larger graphs by chance, under faults: one history, and all checkers hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from cutline import Context, Deltas, Graph, InputLogging, Node
from cutline.snapshot.coordinator.restart_policy import RestartPolicy
from cutline.snapshot.coordinator.run_state import Outcome
from cutline.snapshot.modes.steps.determinants import Cut, Fired, Took, TookTogether, decode_step
from cutline.snapshot.plan.modes import Mode, content, row_of
from cutline.snapshot.stored.manifest import Manifest
from cutline.snapshot.stored.own_changes import decode_changes
from cutline.snapshot.stored.part import decode_part
from cutline.snapshot.testing.checkers import judge
from cutline.snapshot.testing.history import History
from cutline.snapshot.trace_events import Kind
from cutline.snapshot.worker import generations
from cutline.testing import ListSink, Odds, Simulator
from tests.run_size import FACTOR, scaled
from tests.snapshot.testing.replayed import (
    Batches,
    Divided,
    Each,
    Keyed,
    Lists,
    Relay,
    Slices,
    chain_problems,
    chained,
    word_of,
)

#: A campaign that never saw these is void.
CONDITIONS = (
    *("steps were repeated", "a rollback during a replay", "interleaved inputs replayed", "timers replayed"),
    *("lists or batches replayed", "a step of an aborted snapshot replayed", "merged parts replayed"),
    *("an aborted delta was listed", "a base failed", "a snapshot overtook another", "a run was adopted"),
    *("two lives of a coordinator", "two drivers", "refused", "a manifest was undecided"),
)
_SEEDS = scaled(200)
_BLOCKS = 4


class ListRelay(Node):
    """Passes lists on."""

    deterministic = True

    def onMessages(self, messages: list[Any], context: Context) -> None:
        context.sendAll(messages)


class LateRelay(Node):
    """Keeps messages by their words, and passes them on a little later."""

    deterministic = True

    def open(self, context: Context) -> None:
        self.kept = context.getListState("kept")

    def onMessage(self, message: tuple[str, int], context: Context) -> None:
        if not self.kept.exists():
            context.registerTimer(context.now + 0.03)
        self.kept.appendValue(message)

    def onTimer(self, at: float, context: Context) -> None:
        context.sendAll(self.kept.get())
        self.kept.clear()


def _graph(chance: Random, last: type[Node]) -> tuple[Graph, int]:
    """Return a graph of some layers, and the number of messages that its last node handles."""
    graph = Graph("stepped")
    counts: dict[str, int] = {}
    for name, words in (("first", "ab"), ("second", "cd"))[: chance.randint(1, 2)]:
        sizes = {word: chance.randint(0, 12) for word in words}
        graph.add(name, Slices(sizes, chance.randint(1, 3)), parallelism=chance.randint(1, 2))
        counts[name] = sum(sizes.values())
    ends = dict.fromkeys(counts)
    for number in range(chance.randint(1, 3)):
        name, kind = f"relay{number}", chance.choice((Relay, ListRelay, LateRelay))
        inputs = chance.sample([*counts], chance.randint(1, min(2, len(counts))))
        graph.add(name, kind(), parallelism=chance.randint(1, 3))
        for each in inputs:
            graph.connect(each, name, key=word_of)
            ends.pop(each, None)
        counts[name], ends[name] = sum(counts[each] for each in inputs), None
    graph.add("node", last(), parallelism=chance.randint(1, 3)).add("out", ListSink(), parallelism=chance.randint(1, 2))
    for each in ends:
        graph.connect(each, "node", key=word_of)
    return graph.connect("node", "out"), sum(counts[each] for each in ends)


def run(seed: int) -> tuple[History, Mode, int]:
    """Return a run, its mode, and the number of messages that its last node has to handle.

    In each second run parts of logs are merged early.
    """
    with pytest.MonkeyPatch.context() as patch:
        if seed % 8 > 3:
            patch.setattr(generations, "_STEP_PARTS_MAX", 2)
        return _run(seed)


def _run(seed: int) -> tuple[History, Mode, int]:
    chance = Random(f"stepped {seed}")
    mode: Mode = chance.choice(
        (InputLogging(), Deltas(every=chance.randint(1, 4), fullFactor=chance.choice((0.5, 2.0))))
    )
    last = chance.choice((Keyed, Divided) if isinstance(mode, Deltas) else (Each, Lists, Batches, Keyed))
    if last is Batches:
        sizes = {word: chance.randint(1, 12) for word in "abc"}
        graph, count = chained(Batches(), sizes, as_batches=True), sum(sizes.values())
    else:
        graph, count = _graph(chance, last)
    history = Simulator(
        graph,
        seed,
        faults=5,
        mode=mode,
        snapshotInterval=chance.choice((0.04, 0.1)),
        odds=Odds(fault=200, worst=100, tick=chance.choice((6, 12))),
        restartPolicy=RestartPolicy(maxRestarts=50),
    ).run()
    return history, mode, count


@pytest.fixture(scope="module")
def seen() -> Iterator[Counter[str]]:
    """What the runs had."""
    found: Counter[str] = Counter()
    yield found
    if FACTOR >= 1:
        missing = [each for each in CONDITIONS if not found[each]]
        assert not missing, (missing, found)


@pytest.mark.parametrize("block", range(_BLOCKS))
def test_whatever_fails_there_is_one_history(block: int, seen: Counter[str]) -> None:
    """Each message once in one chain for each subtask or key."""
    for seed in range(block, _SEEDS, _BLOCKS):
        _note(*checked(seed), seen)


def checked(seed: int) -> tuple[History, Mode]:
    """Return a run that is as it must be, and its mode."""
    history, mode, count = run(seed)
    assert history.outcome is Outcome.FINISHED, (seed, history.reason)
    rows = history.output("out")
    assert chain_problems(rows) == [], seed
    assert sum(row[6] for row in rows) == count, seed
    assert [verdict.text for verdict in judge(history) if not verdict.holds] == [], seed
    return history, mode


def _note(history: History, mode: Mode, seen: Counter[str]) -> None:
    seen.update(history.seen)
    published = {snapshot.id: snapshot.manifest for snapshot in history.snapshots}
    aborted = [event.snapshot_id for event in history.events if event.kind is Kind.ABORTED]
    seen["a base failed"] += isinstance(mode, Deltas) and any(
        content(row_of(mode), each, is_sink=False).is_base for each in aborted
    )
    handles = [entry.handle for each in published.values() for record in each.records for entry in record.rows or ()]
    seen["an aborted delta was listed"] += any(handle.snapshot_id in aborted for handle in handles)
    restored = {event.snapshot_id for event in history.events if event.kind is Kind.DEPLOYED and event.snapshot_id}
    for snapshot_id in restored if history.seen["steps were repeated"] else ():
        _note_replay(published[snapshot_id], aborted, seen)


def _note_replay(manifest: Manifest, aborted: list[int], seen: Counter[str]) -> None:
    for handle in [handle for record in manifest.records for handle in record.steps or () if handle.inline]:
        assert handle.inline is not None
        seen["merged parts replayed"] += handle.last > handle.first
        for _, step in decode_changes(decode_part(handle, handle.inline), ""):
            entries = decode_step(step, "")
            inputs = [entry.input for entry in entries if isinstance(entry, Took)]
            seen["interleaved inputs replayed"] += sum(one != other for one, other in pairwise(inputs)) > 1
            seen["timers replayed"] += any(isinstance(entry, Fired) for entry in entries)
            seen["lists or batches replayed"] += any(isinstance(entry, TookTogether) for entry in entries)
            last = entries[-1]
            seen["a step of an aborted snapshot replayed"] += isinstance(last, Cut) and last.snapshot_id in aborted
