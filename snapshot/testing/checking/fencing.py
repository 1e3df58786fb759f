"""Checker 8: what is left over from an older incarnation changes nothing that is published."""

from __future__ import annotations

from typing import assert_never

from snapshot.testing.checking.verdict import Verdict, verdict_of
from snapshot.testing.history import Event, History, Kind


def fencing(history: History) -> Verdict:
    """Once an incarnation is deployed, nothing of an earlier one is published, and no id is used again.

    Besides: what is restored from was published, and is the newest that was; what is committed was published, and by an
    older incarnation only what the newer ones were restored from or what is older. The verdict says how many leftovers
    were refused: where a zombie lived and there are none, it did not even try.

    Returns
    -------
    Verdict
        A problem names the snapshot, the incarnation and the subtask.
    """
    fence = _Fence()
    for event in history.events:
        fence.on_event(event)
    fine = f"{fence.deployed} incarnations, {len(fence.published)} snapshots, {fence.refused} leftovers refused"
    return verdict_of("fencing", fence.problems, fine)


class _Fence:
    """What may still happen."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.deployed = 0
        self.refused = 0
        #: {id: incarnation}
        self.published: dict[int, int] = {}
        #: {id: the incarnation that first cut for it}
        self._owner: dict[int, int] = {}
        #: the highest incarnation that was deployed, and from where
        self._newest = 0
        self._base = 0

    def on_event(self, event: Event) -> None:
        """Look at one event."""
        match event.kind:
            case Kind.DEPLOYED:
                self._on_deployed(event)
            case Kind.PUBLISHED:
                self._on_published(event)
            case Kind.CUT:
                self._on_cut(event)
            case Kind.RESTORED:
                if event.snapshot_id and event.snapshot_id not in self.published:
                    self._problem(event, "was restored from, but was never published")
            case Kind.COMMIT:
                self._on_commit(event)
            case Kind.REFUSED:
                self.refused += 1
            case (
                Kind.POLL
                | Kind.TIMER
                | Kind.INJECT
                | Kind.SEND
                | Kind.RECEIVE
                | Kind.END_SENT
                | Kind.END_RECEIVED
                | Kind.MARKER_SENT
                | Kind.MARKER
                | Kind.FAILED
                | Kind.ABORTED
                | Kind.FAULT
            ):
                pass
            case _:
                assert_never(event.kind)

    def _on_deployed(self, event: Event) -> None:
        self.deployed += 1
        newest = max(self.published, default=0)
        if event.snapshot_id < newest and event.incarnation > self._newest:
            self._problem(event, f"was restored from, but {newest} was published before")
        if event.incarnation > self._newest:
            self._newest, self._base = event.incarnation, event.snapshot_id

    def _on_published(self, event: Event) -> None:
        if event.incarnation < self._newest:
            self._problem(event, f"was published after incarnation {self._newest} was deployed")
        if event.snapshot_id in self.published:
            before = self.published[event.snapshot_id]
            self._problem(event, f"was published before, by incarnation {before}: its id was used again")
        self.published.setdefault(event.snapshot_id, event.incarnation)

    def _on_cut(self, event: Event) -> None:
        owner = self._owner.setdefault(event.snapshot_id, event.incarnation)
        if owner != event.incarnation:
            self._problem(event, f"was begun before, by incarnation {owner}: its id was used again")

    def _on_commit(self, event: Event) -> None:
        if event.snapshot_id not in self.published:
            self._problem(event, "was committed, but was never published")
        elif event.incarnation < self._newest and event.snapshot_id > self._base:
            base = f"incarnation {self._newest} was restored from {self._base}"
            self._problem(event, f"was committed after {base}, which knows nothing of it")

    def _problem(self, event: Event, text: str) -> None:
        who = "" if event.subtask is None else f", {event.subtask}"
        self.problems.append(f"snapshot {event.snapshot_id} (incarnation {event.incarnation}{who}) {text}")
