"""Stages of a worker between two rollbacks.

::

    WAITING ──Deploy──> RESTORING ──PartsRead──> RESTORED ──Connect──> CONNECTING ──PeersConnected──> CONNECTED
       ^                                                                                                  │
       │                                                                                           StartProcessing
       │                                                                                                  v
       └──────────────────── Deploy of a later incarnation, from any stage ─────────────────────────── RUNNING

    any stage behind WAITING ──user code raised, a peer was lost, a part was unreadable──> FAILED ──Deploy──> RESTORING
"""

from __future__ import annotations

from enum import Enum


class Stage(Enum):
    """Stage of a worker; the diagram is the module's."""

    WAITING = "waiting"
    RESTORING = "restoring"
    RESTORED = "restored"
    CONNECTING = "connecting"
    CONNECTED = "connected"
    RUNNING = "running"
    FAILED = "failed"
