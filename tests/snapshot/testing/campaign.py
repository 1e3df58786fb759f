"""One seed of the campaign: a program, a schedule with faults, and all checkers; and many seeds.

python -m tests.snapshot.testing.campaign 1234          # repeats one seed, with a short schedule if it fails
python -m tests.snapshot.testing.campaign 0 2000 1      # so many, from one to another by steps
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from random import Random
from time import perf_counter
from typing import Any

import pytest

from cutline.snapshot.channel import channel_sender, output_buffer
from cutline.snapshot.coordinator.restart_policy import RestartPolicy
from cutline.snapshot.testing.checkers import CheckFailed, Verdict, judge
from cutline.snapshot.testing.history import History
from cutline.snapshot.testing.payload import unpack
from cutline.snapshot.testing.simulator import Mutation, Odds, Simulator
from cutline.snapshot.testing.steps import Step
from tests.snapshot.testing.outside import OUTSIDES, Outside
from tests.snapshot.testing.programs import PROGRAMS, Program
from tests.snapshot.testing.walkers import fields
from tests.snapshot.testing.walks import SHAPES, walk_program

#: Faults of a history at most: each needs some steps to be recovered from.
FAULTS_MAX = 4

#: Bytes at which a few messages fill a buffer, or a frame.
_SMALL_BUFFER_BYTES = 60
_SMALL_FRAME_BYTES = 40

#: Steps after which a history counts as one that never ends; most take less than a thousand.
_STEPS_MAX = 20_000

#: Shorter schedules that are tried when a seed fails; each takes as long as the seed.
_TRIES = 200


@dataclass(frozen=True)
class Case:
    """What a seed stands for."""

    seed: int
    program: Program
    faults: int
    odds: Odds
    interval: float | None
    tolerable: int
    #: a few messages fill a frame and a buffer, so that subtasks wait and cycles spill
    is_small: bool

    def simulator(
        self, schedule: Sequence[Step] | None = None, mutation: Mutation | None = None, *, skips: bool = True
    ) -> Simulator:
        """The run of this seed; or with its graph and chance, and another schedule."""
        graph = self.program.graph()
        OUTSIDES[graph.name] = Outside()
        return Simulator(
            graph,
            self.seed if schedule is None else schedule,
            seed=self.seed,
            faults=self.faults,
            workers=self.program.workers,
            alignment=self.program.alignment,
            snapshotInterval=self.interval,
            tolerableFailedSnapshots=self.tolerable,
            restartPolicy=RestartPolicy(maxRestarts=None, delay=0.1, maxDelay=1.0),
            maxSteps=_STEPS_MAX,
            skipsImpossible=skips,
            odds=self.odds,
            mutation=mutation,
        )

    @property
    def outside(self) -> Outside:
        """What the last run of it has left."""
        return OUTSIDES[self.program.graph().name]


def case(seed: int) -> Case:
    """Every second seed is a program that is written down, every other one a generated graph."""
    chance = Random(f"case {seed}")
    kinds = list(SHAPES)
    is_written = seed % 2 == 0
    program = PROGRAMS[seed // 2 % len(PROGRAMS)] if is_written else walk_program(kinds[seed // 2 % len(kinds)], chance)
    odds = Odds(chance.choice((30, 100, 300)), requests=chance.randrange(3), stops=not chance.randrange(4))
    interval = chance.choice((None, 0.2, 0.5))
    faults, tolerable, is_small = chance.randrange(FAULTS_MAX + 1), chance.randrange(3), not chance.randrange(3)
    return Case(seed, program, faults, odds, interval, tolerable, is_small)


def run(case: Case, schedule: Sequence[Step] | None = None, mutation: Mutation | None = None) -> History:
    """One history, to its end, judged by all checkers.

    Raises
    ------
    CheckFailed
        naming the checker.
    """
    with _sizes(case):
        history = case.simulator(schedule, mutation).run()
    for verdict in (*judge(history, measure=case.program.measure), *known_result(case, history)):
        verdict.demand()
    return history


@contextmanager
def _sizes(case: Case) -> Iterator[None]:
    """Make frames and buffers small, if the case asks for that."""
    with pytest.MonkeyPatch.context() as patch:
        if case.is_small:
            patch.setattr(output_buffer, "BUFFER_BYTES_MAX", _SMALL_BUFFER_BYTES)
            patch.setattr(output_buffer, "BUFFER_FRAMES_MIN", 1)
            patch.setattr(channel_sender, "FRAME_BYTES_TARGET", _SMALL_FRAME_BYTES)
        yield


def known_result(case: Case, history: History) -> list[Verdict]:
    """Restore equivalence where the result of a run without faults is known without running it."""
    problems = case.outside.problems(case.program.rows)
    verdicts = [Verdict("output", not problems, "; ".join(problems))]
    for node, due in case.program.handled.items():
        ids = (fields(unpack(event.payload, history.codec))[0].id for event in history.handled(node))
        found = Counter(ids)
        text = f"{node}: lost {dict(due - found)}, too many {dict(found - due)}"
        verdicts.append(Verdict("restore equivalence", found == due, text))
    return verdicts


def checker_of(error: BaseException) -> str:
    """Who has found it."""
    return error.checker if isinstance(error, CheckFailed) else type(error).__name__


def fails(case: Case, schedule: Sequence[Step] | None = None, mutation: Mutation | None = None) -> Exception | None:
    """What is wrong with a history; None: nothing."""
    try:
        run(case, schedule, mutation)
    except Exception as error:  # noqa: BLE001  # whatever it is, it is what the seed found
        return error
    return None


def minimal(case: Case, schedule: Sequence[Step], checker: str, mutation: Mutation | None = None) -> list[Step]:
    """A short schedule that the same checker finds wrong: what is not needed is left out, in ever smaller pieces."""
    found = list(schedule)
    size, tries = len(found), 0
    while size and tries < _TRIES:
        start = 0
        while start < len(found) and tries < _TRIES:
            shorter = found[:start] + found[start + size :]
            tries += 1
            error = fails(case, shorter, mutation)
            if error is not None and checker_of(error) == checker:
                found = shorter
            else:
                start += size
        size //= 2
    return found


def report(case: Case, error: Exception, mutation: Mutation | None = None) -> str:
    """What went wrong, the line that repeats it, and a short schedule."""
    simulator = case.simulator(mutation=mutation)
    with suppress(Exception), _sizes(case):  # it is being reported
        simulator.run()
    schedule = minimal(case, simulator.history.schedule, checker_of(error), mutation)
    described = f"seed {case.seed}, {case.program.name}, {case.faults} faults: {checker_of(error)}: {error!r}"
    repeat = f"repeat with: python -m tests.snapshot.testing.campaign {case.seed}"
    return f"{described}\n{repeat}\nor run(case({case.seed}), {schedule})"


def main(arguments: Sequence[str]) -> int:
    """See the module's docstring; prints one line of JSON, with what was seen, at the end of many seeds."""
    numbers = [int(argument) for argument in arguments]
    if len(numbers) == 1:
        numbers = [numbers[0], numbers[0] + 1, 1]
    seen: Counter[str] = Counter()
    done: dict[str, Any] = {"seeds": 0, "events": 0, "steps": 0, "snapshots": 0}
    begun = perf_counter()
    for seed in range(*numbers):
        try:
            history = run(case(seed))
        except Exception as error:  # noqa: BLE001  # whatever it is, the seed goes with it
            print(report(case(seed), error))
            return 1
        seen.update(history.seen)
        done["seeds"] += 1
        done["events"] += len(history.events)
        done["steps"] += len(history.schedule)
        done["snapshots"] += len(history.snapshots)
    print(json.dumps({**done, "seconds": perf_counter() - begun, "seen": seen}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
