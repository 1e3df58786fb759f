"""The small job that every kind of Spark runs, and the questions that its tests ask: is the result right, who is who.

Source (numbers) → count by key → tally. Its modules reach executors in three ways, one for each kind of Spark, so
nothing here may need the rest of the tests.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cutline import END, Context, Graph, Node, Sink, Source
from cutline.snapshot.node import End

KEYS = 7
#: A count that no test reaches: it stops the run.
ENDLESS = 10**9
#: Numbers of one poll, and seconds to the next: slow enough that a kill comes in the middle.
_NUMBERS_A_POLL = 20
_POLL_SECONDS = 0.01
#: For whatever a script waits for: starts of JVMs on a loaded machine.
WAIT_SECONDS = 60.0


class Numbers(Source):
    """0, 1, 2, … below `count`."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.next = 0

    def poll(self, context: Context) -> float | End | None:
        for _ in range(_NUMBERS_A_POLL):
            if self.next >= self.count:
                return END
            context.send(self.next)
            self.next += 1
        return _POLL_SECONDS

    def snapshotState(self, snapshotId: int, timestamp: float) -> int:
        return self.next

    def restoreState(self, state: int) -> None:
        self.next = state


class CountByKey(Node):
    """Counts its messages by key, and passes them on."""

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}

    def onMessage(self, message: int, context: Context) -> None:
        self.counts[context.key] = self.counts.get(context.key, 0) + 1
        context.send(message)

    def snapshotState(self, snapshotId: int, timestamp: float) -> dict[int, int]:
        return self.counts

    def restoreState(self, state: dict[int, int]) -> None:
        self.counts = state


class KeyedCount(Node):
    """Counts its messages by key in keyed state, and passes them on."""

    def open(self, context: Context) -> None:
        self.count = context.getReducingState("count", "count")

    def onMessage(self, message: int, context: Context) -> None:
        self.count.add(message)
        context.send(message)


class Tally(Sink):
    """Count and sum of all messages. Notes in `folder` when each incarnation's first message came."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.count = self.sum = 0
        self.is_first = True

    def onMessage(self, message: int, context: Context) -> None:
        if self.is_first:
            self.is_first = False
            Path(self.folder, f"first-{context.incarnation}").write_text(str(time.monotonic()))
        self.count += 1
        self.sum += message

    def snapshotState(self, snapshotId: int, timestamp: float) -> tuple[int, int]:
        return self.count, self.sum

    def restoreState(self, state: tuple[int, int]) -> None:
        self.count, self.sum = state


def counting_graph(name: str, count: int, folder: str, *, keyed: bool = False) -> Graph:
    """The job on `count` numbers; `folder` takes the times of first messages. `keyed`: with keyed state."""
    graph = Graph(name)
    counts = KeyedCount() if keyed else CountByKey()
    graph.add("numbers", Numbers(count)).add("counts", counts, parallelism=2).add("tally", Tally(folder))
    graph.connect("numbers", "counts", key=_key)
    graph.connect("counts", "tally")
    return graph


def _key(number: int) -> int:
    return number % KEYS


def check_result(run: Any, count: int) -> None:
    """Wait for the end of the run and compare its last snapshot with what it must be."""
    assert run.awaitTermination(WAIT_SECONDS), f"the run does not end: {run.status}"
    final = run.snapshots()[-1]
    counts: dict[int, int] = {}
    for state in final.node("counts").states:
        assert not counts.keys() & state.keys(), "two subtasks counted one key"
        counts |= state
    assert counts == Counter(number % KEYS for number in range(count)), counts
    assert tuple(final.node("tally").state) == (count, sum(range(count))), final.node("tally").state


def stop_and_check(run: Any) -> None:
    """Stop a run with a snapshot, in which no message may be lost or doubled."""
    last = run.stop(withSnapshot=True)
    states = [state for state in last.node("counts").states if state is not None]
    counted = sum(sum(state.values()) for state in states or [last.node("counts").keyedState("count")])
    assert counted + _in_flight(last, "numbers", "counts") == last.node("numbers").state
    assert last.node("tally").state[0] + _in_flight(last, "counts", "tally") == counted


def _in_flight(snapshot: Any, source: str, target: str) -> int:
    ends = source, target
    channels = [channel for channel in snapshot.channels if (channel.source.node, channel.target.node) == ends]
    return sum(len(snapshot.channel(channel.source, channel.target).messages) for channel in channels)


def wait_until(what: str, condition: Callable[[], bool], seconds: float = WAIT_SECONDS) -> None:
    """Look until the condition holds; fail, naming it, when it never does."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"in {seconds:g} s it never came to this: {what}"
        threading.Event().wait(0.02)


def wait_for_snapshots(run: Any, more: int) -> None:
    """Until `more` snapshots were published after those that are there now."""
    newest = max(run.status["snapshots"], default=0)
    end = time.monotonic() + WAIT_SECONDS
    while _newest(run) < newest + more:
        assert time.monotonic() < end, f"{more} snapshots after {newest} do not come: {run.status}"
        threading.Event().wait(0.02)


def wait_for_failure(run: Any) -> Exception:
    """Wait for the end of a run, which must be a failure, and return that."""
    wait_until(f"the end of {run.name}", lambda: not run.isActive)
    failure: Exception | None = run.exception()
    assert failure is not None, f"{run.name} did not fail: {run.status}"
    return failure


def _newest(run: Any) -> int:
    status = run.status
    assert status["outcome"] is None, f"the run ended too early: {status['outcome']}, {status['reason']}"
    return max(status["snapshots"], default=0)


def first_message_after(at: float, folder: str) -> float:
    """Seconds from `at` (monotonic) to the first message of an incarnation that began later; waits for it."""

    def later() -> list[float]:
        times = [float(text) for path in Path(folder).glob("first-*") if (text := path.read_text())]
        return [moment for moment in times if moment > at]

    wait_until("a message after the kill", lambda: bool(later()))
    return min(later()) - at


def ancestor(pid: int, name: str) -> int:
    """The nearest ancestor of a process whose command is `name`."""
    while pid > 1:
        fields = Path(f"/proc/{pid}/stat").read_text()
        command, rest = fields[fields.index("(") + 1 : fields.rindex(")")], fields[fields.rindex(")") + 1 :]
        if command == name:
            return pid
        pid = int(rest.split()[1])
    raise AssertionError(f"no ancestor is called {name}")


def kill_worker(run: Any) -> float:
    """SIGKILL the first worker's process; returns when."""
    at = time.monotonic()
    os.kill(run.status["workers"][0], 9)
    return at
