"""When a coordinator instance started, and whether the instance has begun to take the run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class InstanceStart:
    """The start of a coordinator instance. Any thread may call `begin`."""

    def __init__(self) -> None:
        #: monotonic seconds; later instances start later, because all instances of a run are on one machine
        self.at = time.monotonic()
        self.has_begun = False
        self._lock = threading.Lock()

    def begin(self, take: Callable[[], None]) -> None:
        """Call `take`, by which the instance takes the run. Later calls return after the first call of `take`."""
        with self._lock:
            if not self.has_begun:
                self.has_begun = True
                # Anew, because the instance of a rescale waits, and the one before it may be restarted meanwhile.
                self.at = time.monotonic()
                take()
