"""What snapshots take from a run's throughput, found within one run: from run to run these machines change by more.

A run is cut into stretches of the machine's clock. In every other one a source beside the others asks for snapshots,
and what was sent in it is compared with its two neighbours, which have none. Asking takes its part too, so that
snapshots that come by themselves take no more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from benchmarks.asking import COUNT, Stretches
from benchmarks.effort import Effort
from benchmarks.result import Metric, metric
from benchmarks.timed_run import Timed

#: So much longer than others is a run in stretches: what is looked for is less than what they differ by.
LENGTH = 3


def stretches_of(effort: Effort, interval: float) -> Stretches:
    """As many as `COUNT`."""
    return Stretches(effort.seconds * LENGTH / COUNT, interval)


def compared(stretched: Sequence[Timed]) -> tuple[dict[str, float], dict[str, Metric]]:
    """Ratios and metrics of runs in stretches; none of no runs."""
    if not stretched:
        return {}, {}
    shares = metric("ratio", [median(shares_of_neighbours(timed.by_stretch)) for timed in stretched])
    # The last one ends the run.
    per_second = metric("snapshots/s", [2 * (timed.snapshots - 1) / timed.seconds for timed in stretched])
    metrics = {"share_of_neighbours": shares, "snapshots_per_s_in_stretches": per_second}
    return {"without_snapshots": shares.median}, metrics


def shares_of_neighbours(sent: Mapping[int, int]) -> list[float]:
    """Of each stretch with snapshots, what was sent in it, as a share of the mean of those before and after it.

    Parameters
    ----------
    sent : mapping of int to int
        By the number of the stretch.

    Raises
    ------
    RuntimeError
        if no stretch has neighbours in which something was sent.
    """
    whole = range(min(sent) + 1, max(sent))
    odd = [number for number in whole if number % 2 and number - 1 in whole and number + 1 in whole]
    around = [(sent.get(number, 0), sent.get(number - 1, 0) + sent.get(number + 1, 0)) for number in odd]
    shares = [2 * with_snapshots / without for with_snapshots, without in around if without]
    if not shares:
        raise RuntimeError(f"too little was sent to compare its stretches: {dict(sent)}")
    return shares
