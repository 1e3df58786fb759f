"""Removals of snapshots, call by call: the real fence and the real store, with a pause before each call of the backend.

An actor is a plain function over the store of its run. A step lets one actor make its next call. To get there the
function runs again from its beginning, and its former calls are answered from a record. So a state is the files and the
answers that each actor has received, and every state can be left by any actor. Reads of records that stay for ever, and
writes of an own part, change nothing for others, so they happen with the call before. An actor that never takes its
next step is paused or dead; one that takes it late is a process that was stopped, or a request that landed late.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

from cutline.snapshot.coordinator.fence import Fence
from cutline.snapshot.coordinator.fence_answers import perform
from cutline.snapshot.coordinator.fence_events import (
    Answer,
    BaseWritten,
    ClaimSeen,
    ClaimsListed,
    ClaimTaken,
    Continue,
    FenceEvent,
    HistoryListed,
    Publish,
    Published,
    RestoreFrom,
    Start,
    Stop,
    Unpublished,
    WriteManifest,
)
from cutline.snapshot.errors import Fenced, RestoreRefused, SnapshotInUse
from cutline.snapshot.ids import claim_of_snapshot, first_snapshot_id
from cutline.snapshot.stored import layout
from cutline.snapshot.stored.backend import StateBackend
from cutline.snapshot.stored.certificate import SubtaskRecord
from cutline.snapshot.stored.history import Base, Claim, history
from cutline.snapshot.stored.manifest import Manifest, decode_manifest
from cutline.snapshot.stored.memory_files import MemoryFiles
from cutline.snapshot.stored.part import Handle, PartKind
from cutline.snapshot.stored.pins import PinKind
from cutline.snapshot.stored.run_store import RunStore
from cutline.snapshot.stored.snapshot_edits import set_pinned
from tests.snapshot import sample

RUN, FORK = "origin", "fork"
FIRST, SECOND, THIRD = (first_snapshot_id(1) + number for number in range(3))

#: An actor: its store, and where it notes what others may count on from then on.
Actor = Callable[["Calls"], None]


class Taken(NamedTuple):
    """What an actor has done so far."""

    answers: tuple[object, ...] = ()
    notes: tuple[str, ...] = ()
    is_over: bool = False


class World(NamedTuple):
    """The files as anybody could read them, and all actors."""

    files: frozenset[tuple[str, bytes]]
    actors: tuple[Taken, ...]


class _Paused(BaseException):
    """Ends a function before the call that it may not make yet."""


class Calls(StateBackend):
    """The backend of one actor: known answers first, then one call on the files, then a pause."""

    def __init__(self, files: dict[str, bytes], answers: Sequence[object], store: type[RunStore]) -> None:
        super().__init__(inline_bytes_max=0)
        self.answers = list(answers)
        self.notes: list[str] = []
        self._files_now = MemoryFiles(files)
        self._known = len(answers)
        self._at = 0
        self._store = store

    def store(self, run: str = RUN) -> RunStore:
        """The store of a run."""
        return self._store(self, run)

    def note(self, text: str) -> None:
        """Others may count on this from now on."""
        self.notes.append(text)

    def __str__(self) -> str:
        return "calls:"

    def _next(self, call: Callable[[MemoryFiles], object], *, commutes: bool = False) -> Any:
        """Return the answer of the next call. A call that `commutes` with all others needs no pause before it."""
        if self._at == len(self.answers):
            if self._at > self._known and not commutes:
                raise _Paused
            self._known += commutes
            try:
                self.answers.append(call(self._files_now))
            except FileNotFoundError:
                self.answers.append(FileNotFoundError)
        self._at += 1
        answer = self.answers[self._at - 1]
        if answer is FileNotFoundError:
            raise FileNotFoundError("no such file")
        return answer

    def _put_if_absent(self, path: str, chunks: Sequence[memoryview]) -> bool:
        return bool(self._next(lambda files: files.put_if_absent(path, chunks), commutes="/parts/" in path))

    def _get(self, path: str, offset: int, size: int | None) -> bytes:
        is_for_ever = ("/claims/" in path or "/bases/" in path) and self._files_now.exists(path)
        return bytes(self._next(lambda files: files.get(path, offset, size), commutes=is_for_ever))

    def _exists(self, path: str) -> bool:
        return bool(self._next(lambda files: files.exists(path)))

    def _files(self, prefix: str) -> list[str]:
        is_for_ever = prefix.endswith("/checkpoints")  # because so few claims write none
        return list(self._next(lambda files: tuple(files.files(prefix)), commutes=is_for_ever))

    def _delete(self, paths: Sequence[str]) -> None:
        for path in paths:  # one by one, because a store may stop between two
            self._next(lambda files, path=path: files.delete(path))  # type: ignore[misc]  # defaults bind now


@dataclass(frozen=True)
class Model:
    """The steps of a world. `store` is replaced to show what a missing rule does."""

    actors: Mapping[str, Actor]
    store: type[RunStore] = RunStore

    def initial(self, files: Mapping[str, bytes]) -> World:
        """All actors before their first call."""
        return World(frozenset(files.items()), (Taken(),) * len(self.actors))

    def steps(self, world: World) -> Iterator[tuple[str, World]]:
        """Each actor's next call."""
        for index, (name, actor) in enumerate(self.actors.items()):
            if world.actors[index].is_over:
                continue
            files = dict(world.files)
            calls, is_over = Calls(files, world.actors[index].answers, self.store), True
            try:
                actor(calls)
            except _Paused:
                is_over = False
            except (Fenced, FileNotFoundError, RestoreRefused, SnapshotInUse):
                pass  # the actor gives up by name, which harms nobody
            taken = Taken(tuple(calls.answers), tuple(calls.notes), is_over)
            actors = (*world.actors[:index], taken, *world.actors[index + 1 :])
            yield f"{name}: call {len(taken.answers)}", World(frozenset(files.items()), actors)


