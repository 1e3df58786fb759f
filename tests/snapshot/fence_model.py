"""A toy run around the real `Fence`: one store, one transactional sink, several submissions of one run.

Every snapshot prepares one output record; publishing it commits what it holds. A step is one access to the
store or to the sink, so that everything between two accesses can happen. Whatever a lost coordinator or worker
had under way may still land at any later time, or never.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeVar, assert_never

from cutline.snapshot.coordinator.fence import Fence, FenceState
from cutline.snapshot.coordinator.fence_events import (
    Answer,
    BaseHeld,
    BaseWritten,
    CheckForClaim,
    ClaimLost,
    ClaimSeen,
    ClaimsListed,
    ClaimTaken,
    Continue,
    DecideManifest,
    FenceEvent,
    HistoryListed,
    HoldBase,
    ListClaims,
    ListHistory,
    ManifestAborted,
    ManifestUndecided,
    ManifestWritten,
    Publish,
    Published,
    Rollback,
    Start,
    Stop,
    StoreEffect,
    TakeClaim,
    Unpublished,
    WriteBase,
    WriteManifest,
)
from cutline.snapshot.ids import claim_of_snapshot, first_snapshot_id
from cutline.snapshot.stored.claim_digest import EMPTY, ClaimDigest, records
from cutline.snapshot.stored.history import Base, Claim, history, may_discard


class Prepared(NamedTuple):
    """Output that waits at the sink to be committed: record number `record`, counted from 1."""

    record: int
    snapshot_id: int
    incarnation: int


class Cut(NamedTuple):
    """What a snapshot says: all output ever, and what of it was not yet committed."""

    snapshot_id: int
    output: tuple[Prepared, ...]
    held: tuple[Prepared, ...]


class Commit(NamedTuple):
    """Make this output visible; a repetition changes nothing."""

    prepared: tuple[Prepared, ...]


class Discard(NamedTuple):
    """Remove what lower incarnations left uncommitted, after a restore under this one."""

    incarnation: int


class WriteCheckpoint(NamedTuple):
    """Copy the records that a coordinator has listed, for later starts (PROTOCOL 7.7, checkpoint)."""

    checkpoint: ClaimDigest


T = TypeVar("T")
SinkOperation = Commit | Discard
Operation = StoreEffect | SinkOperation | WriteCheckpoint
FrozenFence = tuple[tuple[str, object], ...]


class Workers(NamedTuple):
    """The processes that do the work; they may outlive their coordinator."""

    incarnation: int
    output: tuple[Prepared, ...]
    held: tuple[Prepared, ...]
    operations: tuple[SinkOperation, ...]  #: told, not yet done, in order


class Owner(NamedTuple):
    """One submission: its coordinator's present life, its workers, and what may still befall them."""

    name: str
    instance: int = 1
    fence: FrozenFence | None = None
    asked: StoreEffect | None = None
    bases: tuple[Base, ...] | None = None  #: of a listing that has not yet read the manifests
    workers: Workers | None = None
    adopts: bool = False  #: workers go on without a rollback (PROTOCOL 7.5, restart)
    snapshots: int = 0  #: this and the following: how many more
    crashes: int = 0
    rollbacks: int = 0
    doubts: int = 0
    gone: bool = False


class World(NamedTuple):
    """Store and sink as anybody could read them, and all who live."""

    owners: tuple[Owner, ...]
    claims: tuple[Claim, ...] = ()
    bases: tuple[Base, ...] = ()
    manifests: tuple[int, ...] = ()
    aborted: tuple[int, ...] = ()
    prepared: tuple[Prepared, ...] = ()
    committed: tuple[Prepared, ...] = ()
    late: tuple[tuple[Operation, ...], ...] = ()  #: under way when its process was lost; each in its order
    cuts: tuple[Cut, ...] = ()  #: what the manifest of each snapshot says, wherever it is
    lost: tuple[Prepared, ...] = ()  #: was to be committed and had been discarded
    given_up: tuple[int, ...] = ()  #: snapshots that their coordinator counts as aborted
    checkpoints: tuple[ClaimDigest, ...] = ()

    def cut(self, snapshot_id: int | None) -> Cut:
        """What the snapshot says; None is the beginning."""
        return next((cut for cut in self.cuts if cut.snapshot_id == snapshot_id), Cut(0, (), ()))

    def newest(self) -> Cut:
        """The newest snapshot of the history, as a reader finds it now."""
        return self.cut(max(history(self.bases, self.manifests), default=None))


