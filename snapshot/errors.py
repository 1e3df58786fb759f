"""Errors that Cutline raises on purpose.

Each error says what happened, where (run, node, subtask, snapshot) and what to do. All errors can be pickled, because
they cross from workers to the coordinator and to the driver.

::

    CutlineError
    ├── GraphError        the declared graph cannot be built or run
    ├── NodeError         a hook of a user's node raised, or returned what cannot be stored
    ├── SnapshotAborted   one snapshot was given up; the run goes on
    ├── SnapshotCorrupt   stored bytes are missing, damaged, swapped or contradict each other
    ├── SnapshotInUse     the snapshot cannot be removed: it is pinned, or the run continues from it
    ├── RestoreRefused    the snapshot does not fit the graph, or going back to it would lose something
    ├── ChannelError      a channel broke its contract: gap, repeat, stale incarnation, limit, lost peer
    ├── StateError        the local database of a subtask's keyed state cannot be opened, read or written
    ├── Fenced            a newer claim owns the run
    └── RunFailed         the run ended for good; ``__cause__`` or the text says why
"""

from __future__ import annotations

from cutline.snapshot.failed_event import FailedEvent


class CutlineError(Exception):
    """Root of all errors raised by Cutline. The text holds everything that is known about the error."""


class GraphError(CutlineError):
    """The declared graph cannot be built or run. The text names the node or the edge."""


class NodeError(CutlineError):
    """A hook of a user's node failed. The text names node, subtask and hook, and holds the traceback."""

    def __init__(self, text: str, failed_event: FailedEvent | None = None) -> None:
        super().__init__(text)
        #: message, rows or timer that the hook was called with, or None for another hook
        self.failed_event = failed_event


class SnapshotAborted(CutlineError):
    """A snapshot was given up. The run goes on, and earlier snapshots are untouched."""


class SnapshotCorrupt(CutlineError):
    """Stored bytes are missing, damaged, swapped or contradict each other. The text names file and offset."""


class SnapshotInUse(CutlineError):
    """A snapshot cannot be removed, because it is pinned, or the run continues from it. Nothing was removed."""


class RestoreRefused(CutlineError):
    """The snapshot does not fit the graph, or going back to it would lose data that must not be lost."""


class ChannelError(CutlineError):
    """A channel broke its contract: a gap, a repeat, a stale incarnation, a limit, a lost peer."""


class StateError(CutlineError):
    """The local database of a subtask's keyed state cannot be opened, read or written. The run restarts elsewhere."""


class Fenced(CutlineError):
    """A newer claim owns the run. The receiver of this error must stop at once and write nothing more."""


class RunFailed(CutlineError):
    """The run ended for good and will not be restarted."""
