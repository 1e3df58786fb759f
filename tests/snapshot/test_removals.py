"""Removals, exhaustively: coordinators, starts from older snapshots, forks and pins, paused before any call."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest

from snapshot.coordinator.fence import Fence
from snapshot.coordinator.fence_events import FenceEffect, WriteBase
from snapshot.stored import layout
from snapshot.stored.history import Base
from snapshot.stored.pins import PinKind
from snapshot.stored.run_store import RunStore, stored_history
from snapshot.stored.snapshot_edits import remove_snapshot
from snapshot.testing.exploration.search import search
from tests.snapshot import removal_model as model
from tests.snapshot.removal_model import FIRST, FORK, RUN, SECOND, Actor, Calls, Coordinator, Model, World

#: More than the largest world below has.
STATES_MAX = 100_000


def remove(calls: Calls) -> None:
    """A process without a coordinator removes the first snapshot."""
    remove_snapshot(calls.store(), FIRST)


OLD = Coordinator("A", running=(FIRST, SECOND))
OLDER = Coordinator("B", restore_from=FIRST)
LATEST = Coordinator("B")

#: {name: (actors, what is stored at first, what must have occurred somewhere)}
WORLDS: dict[str, tuple[dict[str, Actor], dict[str, bytes], set[str]]] = {
    "a-start-from-an-older": ({"A": OLD, "B": OLDER}, model.stored(), {"held", "refused", "removed"}),
    "a-start-from-the-newest": ({"A": OLD, "B": LATEST}, model.stored(), {"removed"}),
    "two-starts": (
        {"A": replace(OLD, publishes=0), "B": OLDER, "C": replace(LATEST, name="C", publishes=0)},
        model.stored(),
        {"held"},
    ),
    "a-fork": ({"A": OLD, "F": model.fork}, model.stored(), {"held", "refused", "removed"}),
    "a-fork-and-a-start": (
        {"A": OLD, "B": replace(OLDER, publishes=0), "F": model.fork},
        model.stored(),
        {"held", "refused", "removed"},
    ),
    "a-fork-afresh": ({"A": OLD, "F": model.fork_afresh}, model.stored(forked=True), {"held", "refused", "removed"}),
    "a-pin": ({"A": OLD, "B": replace(OLDER, publishes=0), "P": model.pin}, model.stored(), {"held", "refused"}),
    "a-pin-that-goes": ({"A": OLD, "P": model.pin_and_unpin, "B": OLDER}, model.stored(), {"held", "refused"}),
    "a-removal-on-request": ({"R": remove, "A": OLD, "B": LATEST}, model.stored(), {"removed"}),
    "a-removal-and-an-older": ({"R": remove, "A": OLD, "B": OLDER}, model.stored(), {"held", "removed"}),
    "shared-parts": ({"A": replace(OLD, publishes=2, reuses=True), "F": model.fork}, model.stored(), {"removed"}),
    "a-void-snapshot": (
        {"C": replace(LATEST, name="C", publishes=0, sweeps=True), "F": model.fork, "P": model.pin},
        model.stored(void=True),
        {"held"},
    ),
}


def situations(world: World) -> list[str]:
    """What must have occurred somewhere, or the exploration proves little."""
    files = dict(world.files)
    occurred = {
        "held": any(path.startswith(f"{RUN}/pins/") and b"removed" not in data for path, data in files.items()),
        "removed": f"{RUN}/{layout.manifest_path(FIRST)}" not in files,
        "refused": any(taken.is_over and not taken.notes for taken in world.actors[1:])
        and f"{RUN}/{layout.manifest_path(FIRST)}" not in files,
    }
    return [situation for situation, occurs in occurred.items() if occurs]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", WORLDS)
def test_nothing_that_is_needed_is_removed(name: str) -> None:
    """Whatever is paused, wherever: bases, forks and pins find their snapshot whole, or are refused by name."""
    actors, files, must_occur = WORLDS[name]
    explored = Model(actors)
    found = search(explored.initial(files), explored.steps, model.harm, seen=situations, states_max=STATES_MAX)
    print(found)
    assert found.violation is None, str(found)
    assert found.seen >= must_occur
