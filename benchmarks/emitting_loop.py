"""The limit of the peers benchmark: the nodes of the job called in a loop, in one process and without a runtime.

Nothing is encoded, no state is stored, and the keys are not split between processes.
"""

from __future__ import annotations

import time
from typing import Any, cast

from benchmarks.emitting_nodes import Send, nodes_of
from benchmarks.keyed_rows import BURST_MESSAGES, require_equal, sums_of_bursts
from benchmarks.processes import at_one_time
from benchmarks.run_size import MARGIN_SECONDS
from cutline import END, Context


def loop_records_per_second(send: Send, processes: int, seconds: float) -> float:
    """Measure records per second of `processes` independent loops at one time.

    Raises
    ------
    RuntimeError
        if sums or counts are wrong.
    """
    answers: list[tuple[float, float, int]] = at_one_time(
        [(loop, (send, seconds))] * processes, seconds + MARGIN_SECONDS
    )
    began_at, ended_at = min(began for began, *_ in answers), max(ended for _, ended, _ in answers)
    return sum(records for *_, records in answers) / (ended_at - began_at)


class _Outbox:
    """Keeps what a node sends, in place of a context."""

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self.send = self.messages.append
        self.sendAll = self.messages.extend


def loop(send: Send, seconds: float) -> tuple[float, float, int]:
    """Run one loop. Return when the loop began and ended, and the number of records."""
    source, sums, results = nodes_of(send, seconds)
    sent, emitted = _Outbox(), _Outbox()
    of_source, of_sums = cast(Context, sent), cast(Context, emitted)
    source.open(of_source)
    while source.poll(of_source) is not END:
        if send == "hook":
            sums.onMessages(sent.messages, of_sums)
            results.onMessages(emitted.messages, of_sums)
        else:
            for message in sent.messages:
                sums.onMessage(message, of_sums)
            for message in emitted.messages:
                results.onMessage(message, of_sums)
        sent.messages.clear()
        emitted.messages.clear()
    ended_at = time.monotonic()
    require_equal("loop", sums.sums, sums_of_bursts([source.rounds]))
    records = source.rounds * BURST_MESSAGES
    require_equal("loop", {"results": results.count}, {"results": records})
    return source.began_at, ended_at, records