# ---- what is stored at first


def stored(*, published: int = 2, void: bool = False, forked: bool = False) -> dict[str, bytes]:
    """A run whose claim 1 has published some snapshots; with `void`, the second was left behind by claim 2.

    With `forked`, a fork of the first snapshot has its own snapshot already.
    """
    files: dict[str, bytes] = {}
    store = RunStore(backend := MemoryFiles(files, inline_bytes_max=0), RUN)
    store.take_claim(Claim(1, "A", "A1"))
    store.write_base(Base(1, None))
    for snapshot_id in range(FIRST, FIRST + published):
        publish(store, snapshot_id, 1)
    if void:
        store.take_claim(Claim(2, "A", "A2"))
        store.write_base(Base(2, FIRST))
    if forked:
        store.hold(FIRST, PinKind.FORK, FORK)
        fork = RunStore(backend, FORK)
        fork.take_claim(Claim(1, "F", "F1"))
        fork.write_base(Base(1, None))
        publish(fork, first_snapshot_id(1), 1)
    return files


def handle(run: str, snapshot_id: int, incarnation: int) -> Handle:
    """The handle of the one part of a snapshot."""
    made = Handle(PartKind.STATE, run, incarnation, snapshot_id, sample.P, None, 0, 0, 1, b"", "", None)
    return replace(made, path=layout.parts_path(made))


def manifest(run: str, snapshot_id: int, incarnation: int, *reused: Handle) -> Manifest:
    """A manifest with its own part, and parts of other snapshots."""
    handles = (handle(run, snapshot_id, incarnation), *reused)
    record = SubtaskRecord(sample.P, incarnation, handles, (), (), sample.SUBTASK_STATUS)
    return Manifest(run, snapshot_id, incarnation, incarnation, 0.0, 0.0, False, False, {}, (record,))


def publish(store: RunStore, snapshot_id: int, incarnation: int) -> None:
    """Store the part and the manifest."""
    made = manifest(store.run, snapshot_id, incarnation)
    store.backend.put_if_absent(f"{store.run}/{made.records[0].handles[0].path}", [b"x"])
    store.write_manifest(made)


# ---- actors


