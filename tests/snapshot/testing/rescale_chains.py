"""One seed of the campaign of rescales: a job, a chain of restores with one parallelism after another, and its end.

python -m tests.snapshot.testing.rescale_chains 1234       # repeats one seed
python -m tests.snapshot.testing.rescale_chains 0 500      # many seeds, and what they saw

A chain is a list of simulations that share the files of one run. Each goes on from the newest snapshot of the last one.
A refused restore is repeated with the parallelism of the snapshot, which must work.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from random import Random
from time import perf_counter
from typing import Any, Final

from cutline.snapshot.coordinator.reshaping import carries_end
from cutline.snapshot.coordinator.run_state import Outcome
from cutline.snapshot.graph import Graph
from cutline.snapshot.stored.manifest import Manifest
from cutline.snapshot.stored.topology_record import topology_of_record
from cutline.snapshot.testing.checkers import CheckFailed
from cutline.snapshot.testing.history import History
from cutline.snapshot.testing.simulator import Mutation, Odds
from cutline.testing import Simulator, judge
from tests.snapshot.testing.rescaled import COMMITTED, JOBS, Job, committed, summed

#: Parallelism after parallelism.
LEVELS: Final = (2, 4, 3, 1)

#: Steps between two looks at a simulation, and steps after which the next restore comes anyway.
_STEPS, _STEPS_MAX = 20, 600

#: Steps after which the last simulation counts as one that never ends.
_LAST_STEPS_MAX = 20_000

#: Records of each key, and partitions.
_COUNT, _PARTITIONS = 6, 3

#: {kind of refusal: its text, with the edge, the number and the way out}
REFUSALS: Final = {
    kind: re.compile(rf"edge \w+->\w+: {reason}[\s\S]*{way_out}")
    for kind, reason, way_out in (
        ("directed", r"\d+ messages are in flight to subtasks above \d", "Submit it with the parallelism of the"),
        ("copies differ", r".* has \d+(, \d+)* and \d+ messages in flight, and not", "Submit it with the parallelism"),
        ("copies hold others", r".* hold different messages in flight", "Restore with the parallelism"),
        ("end twice", r"onEnd\(\w+\) was called at", "Submit it with the parallelism"),
        ("ended cycle", r"\w+\[\d\] has ended, and with it the cycle", "Submit it with the parallelism"),
        ("named", r"\d+ messages in flight on .* were sent to a subtask that", "Restore with the parallelism"),
        ("divided state", r"\d+ messages are in flight, and \w+ keeps its own state", "Submit it with the parall"),
    )
} | {"ended receiver": re.compile(r"\d+ messages in flight, but .* has processed the end[\s\S]*Restore with")}


@dataclass
class Chain:
    """A run over several restores.

    Parameters
    ----------
    seed : int
    mutation : Mutation
    """

    seed: int
    mutation: Mutation = field(default_factory=Mutation)
    files: dict[str, bytes] = field(default_factory=dict)
    seen: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.chance = Random(f"rescale {self.seed}")
        self.name = list(JOBS)[self.seed % len(JOBS)]
        self.job: Job = JOBS[self.name]
        self.is_forward = self.name == "copied" and not self.chance.randrange(4)
        self._manifests: dict[int, Manifest] = {}

    def run(self) -> Counter[str]:
        """Run to the end. Return what was seen.

        Raises
        ------
        CheckFailed
            if a checker refuses a simulation, or the output is not what it must be.
        """
        COMMITTED.clear()
        levels = self._next_levels(0)
        history = self._simulate(levels, is_last=False)
        for place in range(1, len(LEVELS)):
            if history.outcome is Outcome.FINISHED:
                break
            wished = self._next_levels(place)
            history = self._simulate(wished, is_last=False)
            if history.outcome is Outcome.FAILED:
                self._note_refusal(history.reason)
                history = self._simulate(levels, is_last=False)
            else:
                levels = wished
        if history.outcome is not Outcome.FINISHED:
            history = self._simulate(levels, is_last=True)
        self._require(history.outcome is Outcome.FINISHED, f"{history.outcome}: {history.reason}")
        self._check_output()
        return self.seen

    def _next_levels(self, place: int) -> dict[str, int]:
        """Every second chain has one level for all nodes; the others have any."""
        one = LEVELS[place]
        is_one = self.seed // len(JOBS) % 2 == 0
        return {
            node: level
            for joined in self.job.nodes
            for level in [one if is_one else self.chance.randrange(1, 5)]
            for node in joined
        }

    def graph(self, levels: dict[str, int]) -> Graph:
        """The job with this parallelism of each node."""
        options: dict[str, Any] = {"is_forward": True} if self.is_forward else {}
        return self.job.graph(levels, count=_COUNT, partitions=_PARTITIONS, **options)

    def _simulate(self, levels: dict[str, int], *, is_last: bool) -> History:
        chance = self.chance
        wanted = chance.choice((1, 1, 2, 4))
        simulator = Simulator(
            self.graph(levels),
            chance.randrange(10**6),
            faults=chance.choice((0, 0, 1, 2)),
            files=self.files,
            odds=Odds(fault=60, request=chance.choice((10, 30)), requests=10**6),
            workers=2,
            maxSteps=_LAST_STEPS_MAX if is_last else _STEPS,
            mutation=self.mutation,
        )
        history = simulator.history
        for steps in count(_STEPS, _STEPS):
            simulator.run()
            published = len(history.snapshots) - len(history.adopted)
            if is_last or simulator.isOver or (published >= wanted or (steps >= _STEPS_MAX and self._has_snapshot())):
                break
        for verdict in judge(history):
            if verdict.checker != "liveness" or is_last:
                verdict.demand()
        self._note(history)
        return history

    def _has_snapshot(self) -> bool:
        return any("/manifests/" in path for path in self.files)

    # ---------------------------------------------------------------- judging

    def _require(self, holds: bool, text: str) -> None:
        if not holds:
            raise CheckFailed("output", f"seed {self.seed}, {self.name}: {text}")

    def _check_output(self) -> None:
        found, due = summed(committed(self.name)), self.job.due(_PARTITIONS, _COUNT)
        text = f"lost {list((due - found).items())[:5]}, too many {list((found - due).items())[:5]}"
        self._require(found == due, text)

    def _note_refusal(self, reason: str) -> None:
        kinds = [kind for kind, text in REFUSALS.items() if text.search(reason)]
        if len(kinds) != 1:
            raise CheckFailed("refusal", f"seed {self.seed}, {self.name}: no edge, number or way out: {reason}")
        self.seen[f"refused: {kinds[0]}"] += 1

    # ---------------------------------------------------------------- what was seen

    def _note(self, history: History) -> None:
        seen, now = self.seen, history.topology
        manifests = {snapshot.id: snapshot.manifest for snapshot in history.snapshots}
        for origin in filter(None, history.origins.values()):
            manifest = manifests[origin[1]]
            before = topology_of_record(manifest.topology)
            rescaled = {each.name for each in before.nodes if now.node(each.name).parallelism != each.parallelism}
            waves = [wave for record in manifest.records for each in record.waves or () for _, wave in each.waves]
            if waves:
                seen["rescaled before waves were drained" if rescaled else "rolled back before waves were drained"] += 1
                seen["rescaled with wave 2"] += bool(rescaled) and max(waves) >= 2
            if not rescaled:
                continue
            seen["rescaled"] += 1
            seen["rescaled with keyless timers"] += (
                any(record.status.has_timers for record in manifest.records if record.subtask.node == "alarms")
                and "alarms" in rescaled
            )
            seen["rescaled with prepared output"] += any(
                record.status.uncommitted for record in manifest.records if record.subtask.node in rescaled
            )
            seen["rescaled with pieces under two clips"] += _has_two_clips(manifest)
            self._note_channels(manifest, rescaled)
        for snapshot in history.snapshots:
            if snapshot.id not in history.adopted:
                records = snapshot.manifest.records
                seen["waves stored"] += any(record.waves for record in records)
                seen["a piece under two clips"] += _has_two_clips(snapshot.manifest)

    def _note_channels(self, manifest: Manifest, rescaled: set[str]) -> None:
        before = topology_of_record(manifest.topology)
        ended = {record.subtask for record in manifest.records if record.status.ended}
        sent = {entry.channel: entry.sent for record in manifest.records for entry in record.sent}
        for record in manifest.records:
            for entry in record.received:
                channel = entry.channel
                in_flight = sent[channel] - entry.processed
                if not in_flight or not rescaled & {channel.source.node, channel.target.node}:
                    continue
                edge = before.edge_of(channel)
                has_end = channel.source in ended and carries_end(before, edge)
                self.seen["END in flight"] += has_end
                if in_flight > has_end:
                    self.seen[f"reshaped: {edge.partitioning.value}"] += 1
                    self.seen["reshaped: in a cycle"] += not carries_end(before, edge)


def _has_two_clips(manifest: Manifest) -> bool:
    """Return whether the lists of two subtasks read one piece, each in a clip of its own."""
    clips: dict[str, dict[tuple[int, int], None]] = {}
    for record in manifest.records:
        for entry in record.rows or ():
            clips.setdefault(entry.handle.checksum.hex(), {})[entry.lo, entry.hi] = None
    return any(len(each) > 1 for each in clips.values())


def main(arguments: Sequence[str]) -> int:
    """See the module's docstring."""
    first = int(arguments[0])
    seeds = range(first, int(arguments[1]) if len(arguments) > 1 else first + 1)
    seen: Counter[str] = Counter()
    begun = perf_counter()
    for seed in seeds:
        try:
            seen += Chain(seed).run()
        except Exception as error:  # noqa: BLE001  # whatever it is, the seed goes with it
            print(f"seed {seed}: {error!r}")
            return 1
    for what, times in sorted(seen.items()):
        print(f"{times:7,} {what}")
    print(f"{len(seeds)} seeds, {perf_counter() - begun:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
