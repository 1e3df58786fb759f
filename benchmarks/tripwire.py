"""A node that raises when it is told to.

A file of its own: a worker that is forked anew imports what its nodes' modules import, and that counts as recovery.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from snapshot import Context
from tests.system.programs import Relay


class Tripwire(Relay):
    """Raises once for each time that a file appears, and says when in another."""

    def __init__(self, wire: Path, tripped: Path) -> None:
        super().__init__()
        self.wire, self.tripped = wire, tripped

    def onMessage(self, message: Any, context: Context) -> None:
        if self.wire.exists():
            try:
                self.wire.unlink()
            except FileNotFoundError:
                return super().onMessage(message, context)  # another subtask was faster
            self.tripped.write_text(repr(time.monotonic()))
            raise RuntimeError("a benchmark's fault")
        return super().onMessage(message, context)
