"""The one policy by which calls to stores are repeated: which errors pass, the pauses, and the end.

Owns no call. Backends translate the errors of their stores into `OSError`, so that one rule decides for all of them.
"""

from __future__ import annotations

import errno
import random
import time
from collections.abc import Callable
from typing import TypeVar

from cutline.snapshot.stored.backend import StoreRefused

Result = TypeVar("Result")

#: Seconds of the longest first pause, and of the longest pause. Short at first, because most failures are a lost
#: connection. Pauses are random, because all workers lose their connections together.
PAUSE_SECONDS_MIN, PAUSE_SECONDS_MAX = 0.05, 2.0

#: Share of the deadline in which a try may begin. The rest is for the answer to the last try, because that answer names
#: the cause.
TRYING_SHARE = 0.75

#: Numbers of errors by which network file systems, file systems of user space, and stores fail for a moment. EIO is
#: among them, because a soft mount of NFS reports a server that restarts by EIO. A full disk or quota is not, because
#: somebody must remove something first.
PASSING_ERRORS = frozenset(
    (
        *(errno.EAGAIN, errno.EBUSY, errno.EINTR, errno.EIO, errno.ENOBUFS, errno.ENOLCK, errno.EREMOTEIO),
        *(errno.ECONNABORTED, errno.ECONNREFUSED, errno.ECONNRESET, errno.ENOTCONN, errno.EPIPE, errno.ESHUTDOWN),
        *(errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETDOWN, errno.ENETRESET, errno.ENETUNREACH),
        *(errno.ESTALE, errno.ETIMEDOUT),
    )
)


#: Statuses of the class "the request is wrong" that another try may mend: timeout, conflict, too early, too many.
_PASSING_STATUSES = (408, 409, 425, 429)

#: Statuses beyond that class that no other try mends: not implemented, version not supported.
_FINAL_STATUSES = (501, 505)


def status_may_pass(status: int) -> bool:
    """Return whether another try may succeed after a store's answer of this HTTP status."""
    return status in _PASSING_STATUSES or not (400 <= status < 500 or status in _FINAL_STATUSES)


def may_pass(error: OSError) -> bool:
    """Return whether another try, moments later, may succeed."""
    return not isinstance(error, StoreRefused) and error.errno in PASSING_ERRORS


def repeated(
    call: Callable[[], Result],
    seconds: float,
    note_failure: Callable[[OSError], None],
    passes: Callable[[OSError], bool] = may_pass,
) -> Result:
    """Return the result of `call`, which is repeated after errors that may pass. Blocks the thread in pauses.

    Raises the last error of `call` when the next try would begin too late, and other errors at once.

    Parameters
    ----------
    call : Callable
        Must have its effect once, however often it is called.
    seconds : float
        Seconds until the caller gives the call up.
    note_failure : Callable
        Called with each error after which `call` is repeated.
    passes : Callable
        Returns whether another try may succeed after an error.
    """
    last_start = time.monotonic() + seconds * TRYING_SHARE
    longest = PAUSE_SECONDS_MIN
    while True:
        # No decorator of a library, because its state refers to the error, whose frames refer to the state. In that
        # cycle all written data would wait for the collector.
        try:
            return call()
        except OSError as error:
            pause = random.uniform(longest / 2, longest)
            if not passes(error) or time.monotonic() + pause > last_start:
                raise
            note_failure(error)
        time.sleep(pause)
        longest = min(2 * longest, PAUSE_SECONDS_MAX)
