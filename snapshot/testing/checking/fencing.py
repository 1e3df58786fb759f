"""Checker 8: leftovers of an older incarnation change nothing that is published."""

from __future__ import annotations

from cutline.snapshot.ids import Subtask
from cutline.snapshot.testing.checking.verdict import Verdict, verdict_of
from cutline.snapshot.testing.history import History
from cutline.snapshot.trace_events import Event, Kind


def fencing(history: History) -> Verdict:
    """Check that once an incarnation has begun, no earlier incarnation publishes, and that no id is used again.

    An incarnation begins when its first subtask is restored. Until then a new coordinator instance may go on without
    that incarnation. A restored snapshot must be published, and the newest published. A committed snapshot must be
    published. An older incarnation commits only what the newer incarnations were restored from, or what is older. The
    verdict has the number of refused leftovers: none beside a zombie means that the zombie tried nothing.

    Returns
    -------
    Verdict
        Problems name the snapshot, the incarnation and the subtask.
    """
    fence = _Fence(history)
    for event in history.events:
        fence.on_event(event)
    fine = f"{fence.begun} incarnations, {len(fence.published)} snapshots, {fence.refused} leftovers refused"
    return verdict_of("fencing", fence.problems, fine)


class _Fence:
    """The published snapshots and the newest incarnation, from which follows what may still happen."""

    def __init__(self, history: History) -> None:
        self._history = history
        self.problems: list[str] = []
        self.begun = 0
        self.refused = 0
        #: {id of a published snapshot: incarnation}
        self.published: dict[int, int] = {}
        #: {id: the first incarnation that cut for the id}
        self._owner: dict[int, int] = {}
        #: the highest incarnation that has begun, and the id of the snapshot it was restored from
        self._newest = 0
        self._base = 0

    def on_event(self, event: Event) -> None:
        """Check one event."""
        match event.kind:
            case Kind.PUBLISHED:
                self._on_published(event)
            case Kind.CUT:
                self._on_cut(event)
            case Kind.RESTORED:
                self._on_restored(event)
            case Kind.COMMIT:
                self._on_commit(event)
            case Kind.REFUSED:
                self.refused += 1
            case _:
                pass  # no rule of the fence

    def _on_restored(self, event: Event) -> None:
        if event.snapshot_id and event.snapshot_id not in self.published:
            self._problem(event, "was restored from, but was never published")
        if event.incarnation <= self._newest:
            return
        newest = max(self.published, default=0)
        if event.snapshot_id < newest:
            self._problem(event, f"was restored from, but {newest} was published before")
        self.begun += 1
        self._newest, self._base = event.incarnation, event.snapshot_id

    def _on_published(self, event: Event) -> None:
        if event.incarnation < self._newest:
            self._problem(event, f"was published after incarnation {self._newest} had begun")
        if event.snapshot_id in self.published:
            before = self.published[event.snapshot_id]
            self._problem(event, f"was published before, by incarnation {before}: its id was used again")
        self.published.setdefault(event.snapshot_id, event.incarnation)

    def _on_cut(self, event: Event) -> None:
        owner = self._owner.setdefault(event.snapshot_id, event.incarnation)
        if owner != event.incarnation:
            self._problem(event, f"was begun before, by incarnation {owner}: its id was used again")

    def _on_commit(self, event: Event) -> None:
        if event.subtask is not None and (event.subtask, event.snapshot_id) in self._history.records:
            self._on_record_committed(event, event.subtask)
            return
        if event.snapshot_id not in self.published:
            self._problem(event, "was committed, but was never published")
        elif event.incarnation < self._newest and event.snapshot_id > self._base:
            base = f"incarnation {self._newest} was restored from {self._base}"
            self._problem(event, f"was committed after {base}, which knows nothing of it")

    def _on_record_committed(self, event: Event, subtask: Subtask) -> None:
        """Check the commit of a record of a subtask alone: no newer incarnation began with an older record."""
        if event.incarnation < self._newest:
            restored = self._history.composed.get((self._base, subtask), (0, 0))
            if (event.incarnation, event.snapshot_id) > restored:
                self._problem(event, f"was committed after incarnation {self._newest} was restored from {restored}")

    def _problem(self, event: Event, text: str) -> None:
        who = "" if event.subtask is None else f", {event.subtask}"
        self.problems.append(f"snapshot {event.snapshot_id} (incarnation {event.incarnation}{who}) {text}")
