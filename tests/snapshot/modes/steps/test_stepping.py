"""Steps that a subtask repeats when it restores its log."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from cutline import InputLogging
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.ids import Subtask
from cutline.snapshot.modes.steps.determinants import At, Cut, Opened, encode_step
from cutline.snapshot.modes.steps.stepping import Stepping
from cutline.snapshot.plan.modes import row_of
from cutline.snapshot.subtask.restored import Restored


@pytest.mark.parametrize(("behind", "repeated"), [(None, [1, 2, 3]), (1, [2, 3]), (2, [3])])
def test_steps_up_to_the_restored_state_are_left_out(behind: int | None, repeated: list[int]) -> None:
    """The state of a snapshot has the step that ends with its cut. Without a state all steps are repeated."""
    seeds: list[str] = []
    context = SimpleNamespace(run="run", now=0.0, steps_left=0, seed_random=seeds.append)
    core = SimpleNamespace(
        subtask=Subtask("node"), context=context, codec=Codec(), inputs=(), outputs={}, is_sink=False,
        topology=SimpleNamespace(row=row_of(InputLogging())),
    )  # fmt: skip
    stepping = Stepping(cast("Any", core))
    steps = [encode_step([At(1.0), Opened("run"), At(1.0), Cut(1, (), (), ())])]
    steps += [encode_step([At(1.0), Cut(number, (), (), ())]) for number in (2, 3)]
    stepping.restoring(Restored(steps=[memoryview(step) for step in steps], base=behind))
    assert stepping.replay is not None
    found = []
    while (head := stepping.replay.head) is not None:
        found += [head.snapshot_id] if isinstance(head, Cut) else []
        stepping.replay.done()
    assert found == repeated
