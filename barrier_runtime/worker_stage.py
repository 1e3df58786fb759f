"""Where a worker stands between two rollbacks.

::

    WAITING ──Deploy──> RESTORING ──state in place──> RESTORED ──Connect──> CONNECTING ──Start──> RUNNING
       ^                                                                                            │
       └── FAILED: user code raised, or a peer was lost; the next Deploy begins anew ───────────────┘
"""

from __future__ import annotations

from enum import Enum


class Stage(Enum):
    """Where a worker stands; the diagram is the module's."""

    WAITING = "waiting"
    RESTORING = "restoring"
    RESTORED = "restored"
    CONNECTING = "connecting"
    RUNNING = "running"
    FAILED = "failed"
