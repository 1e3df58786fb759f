"""Measure within one run how much throughput snapshots cost, because the machine varies more from run to run.

The run is split into windows of the monotonic clock. A source of its own requests snapshots in every second window, at
least one in each (`benchmarks.snapshot_trigger_source`). Each window with snapshots is compared with its two
neighbours, which have none. The requests have a cost too, so periodic snapshots cost no more.

The figures of docs/SPEED_HISTORY.md used windows of 0.6 s (AMD EPYC) and 0.5 s (Intel Xeon). Their interval of 1 s
therefore had 1.7 and 2.0 snapshots a second.

Experiments, before these figures, by a probe that is not kept. Windows were 1.5 s, the parallelism 2, and the standard
error of each figure 0.02 to 0.03. Without the first three changes ten snapshots a second left 0.84, 0.87 and 0.85 of
the messages. With them they left 0.91, 0.90 and 0.93, and 0.87 in a slow hour. The coordinator took 58 to 72 ms
of processor time a second before, and 43 to 44 after. The storing threads of the workers took 50 to 64 before, and 35
to 36 after. Ray takes 10 ms of the coordinator's time, also without snapshots.

* Store all subtasks of a worker in one file, and acknowledge them with one message. A file costs a dozen system calls,
  and after each its thread waits for the interpreter. An acknowledgement wakes the coordinator with cold caches. A
  snapshot of two pairs of subtasks has three files instead of five, the manifest included. With a file for each part it
  had ten.
* Remove an expired snapshot with two calls to the store, each with one sync of its folder. Pins and names of files are
  remembered. Removals were the largest part of the coordinator's samples.
* Announce commits of the last snapshot only, because nothing received the announcements of others.
* Free the encoder of a state with the state. A cycle of packer and hook kept all large buffers until the collector ran.
  A worker grew by 1 to 2 MiB a snapshot, and the kernel cleared pages for 11.5 of each 100 ms. Ten snapshots a second
  left 0.79 to 0.84 of the batches before, 0.85 to 0.92 after (medians of five runs each, three of them in turn).
* Use one packer for a control message, not one for each record. The acknowledgement of three parts takes 13 us instead
  of 79 to encode, and 26 instead of 37 to decode, with everything in the caches.
* Store everything inline in the manifest, up to 1 MiB a subtask: rejected. The threads of each worker took 2.4 ms less,
  its loop 1 ms more, and the coordinator 2 to 3 ms more.
* Use output buffers and windows four times as large. Ten snapshots a second cost 35 to 45 % of the throughput
  instead of 8 to 19 % (single runs of 4 s, in turn). In-flight messages of an unaligned snapshot are written and synced
  with the snapshot.

A snapshot in 100 ms now costs processor time of 14 ms for messages and 12 for batches, of the 200 ms of
two cores. Before all changes it was 22. The loop of each worker takes 2.2 ms for messages and 1.8 for batches, of which
the encoding of states takes 0.8 and 0.3. The storing threads of each worker take 2.3 and 1.4 ms. The coordinator takes
4.5 ms, and the kernel 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.result import Metric, metric
from benchmarks.run_size import RunSize
from benchmarks.snapshot_trigger_source import COUNT, InterleavedWindows

if TYPE_CHECKING:
    from benchmarks.timed_run import Timed

#: Seconds of an interleaved run for each second of another run, because its windows differ by little.
LENGTH = 3


def windows_of(size: RunSize, interval: float) -> InterleavedWindows:
    """Return the windows of a run of this size, with snapshots every `interval` seconds in odd windows."""
    return InterleavedWindows(size.seconds * LENGTH / COUNT, interval)


def compared(runs: Sequence[Timed]) -> tuple[dict[str, float], dict[str, Metric]]:
    """Return ratios and metrics of interleaved runs, or empty ones of no runs."""
    if not runs:
        return {}, {}
    shares = metric("ratio", [median(shares_of_neighbours(timed.by_window)) for timed in runs])
    # The last snapshot is left out, because it ends the run. Half of the seconds have snapshots.
    per_second = metric("snapshots/s", [2 * (timed.snapshots - 1) / timed.seconds for timed in runs])
    metrics = {"share_of_neighbours": shares, "snapshots_per_s_in_stretches": per_second}
    return {"without_snapshots": shares.median}, metrics


def shares_of_neighbours(sent: Mapping[int, int]) -> list[float]:
    """Return, for each window with snapshots, its rounds divided by the mean of its two neighbours.

    Parameters
    ----------
    sent : mapping of int to int
        ``{number of the window: rounds sent in it}``

    Raises
    ------
    RuntimeError
        if no window with snapshots has two whole neighbours in which something was sent.
    """
    whole = range(min(sent) + 1, max(sent))
    odd = [number for number in whole if number % 2 and number - 1 in whole and number + 1 in whole]
    around = [(sent.get(number, 0), sent.get(number - 1, 0) + sent.get(number + 1, 0)) for number in odd]
    shares = [2 * with_snapshots / without for with_snapshots, without in around if without]
    if not shares:
        raise RuntimeError(f"too little was sent to compare windows: {dict(sent)}")
    return shares
