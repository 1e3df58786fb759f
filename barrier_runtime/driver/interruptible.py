"""Ctrl-C while the driver waits for a run: it ends the waiting, and the run goes on."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def ctrl_c_ends_waiting() -> Iterator[None]:
    """Replace pyspark's handler of Ctrl-C while entered on the main thread. Any other handler stays.

    pyspark's handler cancels all jobs of the session before it raises KeyboardInterrupt, and a run is such a job.
    """
    before = signal.getsignal(signal.SIGINT)
    is_pysparks = str(getattr(before, "__module__", "")).startswith("pyspark.")
    if not is_pysparks or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
