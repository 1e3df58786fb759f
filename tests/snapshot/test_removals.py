"""Removals, exhaustively: coordinators, starts from older snapshots, forks and pins, paused before any call."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest

from cutline.snapshot.coordinator.fence import Fence
from cutline.snapshot.coordinator.fence_events import FenceEffect, WriteBase
from cutline.snapshot.stored import layout
from cutline.snapshot.stored.history import Base
from cutline.snapshot.stored.pins import PinKind
from cutline.snapshot.stored.run_store import RunStore, stored_history
from cutline.snapshot.stored.snapshot_edits import remove_snapshot
from cutline.snapshot.testing.exploration.search import search
from tests.snapshot import removal_model as model
from tests.snapshot.removal_model import FIRST, RUN, Actor, Calls, Coordinator, Model, World

#: More than the largest world below has.
STATES_MAX = 100_000


def remove(calls: Calls) -> None:
    """A process without a coordinator removes the first snapshot."""
    remove_snapshot(calls.store(), FIRST)


OLD = Coordinator("A", running=(FIRST, FIRST + 1))
#: removes the first snapshot only
OLD_KEEPS_TWO = replace(OLD, retained=2)
OLDER = Coordinator("B", restore_from=FIRST)
LATEST = Coordinator("B")
STARTS_OLDER, STARTS_LATEST = replace(OLDER, publishes=0), replace(LATEST, publishes=0)

#: {name: (actors, what is stored at first, what must have occurred somewhere)}
WORLDS: dict[str, tuple[dict[str, Actor], dict[str, bytes], set[str]]] = {
    "a-start-from-an-older": ({"A": OLD, "B": OLDER}, model.stored(), {"held", "refused", "removed"}),
    "a-start-from-the-newest": ({"A": OLD, "B": LATEST}, model.stored(), {"removed"}),
    "two-starts": (
        {"A": OLD_KEEPS_TWO, "B": STARTS_OLDER, "C": replace(STARTS_LATEST, name="C")},
        model.stored(),
        {"held", "refused", "removed"},
    ),
    "a-fork": ({"A": OLD, "F": model.fork}, model.stored(), {"held", "refused", "removed"}),
    "a-fork-and-a-start": (
        {"A": OLD_KEEPS_TWO, "B": STARTS_OLDER, "F": model.fork},
        model.stored(),
        {"held", "refused", "removed"},
    ),
    "a-fork-afresh": ({"A": OLD, "F": model.fork_afresh}, model.stored(forked=True), {"held", "refused", "removed"}),
    "a-pin": ({"A": OLD_KEEPS_TWO, "B": STARTS_OLDER, "P": model.pin}, model.stored(), {"held", "refused"}),
    "a-pin-that-goes": (
        {"A": OLD_KEEPS_TWO, "P": model.pin_and_unpin, "B": STARTS_OLDER},
        model.stored(),
        {"held", "refused"},
    ),
    "a-removal-on-request": ({"R": remove, "A": OLD_KEEPS_TWO, "B": STARTS_LATEST}, model.stored(), {"removed"}),
    "a-removal-and-an-older": ({"R": remove, "B": OLDER}, model.stored(), {"held", "removed"}),
    "shared-parts": ({"A": replace(OLD, publishes=2, reuses=True), "F": model.fork}, model.stored(), {"removed"}),
    "a-void-snapshot": (
        {"C": replace(STARTS_LATEST, name="C", sweeps=True), "F": model.fork},
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


# ---- teeth: each part of the rule taken away


class OnlyReads(RunStore):
    """Without the decision: read who holds the snapshot, as late as can be, and remove it."""

    def delete_snapshot(self, snapshot_id: int, keep: Collection[int], claim: int) -> bool:
        kept = self._paths_of(keep)
        paths = self._known_of(snapshot_id).paths
        if self.read_claim(claim + 1) is not None or self.pins.log(snapshot_id):
            return False
        self.backend.delete(f"{RUN}/{layout.manifest_path(snapshot_id)}")
        self.backend.delete(*(f"{RUN}/{path}" for path in paths if path not in kept))
        return True


class HoldsWithoutReading(RunStore):
    """Without the look at the manifest: a removal may be over, and its log gone."""

    def hold(self, snapshot_id: int, kind: PinKind, holder: str = "") -> bool:
        return self.pins.hold(snapshot_id, kind, holder)


class RemovesTheLogFirst(RunStore):
    """Without the order: a holder finds no log, and still finds the manifest."""

    def delete_snapshot(self, snapshot_id: int, keep: Collection[int], claim: int) -> bool:
        known = self._known_of(snapshot_id)
        log = self.pins.remove(snapshot_id, in_manifest=False, claim=claim, is_needed_by=self._is_needed_by)
        if log:
            self.backend.delete(*log)
            self.backend.delete(f"{RUN}/{layout.manifest_path(snapshot_id)}")
            self.backend.delete(*(f"{RUN}/{path}" for path in known.paths))
        return bool(log)


class HoldsOnce(RunStore):
    """Without a new entry for each hold: a removal may just have found that the old one is not needed."""

    def hold(self, snapshot_id: int, kind: PinKind, holder: str = "") -> bool:
        mine = any((entry.kind, entry.holder) == (kind, holder) for entry in self.pins.log(snapshot_id))
        return mine or super().hold(snapshot_id, kind, holder)


class ForgetsForks(RunStore):
    """Without the fork's hold."""

    def _is_needed_by(self, fork: str) -> bool:
        return False