def by_list(world: World, checkpoint: ClaimDigest) -> tuple[tuple[Claim, ...], tuple[Base, ...]]:
    """PROTOCOL 7.7: return the claims and bases that a reader of `checkpoint` finds. The real rule decides."""
    claims = {claim.number: claim for claim in world.claims}
    bases = {base.claim: base for base in world.bases}
    copied_claims = {claim.number: claim for claim in checkpoint.claims}
    copied_bases = {base.claim: base for base in checkpoint.bases}
    return (
        tuple(records(sorted(claims), copied_claims, claims.__getitem__)),
        tuple(records(sorted(bases), copied_bases, bases.__getitem__)),
    )


@dataclass(frozen=True)
class Model:
    """The steps of a world. `fence`, `discards`, `reads` and `copies` are replaced to show what a missing rule does."""

    fence: type[Fence] = Fence
    discards: Callable[[int, int], bool] = may_discard
    #: what a reader finds by means of a checkpoint
    reads: Callable[[World, ClaimDigest], tuple[tuple[Claim, ...], tuple[Base, ...]]] = by_list
    #: each listing may write a checkpoint, at once or at any later time, or never
    copies: bool = False

    # ---- what can happen

    def steps(self, world: World) -> Iterator[tuple[str, World]]:
        """Every step that some process, or a delayed operation, can take now."""
        for first, *rest in world.late:
            others = tuple(other for other in world.late if other != (first, *rest))
            yield f"late: {first}", self._land(world._replace(late=(*others, tuple(rest))), first)
        for index, owner in enumerate(world.owners):
            if not owner.gone:
                yield from self._steps_of(world, index, owner)

    def _steps_of(self, world: World, index: int, owner: Owner) -> Iterator[tuple[str, World]]:
        who = f"{owner.name}{owner.instance}"
        if owner.workers is not None and owner.workers.operations:
            yield f"{who}: sink does {owner.workers.operations[0]}", self._do_at_sink(world, index, owner.workers)
        if owner.fence is None:
            yield f"{who}: starts", self._step(world, index, Start())
            return
        if owner.asked is not None:
            yield from self._answers(world, index, owner.asked)
        state = self._thaw(owner).state
        if state is FenceState.READY and owner.snapshots and _restored(owner.workers):
            yield f"{who}: cuts", self._snapshot(world, index)
        if state in (FenceState.READY, FenceState.PUBLISHING) and owner.rollbacks:
            yield f"{who}: rolls back", self._rollback(world, index)
        if owner.crashes:
            yield f"{who}: coordinator lost", self._lose_coordinator(world, index)
            yield f"{who}: all lost", self._lose_all(world, index)

    def _snapshot(self, world: World, index: int) -> World:
        owner = world.owners[index]
        workers = owner.workers
        assert workers is not None
        claim = self._thaw(owner).claim
        used = sum(claim_of_snapshot(cut.snapshot_id) == claim for cut in world.cuts)
        new = Prepared(len(workers.output) + 1, first_snapshot_id(claim) + used, workers.incarnation)
        workers = workers._replace(output=(*workers.output, new), held=(*workers.held, new))
        world = world._replace(
            prepared=_with(world.prepared, new),
            cuts=_with(world.cuts, Cut(new.snapshot_id, workers.output, workers.held)),
        )
        world = _update(world, index, workers=workers, snapshots=owner.snapshots - 1)
        return self._step(world, index, Publish(new.snapshot_id))

    def _rollback(self, world: World, index: int) -> World:
        """The workers wait as they are: should the coordinator be lost now, its next life adopts them."""
        owner = world.owners[index]
        world = _leave_behind(world, _asked(owner), _operations(owner))
        waiting = owner.workers._replace(operations=()) if owner.workers is not None else None
        world = _update(world, index, asked=None, workers=waiting, adopts=False, rollbacks=owner.rollbacks - 1)
        return self._step(world, index, Rollback())

    def _lose_coordinator(self, world: World, index: int) -> World:
        owner = world.owners[index]
        world = _leave_behind(world, _asked(owner))
        changed = dict(instance=owner.instance + 1, fence=None, asked=None, bases=None, crashes=owner.crashes - 1)
        return _update(world, index, adopts=owner.workers is not None, **changed)

    def _lose_all(self, world: World, index: int) -> World:
        world = _leave_behind(world, _operations(world.owners[index]))
        return self._lose_coordinator(_update(world, index, workers=None), index)

    # ---- the fence

    def _thaw(self, owner: Owner) -> Fence:
        fence = self.fence(owner.name, f"{owner.name}{owner.instance}")
        fence.__dict__.update(owner.fence or ())
        return fence

    def _step(self, world: World, index: int, event: FenceEvent) -> World:
        fence = self._thaw(world.owners[index])
        effects = fence.step(event)
        world = _update(world, index, fence=tuple(vars(fence).items()))
        for effect in effects:
            match effect:
                case Continue():
                    world = self._continue(world, index, effect)
                case Published(snapshot_id):
                    world = self._commit(world, index, world.cut(snapshot_id))
                case Unpublished(snapshot_id):
                    world = world._replace(given_up=_with(world.given_up, snapshot_id))
                case Stop(claim):
                    world = self._stop(world, index, claim)
                case _:
                    world = _update(world, index, asked=effect)
        return world

    def _continue(self, world: World, index: int, effect: Continue) -> World:
        cut = world.cut(effect.snapshot_id)
        if world.owners[index].adopts:
            return self._commit(world, index, cut)
        operations = (Commit(cut.held), Discard(effect.claim))
        return _update(world, index, workers=Workers(effect.claim, cut.output, cut.held, operations))

    def _commit(self, world: World, index: int, cut: Cut) -> World:
        workers = world.owners[index].workers
        assert workers is not None
        return _update(world, index, workers=workers._replace(operations=(*workers.operations, Commit(cut.held))))

    def _stop(self, world: World, index: int, claim: Claim) -> World:
        owner = world.owners[index]
        world = _leave_behind(world, _operations(owner))
        gone = Owner(owner.name, owner.instance, gone=True)
        if claim.owner == owner.name and owner.crashes:
            gone = owner._replace(
                instance=owner.instance + 1, fence=None, workers=None, adopts=False, crashes=owner.crashes - 1
            )
        return world._replace(owners=(*world.owners[:index], gone, *world.owners[index + 1 :]))

    # ---- the store

    def _answers(self, world: World, index: int, asked: StoreEffect) -> Iterator[tuple[str, World]]:
        owner = world.owners[index]
        who = f"{owner.name}{owner.instance}"
        for checkpoint in world.checkpoints or (EMPTY,):
            claims, bases = self.reads(world, checkpoint)
            if isinstance(asked, ListHistory) and owner.bases is None:
                listed = _update(world, index, bases=bases)
                if self.copies:
                    copy = ClaimDigest(asked.claim, claims, bases, ())
                    listed = _leave_behind(listed, (WriteCheckpoint(copy),))
                yield f"{who}: lists bases", listed
            elif isinstance(asked, ListClaims):
                answered = _update(world, index, asked=None)
                yield f"{who}: lists claims", self._step(answered, index, ClaimsListed(asked, claims))
        if isinstance(asked, ListClaims) or (isinstance(asked, ListHistory) and owner.bases is None):
            return
        answered = _update(self._land(world, asked), index, asked=None, bases=None)
        yield f"{who}: {asked}", self._step(answered, index, _answer(world, answered, owner.bases or (), asked))
        if isinstance(asked, WriteManifest) and owner.doubts:
            doubtful = _update(_leave_behind(world, (asked,)), index, asked=None, doubts=owner.doubts - 1)
            yield f"{who}: {asked} undecided", self._step(doubtful, index, ManifestUndecided(asked))

    def _land(self, world: World, operation: Operation) -> World:
        match operation:
            case TakeClaim(claim):
                taken = any(claim.number == other.number for other in world.claims)
                world = world if taken else world._replace(claims=(*world.claims, claim))
            case WriteBase(base):
                world = world._replace(bases=_with(world.bases, base))
            case WriteManifest(snapshot_id):
                if snapshot_id not in world.aborted:
                    world = world._replace(manifests=_with(world.manifests, snapshot_id))
            case DecideManifest(snapshot_id):
                if snapshot_id not in world.manifests:
                    world = world._replace(aborted=_with(world.aborted, snapshot_id))
            case ListClaims() | ListHistory() | HoldBase() | CheckForClaim():
                pass
            case WriteCheckpoint(checkpoint):
                world = world._replace(checkpoints=_with(world.checkpoints, checkpoint))
            case _:
                world = self._land_at_sink(world, operation)
        return _leave_behind(world)

    # ---- the sink

    def _do_at_sink(self, world: World, index: int, workers: Workers) -> World:
        operation = workers.operations[0]
        world = self._land(world, operation)
        held = tuple(p for p in workers.held if p not in world.committed)
        return _update(world, index, workers=workers._replace(operations=workers.operations[1:], held=held))

    def _land_at_sink(self, world: World, operation: SinkOperation) -> World:
        match operation:
            case Commit(prepared):
                for one in prepared:
                    if one not in world.committed and one not in world.prepared:
                        world = world._replace(lost=_with(world.lost, one))
                done = tuple(one for one in prepared if one in world.prepared)
                kept = tuple(one for one in world.prepared if one not in done)
                return world._replace(prepared=kept, committed=_with(world.committed, *done))
            case Discard(incarnation):
                kept = tuple(p for p in world.prepared if not self.discards(p.incarnation, incarnation))
                return world._replace(prepared=kept)
            case _:
                assert_never(operation)


