"""Display of a run in progress: a live display on a terminal, plain lines elsewhere.

Only reads the run. Stopping the run is the caller's task.
"""

from __future__ import annotations

import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.text import Text

from cutline.barrier_runtime.driver.failed_snapshots import is_failure
from cutline.barrier_runtime.driver.run_histories import history_of
from cutline.barrier_runtime.page.counting import RATE_SECONDS, flow_ends
from cutline.snapshot.drawing.labels import duration_text, size_text
from cutline.snapshot.error_text import without_traceback
from cutline.snapshot.errors import CutlineError
from cutline.snapshot.node import Sink, Source

if TYPE_CHECKING:
    from cutline.barrier_runtime.driver.run import Run
    from cutline.snapshot.graph import Graph
    from cutline.snapshot.stored.snapshot import Snapshot

#: seconds between two polls of the run, as long as between the run's own polls
POLL_SECONDS = 0.25

#: seconds after which every worker has reported at least once
_REPORTED_SECONDS = 0.75

#: seconds between two plain lines when the output is not a terminal
PLAIN_SECONDS = 2.0

#: characters of a reason that are shown, enough for the cause; ``Run.status`` has the whole reason
REASON_CHARACTERS_MAX = 300


def watch(run: Run, graph: Graph, console: Console) -> Iterator[dict[str, Any]]:
    """Show `run` until the run has ended. Yield each progress report that is shown, so that the caller may act.

    Restarts and aborted snapshots are printed when they are first reported, and stay on the screen.
    """
    view = _View(run, graph, console)
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while run.isActive:
            time.sleep(POLL_SECONDS)
            progress = run.lastProgress
            if progress is not None:
                view.show_events(progress)
                view.show(progress, live)
                yield progress
    if run.lastProgress is not None:
        view.show_events({**run.lastProgress, **run.status})


def _short(reason: str) -> str:
    """Shorten a reason to a single line, because reasons from Spark are whole stack traces."""
    return escape(textwrap.shorten(without_traceback(reason), REASON_CHARACTERS_MAX))


class Flow:
    """Count the messages that enter a graph, and the messages that leave the graph, at the nodes of `flow_ends`."""

    def __init__(self, graph: Graph) -> None:
        nodes = [(each.name, isinstance(each.node, Source), isinstance(each.node, Sink)) for each in graph.nodes]
        self._sources, self._sinks = flow_ends(nodes)

    def rates(self, reports: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
        """Return the rows per second that enter and leave, over the last `RATE_SECONDS` of the newest incarnation."""
        newest = reports[-1]
        same = [r for r in reports if r["incarnation"] == newest["incarnation"] and r["progress"]["sent"]]
        # Counters continue from the snapshot, so a worker's first report in an incarnation adds a large jump.
        since = max(newest["timestamp"] - RATE_SECONDS, same[0]["timestamp"] + _REPORTED_SECONDS) if same else 0.0
        oldest = next((report for report in same if report["timestamp"] >= since), newest)
        seconds = newest["timestamp"] - oldest["timestamp"]
        if seconds <= 0:
            return 0.0, 0.0
        rows_in, rows_out = (new - old for new, old in zip(self.totals(newest), self.totals(oldest), strict=True))
        return max(0.0, rows_in / seconds), max(0.0, rows_out / seconds)

    def totals(self, report: Mapping[str, Any]) -> tuple[int, int]:
        """Return the rows that have entered and left since the beginning of the run."""
        sent, processed = report["progress"]["sent"], report["progress"]["processed"]
        return sum(sent.get(name, 0) for name in self._sources), sum(processed.get(name, 0) for name in self._sinks)


class _View:
    def __init__(self, run: Run, graph: Graph, console: Console) -> None:
        self._run = run
        self._flow = Flow(graph)
        self._console = console
        self._began = time.monotonic()
        self._next_line = self._began
        #: {key of a history in the progress: number of its entries at the last call}
        self._seen = {"restarts": 0, "aborted": 0}
        self._snapshot: Snapshot | None = None
        self._newest = 0

    def show_events(self, progress: Mapping[str, Any]) -> None:
        """Print the restarts and aborted snapshots that are new since the last call."""
        restarts = self._new(progress, "restarts")
        for number, restart in enumerate(restarts, self._seen["restarts"] - len(restarts) + 1):
            self._print_line(f"[yellow]restart {number}[/]: {_short(restart['reason'])}")
        # Failures are left out here, because `Run` logs each cause once and then counts.
        for aborted in (each for each in self._new(progress, "aborted") if not is_failure(each["reason"])):
            self._print_line(f"[yellow]snapshot {aborted['id']} aborted[/]: {_short(aborted['reason'])}")
        self._note_snapshots(progress["snapshots"])

    def show(self, progress: Mapping[str, Any], live: Live) -> None:
        """Redraw the display. Without a terminal, print a line when `PLAIN_SECONDS` have passed since the last line."""
        if self._console.is_terminal:
            live.update(self._display(progress), refresh=True)
        elif time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + PLAIN_SECONDS
            self._console.print(self._line(progress), markup=False, highlight=False, soft_wrap=True)

    def _new(self, progress: Mapping[str, Any], key: str) -> Sequence[Mapping[str, Any]]:
        """Return the entries of a history that are new since the last call."""
        history = history_of(progress, key)
        new = history.since(self._seen[key])
        self._seen[key] = max(history.count, self._seen[key])
        return new

    def _print_line(self, text: str) -> None:
        self._console.print(text, highlight=False, soft_wrap=True)

    def _note_snapshots(self, ids: Sequence[int]) -> None:
        new = [snapshot_id for snapshot_id in ids if snapshot_id > self._newest]
        if not new:
            return
        self._newest = new[-1]
        try:
            self._snapshot = self._run.snapshots()[-1]
        except (OSError, CutlineError) as error:
            self._snapshot = None
            self._print_line(f"[red]snapshot {new[-1]} cannot be read[/]: {_short(str(error))}")

    def _display(self, progress: Mapping[str, Any]) -> Group:
        rows_in, rows_out = self._flow.rates(self._run.recentProgress)
        total_in, total_out = self._flow.totals(progress)
        head = Text.assemble(
            (f"{self._run.name}  ", "bold"),
            (progress["phase"], "green" if progress["phase"] == "running" else "yellow"),
            f"  {self._elapsed()}  incarnation {progress['incarnation']}  workers {len(progress['workers'])}",
        )
        lines = [
            f"  rows in    {rows_in:>12,.0f}/s  {total_in:>14,} in all",
            f"  rows out   {rows_out:>12,.0f}/s  {total_out:>14,} in all",
            f"  snapshot   {self._snapshot_text()}",
            f"  restarts   {progress['restartCount']}",
        ]
        return Group(head, *(Text(line, no_wrap=True, overflow="ellipsis") for line in lines))

    def _line(self, progress: Mapping[str, Any]) -> str:
        rows_in, rows_out = self._flow.rates(self._run.recentProgress)
        return (
            f"{self._elapsed()} {progress['phase']}: in {rows_in:,.0f}/s, out {rows_out:,.0f}/s, "
            f"snapshot {self._snapshot_text()}, restarts {progress['restartCount']}"
        )

    def _snapshot_text(self) -> str:
        if self._snapshot is None:
            return "none yet"
        duration = duration_text(self._snapshot.manifest.duration)
        return f"{self._snapshot.id} ({size_text(self._snapshot.size)}, {duration})"

    def _elapsed(self) -> str:
        seconds = int(time.monotonic() - self._began)
        return f"{seconds // 60:02}:{seconds % 60:02}"