class SweepsVoidParts(RunStore):
    """Without the void manifests: sweep every part that the history does not list."""

    def manifests(self, bases: object = None) -> tuple[int, ...]:
        return super().manifests(self.bases())


class HoldsNothing(Fence):
    """Without the hold of an older base."""

    def _ask(self, effect: object) -> list[FenceEffect]:
        base = getattr(effect, "base", None)
        return super()._ask(WriteBase(base) if isinstance(base, Base) else effect)  # type: ignore[arg-type]


def remove_beside_a_start(calls: Calls) -> None:
    """Without the check for the base of the highest claim."""
    store = calls.store()
    claim = max(each.number for each in store.claims())
    snapshots = stored_history(store)
    if FIRST in snapshots[:-1]:
        store.delete_snapshot(FIRST, [each for each in store.manifests() if each != FIRST], claim)


ONE = model.stored(published=1)


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("without", "files", "violation"),
    [
        pytest.param(
            Model({"A": OLD_KEEPS_TWO, "B": STARTS_OLDER}, OnlyReads),
            model.stored(),
            f"the newest snapshot {FIRST} is gone",
            id="decision",
        ),
        pytest.param(
            Model({"A": OLD_KEEPS_TWO, "F": model.fork}, OnlyReads),
            model.stored(),
            "a fork reads a snapshot that is gone",
            id="decision-fork",
        ),
        pytest.param(
            Model({"A": OLD_KEEPS_TWO, "P": model.pin}, OnlyReads),
            model.stored(),
            "a pinned snapshot is gone",
            id="decision-pin",
        ),
        pytest.param(
            Model({"A": OLD_KEEPS_TWO, "B": replace(STARTS_OLDER, fence=HoldsNothing)}),
            model.stored(),
            f"the newest snapshot {FIRST} is gone",
            id="hold-of-an-older-base",
        ),
        pytest.param(
            Model({"A": replace(OLD_KEEPS_TWO, removes_under=lambda claim: claim + 9), "B": STARTS_OLDER}),
            model.stored(),
            f"the newest snapshot {FIRST} is gone",
            id="claims-below",
        ),
        pytest.param(
            Model({"A": OLD_KEEPS_TWO, "B": STARTS_OLDER}, HoldsWithoutReading),
            model.stored(),
            f"the newest snapshot {FIRST} is gone",
            id="manifest-read-again",
        ),
        pytest.param(
            Model({"A": OLD_KEEPS_TWO, "B": STARTS_OLDER}, RemovesTheLogFirst),
            model.stored(),
            f"the newest snapshot {FIRST} is gone",
            id="log-after-the-manifest",
        ),
        pytest.param(
            Model({"A": OLD_KEEPS_TWO, "F": model.fork_afresh}, HoldsOnce),
            model.stored(forked=True),
            "a fork reads a snapshot that is gone",
            id="a-new-entry-each-time",
        ),
        pytest.param(
            Model({"A": OLD_KEEPS_TWO, "F": model.fork}, ForgetsForks),
            model.stored(),
            "a fork reads a snapshot that is gone",
            id="forks",
        ),
        pytest.param(
            Model({"A": replace(OLD, publishes=2, reuses=True, keeps=lambda kept: [])}),
            model.stored(),
            "a manifest of origin without its part",
            id="shared-parts",
        ),
        pytest.param(
            Model({"C": replace(STARTS_LATEST, name="C", sweeps=True)}, SweepsVoidParts),
            model.stored(void=True),
            "a manifest of origin without its part",
            id="void-manifests",
        ),
        pytest.param(
            Model({"A": replace(OLD, running=(FIRST,), retained=9), "B": STARTS_LATEST, "R": remove_beside_a_start}),
            ONE,
            f"the newest snapshot {FIRST} is gone",
            id="base-of-the-highest-claim",
        ),
    ],
)
def test_without_a_part_of_the_rule_something_needed_is_removed(
    without: Model, files: dict[str, bytes], violation: str
) -> None:
    """Each part of the rule is needed: without it the exploration finds the named harm."""
    found = search(without.initial(files), without.steps, model.harm, states_max=STATES_MAX)
    print(found)
    assert found.violation == violation


@pytest.mark.timeout(120)
def test_a_removal_beside_a_start_waits_for_its_base() -> None:
    """The rule whose lack the last tooth shows."""
    actors: dict[str, Actor] = {"A": replace(OLD, running=(FIRST,), retained=9), "B": STARTS_LATEST, "R": remove}
    explored = Model(actors)
    found = search(explored.initial(ONE), explored.steps, model.harm, states_max=STATES_MAX)
    assert found.violation is None, str(found)