def _answer(before: World, after: World, bases: tuple[Base, ...], asked: StoreEffect) -> Answer:
    match asked:
        case TakeClaim(claim):
            holder = next(other for other in after.claims if other.number == claim.number)
            return ClaimTaken(asked) if holder == claim else ClaimLost(asked, holder)
        case ListHistory():
            return HistoryListed(asked, bases, after.manifests)
        case HoldBase():
            return BaseHeld(asked, True)  # because nothing is removed in this model
        case WriteBase():
            return BaseWritten(asked)
        case CheckForClaim(number):
            return ClaimSeen(asked, next((claim for claim in after.claims if claim.number == number), None))
        case WriteManifest(snapshot_id):
            known = snapshot_id in before.manifests or snapshot_id in before.aborted
            return ManifestUndecided(asked) if known else ManifestWritten(asked)
        case DecideManifest(snapshot_id):
            return ManifestWritten(asked) if snapshot_id in after.manifests else ManifestAborted(asked)
        case _:
            raise AssertionError(f"{asked} is answered by the reader of a checkpoint")


def _update(world: World, index: int, **changes: object) -> World:
    owner = world.owners[index]._replace(**changes)  # type: ignore[arg-type]
    return world._replace(owners=(*world.owners[:index], owner, *world.owners[index + 1 :]))