@dataclass(frozen=True)
class Coordinator:
    """Start or go on, publish some snapshots, keep the newest `retained`, and sweep at the end."""

    name: str
    restore_from: RestoreFrom = "latest"
    publishes: int = 1
    retained: int = 1
    #: snapshots that this coordinator knows as its history under claim 1; empty: it starts anew
    running: tuple[int, ...] = ()
    reuses: bool = False  #: each snapshot lists the part of the one before, too
    sweeps: bool = False
    fence: type[Fence] = Fence
    #: the claim under which snapshots are removed, from the claim of the coordinator
    removes_under: Callable[[int], int] = lambda claim: claim
    #: of the snapshots that stay, those whose parts are kept
    keeps: Callable[[list[int]], list[int]] = lambda kept: kept

    def __call__(self, calls: Calls) -> None:
        fence, store = self.fence(self.name, f"{self.name}1", self.restore_from), calls.store()
        effect = self._go_on(fence) if self.running else self._drive(fence, store, Start(), None)
        if not isinstance(effect, Continue):
            return
        snapshots = list(effect.history)
        for number in range(self.publishes):
            snapshot_id = first_snapshot_id(effect.claim) + number + len(self.running)
            before = [handle(RUN, snapshots[-1], claim_of_snapshot(snapshots[-1]))] if self.reuses else []
            made = manifest(RUN, snapshot_id, effect.claim, *before)
            calls.put_if_absent(f"{RUN}/{made.records[0].handles[0].path}", [b"x"])
            if not isinstance(self._drive(fence, store, Publish(snapshot_id), made), Published):
                return
            snapshots.append(snapshot_id)
            for expired in snapshots[: -self.retained]:
                kept = [each for each in snapshots if each != expired]
                if store.delete_snapshot(expired, self.keeps(kept), self.removes_under(effect.claim)):
                    snapshots.remove(expired)
        if self.sweeps:
            store.collect_orphans(snapshots, effect.claim, grace=0, now=0)

    def _go_on(self, fence: Fence) -> Continue:
        """A fence that is past its start, without calls."""
        (asked,) = fence.step(Start())
        answers: list[Callable[[Any], Answer]] = [
            *(lambda asked: ClaimsListed(asked, ()), ClaimTaken, lambda asked: HistoryListed(asked, (), ())),
            *(BaseWritten, lambda asked: ClaimSeen(asked, None)),
        ]
        for answer in answers:
            (asked,) = fence.step(answer(asked))
        return Continue(1, self.running)

    def _drive(self, fence: Fence, store: RunStore, event: FenceEvent, made: Manifest | None) -> object:
        effects = fence.step(event)
        while not isinstance(effects[0], Continue | Published | Unpublished | Stop):
            written = made if isinstance(effects[0], WriteManifest) else None
            effects = fence.step(perform(store, effects[0], written))
        return effects[0]


def fork(calls: Calls) -> None:
    """A new fork of the first snapshot: the driver holds it, the coordinator holds it again, then publishes its own."""
    if not calls.store().hold(FIRST, PinKind.FORK, FORK):
        return
    calls.note("forked")
    own = calls.store(FORK)
    own.take_claim(Claim(1, "F", "F1"))
    own.write_base(Base(1, None))
    assert calls.store().hold(FIRST, PinKind.FORK, FORK), "a fork that was accepted can start"
    publish(own, first_snapshot_id(1), 1)


def fork_afresh(calls: Calls) -> None:
    """A fork that has its own snapshot begins afresh, and reads the first snapshot of the origin again."""
    own = calls.store(FORK)
    own.take_claim(Claim(2, "F", "F2"))
    own.write_base(Base(2, None))
    if calls.store().hold(FIRST, PinKind.FORK, FORK):
        calls.note("forked")


def pin(calls: Calls) -> None:
    """A process without a coordinator pins the first snapshot."""
    set_pinned(calls.store(), FIRST, True)
    calls.note("pinned")


def pin_and_unpin(calls: Calls) -> None:
    """A pin that does not last: the entries that `set_pinned` adds, without its reads, which only make more states."""
    store = calls.store()
    if store.hold(FIRST, PinKind.PINNED):
        store.hold(FIRST, PinKind.UNPINNED)


# ---- what must hold in every state


@cache
def _parts_of(data: bytes, run: str) -> tuple[str, ...]:
    found = decode_manifest(data, "manifest")
    assert isinstance(found, Manifest)
    return tuple(f"{run}/{each.path}" for record in found.records for each in record.handles)


def harm(world: World) -> str | None:
    """A snapshot that is needed and gone, or a manifest whose parts are gone."""
    files = dict(world.files)
    for run in (RUN, FORK):
        for path, data in files.items():
            if path.startswith(f"{run}/snapshots/"):
                missing = [part for part in _parts_of(data, run) if part not in files]
                if missing:
                    return f"a manifest of {run} without its part"
    store = RunStore(MemoryFiles(files), RUN)
    there = store.manifests()
    snapshots = history(store.bases(), there)
    if snapshots and snapshots[-1] not in there:
        return f"the newest snapshot {snapshots[-1]} is gone"
    notes = [note for taken in world.actors for note in taken.notes]
    fork_store = RunStore(MemoryFiles(files), FORK)
    own = history(fork_store.bases(), fork_store.manifests())
    if "forked" in notes and not own and FIRST not in there:
        return "a fork reads a snapshot that is gone"
    if "pinned" in notes and FIRST not in there:
        return "a pinned snapshot is gone"
    return None
