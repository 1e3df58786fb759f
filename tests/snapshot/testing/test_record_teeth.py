"""Each rule of mode channelLogs is needed: a run without it is caught, by a checker that has a name.

Rules have the numbers of PROTOCOL 14.
"""

from __future__ import annotations

from contextlib import suppress
from random import Random

import pytest

from cutline import ChannelLogs, Graph
from cutline.snapshot.coordinator.restart_policy import RestartPolicy
from cutline.snapshot.testing.checkers import CheckFailed
from cutline.snapshot.testing.simulator import Impossible
from cutline.snapshot.testing.steps import Crash, FailStore, HangStore, Quiesce, RequestSnapshot, Tick
from cutline.testing import ListSink, Odds, Simulator
from tests.run_size import FACTOR
from tests.snapshot.testing import mutants_of_records as mutants
from tests.snapshot.testing import test_recorded_runs as runs
from tests.snapshot.testing.recorded import INTERVAL, Link, Numbers, demand, recorded, run
from tests.snapshot.testing.teeth import Tooth

#: runs in which a mutant has to be caught
_SEEDS_MAX = 80

MANY = RestartPolicy(maxRestarts=50)


def _faulty(seed: int) -> None:
    run(seed, faults=6, most=12, odds=Odds(fault=30, worst=60, tick=6))


def _walk(simulator: Simulator, chance: Random, steps: int) -> None:
    """Take steps by chance."""
    for _ in range(steps):
        if simulator.isOver:
            return
        possible = [each for each in simulator.possible() if not isinstance(each, Tick)]
        simulator.take(chance.choice(possible) if possible and chance.randrange(6) else Tick(0.02))


def _failing_store(seed: int) -> None:
    """A store that fails now and then, and then a worker that dies."""
    chance = Random(seed)
    simulator = Simulator(
        recorded(1, 12), [], seed=seed, mode=ChannelLogs(INTERVAL), restartPolicy=MANY, tolerableFailedSnapshots=50
    )
    _walk(simulator, chance, 60)
    for _ in range(8):
        with suppress(Impossible):  # where the run is over
            simulator.take(FailStore(chance.randrange(2)))
        _walk(simulator, chance, 40)
    with suppress(Impossible):
        simulator.take(Crash(0))
    demand(simulator.finish(), 12, 1)


def _first_records(seed: int) -> None:
    """Two chains. The store of one hangs from the begin, and then a worker dies."""
    graph = Graph("recorded").add("numbers", Numbers(6), parallelism=2).add("link", Link(), parallelism=2)
    graph.add("out", ListSink(), parallelism=2).connect("numbers", "link").connect("link", "out")
    chance = Random(seed)
    simulator = Simulator(graph, [], seed=seed, mode=ChannelLogs(INTERVAL), restartPolicy=MANY)
    simulator.take(Quiesce())
    simulator.take(HangStore(1, 2.0))
    _walk(simulator, chance, 200)
    with suppress(Impossible):  # where the run is over
        simulator.take(Crash(0))
    demand(simulator.finish(), 6, 1)


def _requested(seed: int) -> None:
    """A snapshot that is requested has each node as it was at the request, or later."""
    chance = Random(seed)
    simulator = Simulator(recorded(1, 30), [], seed=seed, mode=ChannelLogs(INTERVAL))
    simulator.take(Quiesce())
    history = simulator.history
    while not history.snapshots:
        _walk(simulator, chance, 1)
    _walk(simulator, chance, 100)
    handled = {name: len(history.handled(name)) for name in ("pass0", "link", "out")}
    simulator.take(RequestSnapshot())
    while len(history.snapshots) == 1:
        _walk(simulator, chance, 1)
    for name, count in handled.items():
        own = [record for record in history.snapshots[1].manifest.records if record.subtask.node == name]
        processed = sum(entry.processed for record in own for entry in record.received)
        if processed < count:
            raise CheckFailed("request", f"{name} had handled {count} messages, and its records have {processed}")
    demand(simulator.finish(), 30, 1)


def _chosen(_: int) -> None:
    runs.test_a_chosen_older_snapshot_is_restored_without_newer_records()


#: who notices that a run is wrong
_CAUGHT_BY = (
    "links",
    "outcome",
    "liveness",
    "delivery",
    "certificate",
    "integrity",
    "exact cut",
    "fencing",
    "causality",
)

TEETH = (
    Tooth("14.1 messages in a second write", mutants.messages_in_a_second_write, _faulty, _CAUGHT_BY),
    Tooth("14.1 failed record forgotten", mutants.messages_of_a_failed_record_forgotten, _failing_store, _CAUGHT_BY),
    Tooth("14.2 nothing awaited", mutants.nothing_awaited, _faulty, _CAUGHT_BY),
    Tooth("14.2 sent numbers awaited", mutants.sent_numbers_awaited, _faulty, _CAUGHT_BY),
    Tooth("14.3 claim not checked", mutants.claim_not_checked, _faulty, _CAUGHT_BY),
    Tooth("14.3 commits ahead of the record", mutants.commits_ahead_of_the_record, _faulty, _CAUGHT_BY),
    Tooth("14.3 continuing claim not permitted", mutants.continuing_claim_not_permitted, _faulty, _CAUGHT_BY),
    Tooth("14.3 fence not reported", mutants.fence_not_reported, _faulty, _CAUGHT_BY),
    Tooth("14.4 trimmed behind the own record", mutants.trimmed_behind_the_own_record, _faulty, _CAUGHT_BY),
    Tooth("14.4 trimmed behind captured numbers", mutants.trimmed_behind_captured_numbers, _faulty, _CAUGHT_BY),
    Tooth(
        "14.4 commits ahead of the first records",
        mutants.commits_ahead_of_the_first_records,
        _first_records,
        _CAUGHT_BY,
    ),
    Tooth("14.5 entries not cut", mutants.entries_not_cut, _faulty, _CAUGHT_BY),
    Tooth("14.5 no base", mutants.no_base_without_a_restart, runs.retained, _CAUGHT_BY),
    Tooth(
        "14.6 older workers adopted",
        mutants.older_workers_adopted,
        runs.adopted_behind_a_restore,
        (*_CAUGHT_BY, "AssertionError"),
    ),
    Tooth("14.6 records of any incarnation", mutants.records_of_any_incarnation, _chosen, ("AssertionError",)),
    Tooth("14.7 older records", mutants.request_covered_by_older_records, _requested, ("request",)),
    Tooth("14.8 needed parts removed", mutants.needed_parts_removed, _faulty, _CAUGHT_BY),
    Tooth("14.8 removed while a cut is made", mutants.removed_while_a_cut_is_made, _faulty, _CAUGHT_BY),
    Tooth("14.8 listed parts removed", mutants.listed_parts_removed, runs.verified, ("integrity",)),
)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("tooth", TEETH if FACTOR >= 1 else TEETH[::5], ids=lambda tooth: tooth.rule)
def test_every_rule_of_records_has_teeth(tooth: Tooth, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run without this rule is caught, and with it is right. A quick run takes one rule of five."""
    tooth.demand(monkeypatch, _SEEDS_MAX)