def _with(items: tuple[T, ...], *new: T) -> tuple[T, ...]:
    return tuple(sorted({*items, *new}, key=repr))


def _operations(owner: Owner) -> tuple[SinkOperation, ...]:
    return owner.workers.operations if owner.workers is not None else ()


def _restored(workers: Workers | None) -> bool:
    return workers is not None and not any(isinstance(operation, Discard) for operation in workers.operations)


def _asked(owner: Owner) -> tuple[Operation, ...]:
    return () if owner.asked is None else (owner.asked,)


def _leave_behind(world: World, *sequences: tuple[Operation, ...]) -> World:
    """Keep what may still land and would change something; two worlds that differ in nothing else are one."""
    late = [tuple(op for op in sequence if _matters(world, op)) for sequence in (*world.late, *sequences)]
    return world._replace(late=_with((), *filter(None, late)))


def _matters(world: World, operation: Operation) -> bool:
    match operation:
        case TakeClaim(claim):
            return all(claim.number != other.number for other in world.claims)
        case WriteBase(base):
            return base not in world.bases
        case WriteManifest(snapshot_id) | DecideManifest(snapshot_id):
            return snapshot_id not in world.manifests and snapshot_id not in world.aborted
        case Commit(prepared):
            return any(one not in world.committed for one in prepared)
        case WriteCheckpoint(checkpoint):
            return checkpoint not in world.checkpoints
        case Discard():
            return True
        case _:
            return False
