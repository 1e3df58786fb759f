"""Lines for the console about snapshots that failed, or that wait for the store.

Each cause of a failure is printed once, and then counted.

A run goes on without snapshots when every `snapshotState` fails, so that a user would see nothing until the next
restart loses hours of work.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from cutline.barrier_runtime.driver.run_histories import history_of
from cutline.snapshot.error_text import without_traceback

#: Seconds without a failure after which the cause is printed again in full. A user may have forgotten the first line.
QUIET_SECONDS = 600.0

#: number of causes that are remembered; a run has few, because numbers in a reason make no other cause
CAUSES_MAX = 100

#: characters of a reason in a line; all of the reason is in ``Run.status``
REASON_CHARACTERS_MAX = 500

#: Reasons that are no failure of the snapshot: a rollback or the end of the run, or a later snapshot was faster.
_EXPECTED = re.compile(r"rolled back: |the run has ended: |snapshot \d+ was whole first$")


#: seconds without an answer of the store after which the console says so; shorter silences are frequent
SILENCE_SECONDS = 5.0


class _Cause(NamedTuple):
    failures: int
    last: float  #: monotonic seconds of the last failure


class FailedSnapshots:
    """The failed snapshots of one run."""

    def __init__(self) -> None:
        #: number of aborted snapshots in the last status
        self._seen = 0
        #: {reason without numbers: failures}, the most recent last
        self._causes: dict[str, _Cause] = {}
        #: monotonic seconds when the store began to fail, or None; and whether this was printed
        self._failing_since: float | None = None
        self._is_printed = False

    def lines(self, status: Mapping[str, Any]) -> Iterator[str]:
        """Yield the lines to print about the store, and about the snapshots that failed since the last call."""
        yield from self._about_store(status.get("storeError"))
        aborted = history_of(status, "aborted")
        new = aborted.since(self._seen)
        self._seen = aborted.count
        for each in (each for each in new if is_failure(each["reason"])):
            count = self._count(each["reason"])
            reason = _one_line(each["reason"])
            if count == 1:
                yield f"snapshot {each['id']} failed: {reason}"
            elif _is_power_of_ten(count):
                yield f"{count:,} snapshots failed for this reason, the last is {each['id']}: {reason}"

    def _about_store(self, error: str | None) -> Iterator[str]:
        now = time.monotonic()
        if error is None:
            if self._is_printed:
                yield "the store answers again"
            self._failing_since, self._is_printed = None, False
            return
        self._failing_since = now if self._failing_since is None else self._failing_since
        if not self._is_printed and now >= self._failing_since + SILENCE_SECONDS:
            self._is_printed = True
            yield f"snapshots wait for the store, and the run goes on: {_one_line(error)}"

    def _count(self, reason: str) -> int:
        now, key = time.monotonic(), re.sub(r"\d+", "#", reason)
        known = self._causes.pop(key, _Cause(0, now))
        count = 1 + (known.failures if now < known.last + QUIET_SECONDS else 0)
        self._causes[key] = _Cause(count, now)
        if len(self._causes) > CAUSES_MAX:
            del self._causes[next(iter(self._causes))]
        return count


def is_failure(reason: str) -> bool:
    """Return whether an aborted snapshot failed by itself. Others are aborted by a rollback or by a later snapshot."""
    return _EXPECTED.match(reason) is None


def _is_power_of_ten(count: int) -> bool:
    return str(count).strip("0") == "1"


def _one_line(reason: str) -> str:
    """Return the reason without line breaks and control characters, because user code writes parts of the reason."""
    line = " ".join(without_traceback(reason)[:REASON_CHARACTERS_MAX].split())
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in line)
