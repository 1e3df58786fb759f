"""Totals in stores on graphs by chance, by markers and by epochs, under faults: each item counts once, as a whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from random import Random
from typing import Any, ClassVar, Literal

import pytest

from cutline.snapshot.coordinator.restart_policy import RestartPolicy
from cutline.snapshot.coordinator.run_state import Outcome
from cutline.snapshot.operators.aggregate_store import StoreClaim
from cutline.snapshot.plan.modes import MARKERS, ModeWish, MonoidClocks
from cutline.snapshot.testing.checkers import CheckFailed, judge
from cutline.snapshot.testing.history import History
from cutline.snapshot.testing.simulation.totals import StoreConnection
from cutline.snapshot.testing.simulator import Impossible, Mutation
from cutline.snapshot.testing.steps import (
    Crash,
    Deliver,
    LoseAcknowledgement,
    LoseTotals,
    Poll,
    Quiesce,
    RequestSnapshot,
    Store,
    Tick,
    WorkRows,
)
from cutline.testing import Odds, Simulator
from tests.run_size import FACTOR, scaled
from tests.snapshot.testing.crash_points import go_on
from tests.snapshot.testing.totalled import (
    BatchRelay,
    FanOut,
    Judge,
    ListRelay,
    Relay,
    Shape,
    note_differences,
    problems,
)

#: A campaign that never saw these is void.
CONDITIONS = (
    *("an old claim's write was refused", "a crash between the cells of a difference", "a crash before a commit"),
    *("B was not empty at a cut", "an aborted difference joined", "a difference waited", "a run was adopted"),
    *(
        "a store of totals was away",
        "LoseTotals",
        "LoseAcknowledgement",
        "two lives of a coordinator",
        "two drivers",
        "Freeze",
    ),
    *("a manifest was undecided", "a cut inside a partly handled frame", "refused"),
)
_SEEDS = scaled(480)
_BLOCKS = 4
#: little memory, so that a few items fill it
MODES: dict[str, ModeWish] = {
    "markers": MARKERS,
    "epochs": MonoidClocks(),
    "little memory": MonoidClocks(memory=700),
    "negotiated": MonoidClocks(clock="negotiated", memory=3_000),
}


def shape_of(chance: Random) -> Shape:
    """Return one to three sources, up to three layers of relays, and one or two aggregates."""
    names = list("abcdef")
    sources = {
        f"in{number}": {names.pop(): chance.randint(0, 7) for _ in range(chance.randint(1, 2))}
        for number in range(chance.randint(1, 3))
    }
    relays: tuple[Any, ...] = ()
    if layers := chance.randint(0, 3):
        has_batches = layers == 2 and chance.random() < 0.4
        relays = (*((BatchRelay,) if has_batches else chance.choices((Relay, ListRelay), k=layers - 1)), FanOut)
    aggregates = {name: chance.randint(1, 2) for name in ("sums", "more")[: chance.randint(1, 2)]}
    idle = {name: chance.randint(0, 5) for sizes in sources.values() for name in sizes if chance.random() < 0.3}
    is_apart = not relays and len(sources) > 1 and len(aggregates) > 1
    return Shape(sources, relays, aggregates, chance.randint(1, 2), chance.randint(1, 3), idle, is_apart=is_apart)


def run(seed: int, mode: ModeWish, seen: Counter[str]) -> None:
    """Run a graph by chance, and demand that each item counts once, as a whole, at each commit and at the end."""
    chance = Random(f"totals {seed}")
    shape = shape_of(chance)
    alignment: Literal["aligned", "unaligned"] = chance.choice(("aligned", "unaligned"))
    judged = Judge(seen, is_exact=mode != MARKERS or alignment == "aligned")
    history = Simulator(
        shape.graph(),
        seed,
        faults=5,
        mode=mode,
        alignment=alignment,
        snapshotInterval=chance.choice((0.03, 0.1)),
        odds=Odds(fault=100, worst=60, tick=chance.choice((4, 12))),
        restartPolicy=RestartPolicy(maxRestarts=50),
        mutation=judged.mutation(),
    ).run()
    seen.update(history.seen)
    demand(history, shape)
    judged.demand(history, shape)
    for verdict in judge(history):
        verdict.demand()


def demand(history: History, shape: Shape) -> None:
    """Demand the end of the run, and the totals of all items."""
    if history.outcome is not Outcome.FINISHED:
        raise CheckFailed("outcome", f"{history.outcome}: {history.reason}")
    if found := list(problems(history, shape)):
        raise CheckFailed("totals", "; ".join(found))


@pytest.fixture(scope="module")
def seen() -> Iterator[Counter[str]]:
    """What the runs had."""
    found: Counter[str] = Counter()
    with pytest.MonkeyPatch.context() as patch:
        note_differences(patch, found)
        yield found
    if FACTOR >= 1:
        missing = [each for each in CONDITIONS if not found[each]]
        assert not missing, (missing, found)


@pytest.mark.parametrize("how", MODES)
@pytest.mark.parametrize("block", range(_BLOCKS))
def test_whatever_fails_each_item_counts_once(block: int, how: str, seen: Counter[str]) -> None:
    """In all its keys and in all stores at once, and only below the offsets of the snapshot that is committed."""
    mode = MODES[how]
    for seed in range(block, _SEEDS // len(MODES), _BLOCKS):
        try:
            run(seed, mode, seen)
        except BaseException as error:
            error.add_note(f"seed {seed}, {how}")
            raise


# ---------------------------------------------------------------- schedules that chance seldom finds


class Counting(StoreConnection):
    """Counts how often each key was written."""

    writes: ClassVar[Counter[str]] = Counter()

    def write(self, claim: StoreClaim, snapshotId: int, items: Any) -> None:
        super().write(claim, snapshotId, items)
        self.writes.update(key for key, _ in items)


def ends_of_two_epochs(left: str, right: str, shape: Shape) -> None:
    """Let the end of one source belong to a snapshot, and that of another, which comes first, not."""
    schedule = [
        *[Poll(left), Poll(left), Poll(right), RequestSnapshot(), Quiesce(), Poll(right)],
        *[Deliver(right, "relay0"), Deliver(right, "relay0", marker=True), Deliver(right, "relay0", end=True)],
        *[Deliver(left, "relay0"), Deliver(left, "relay0", end=True), Deliver(left, "relay0", marker=True)],
        *[Deliver("relay0", "sums")] * (6 + len(shape.sources)),
        *[Deliver("relay0", "sums", end=True), Deliver("relay0", "sums", marker=True), Quiesce(), Crash("sums")],
    ]
    demand(Simulator(shape.graph(), schedule, mode="monoidClocks").run(), shape)


def ends_of_one_edge() -> None:
    """Let the ends of two subtasks of a source belong to two epochs."""
    shape = Shape({"in": {"a": 1, "b": 1}}, (FanOut,), {"sums": 1}, parallelism=2, relay_parallelism=1)
    ends_of_two_epochs("in[0]", "in[1]", shape)


def ends_of_two_edges() -> None:
    """Let the ends of two sources belong to two epochs."""
    ends_of_two_epochs("left", "right", Shape({"left": {"a": 1}, "right": {"b": 1}}, (FanOut,), {"sums": 1}))


@pytest.mark.parametrize("ends", [ends_of_one_edge, ends_of_two_edges])
def test_an_end_belongs_to_the_snapshot_of_the_last_epoch(ends: Callable[[], None]) -> None:
    """Whichever came last. So nothing comes behind a restored end, and what `onEnd` sends counts once."""
    ends()


@pytest.mark.parametrize("mode", [MARKERS, "monoidClocks"])
def test_a_lost_acknowledgement_of_an_aggregate_is_sent_again(mode: ModeWish) -> None:
    """No timeout ends its snapshot, so the run would wait for ever."""
    lost_acknowledgement(mode)


def lost_acknowledgement(mode: ModeWish) -> None:
    """Lose the acknowledgement of an aggregate, which came last."""
    shape = Shape({"in": {"a": 2}}, (), {"sums": 1})
    simulator = Simulator(shape.graph(), [], mode=mode, alignment="aligned")
    messages = [Deliver("in", "sums")] * 3
    for step in (Poll("in"), RequestSnapshot(), Quiesce(), *messages, Deliver("in", "sums", marker=True)):
        simulator.take(step)
    while not simulator.history.seen["LoseAcknowledgement"]:
        with suppress(Impossible):
            simulator.take(LoseAcknowledgement(1))
            continue
        simulator.take(next(each for each in simulator.possible() if isinstance(each, Store | WorkRows)))
    demand(simulator.finish(), shape)


def test_the_end_waits_for_a_store() -> None:
    """Longer than a last commit may take elsewhere, and without a restart."""
    shape = Shape({"in": {"a": 2}}, (), {"sums": 2})
    simulator = Simulator(shape.graph(), [], mode="monoidClocks", snapshotTimeout=4.0)
    simulator.take(Poll("in"))
    chance = Random(1)
    while not (simulator.history.snapshots and simulator.history.snapshots[-1].manifest.final):
        go_on(simulator, 1, chance)
    simulator.take(LoseTotals("sums", calls=100_000, happen=0))
    for _ in range(300):  # more than a minute, with calls that fail
        simulator.take(Tick(0.2))
        go_on(simulator, 3, chance)
    simulator.take(LoseTotals("sums", calls=0, happen=0))
    demand(simulator.finish(), shape)
    assert len(simulator.history.origins) == 1


def test_a_store_that_is_away_stops_no_message() -> None:
    """All input is read meanwhile. One write a key then has what has come since the first one."""
    shape = Shape({"in": {"a": 60}}, (), {"sums": 1}, most=1)
    Counting.writes.clear()
    mutation = Mutation(store_connection=Counting)
    simulator = Simulator(shape.graph(), [], mode="monoidClocks", snapshotInterval=0.05, mutation=mutation)
    simulator.take(Poll("in"))
    simulator.take(LoseTotals("sums", calls=100_000, happen=0))
    chance = Random(1)
    while len(simulator.history.handled("sums")) < 3 * 60:
        go_on(simulator, 1, chance)
    assert not Counting.writes
    simulator.take(LoseTotals("sums", calls=0, happen=0))
    demand(simulator.finish(), shape)
    assert max(Counting.writes.values()) <= 2
