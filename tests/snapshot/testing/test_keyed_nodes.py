"""The nodes of the page on keyed state are exact after any crash in the simulator."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pytest

from cutline import Graph
from cutline.snapshot.testing.history import History
from cutline.testing import ListSink, ListSource, Pause, Simulator, checkRecovery
from tests.run_size import scaled
from tests.source_files import ROOT


def nodes_of_the_page() -> dict[str, Any]:
    """The classes of docs/STATE.md, as a reader copies them."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "STATE.md").read_text(), re.DOTALL)
    found: dict[str, Any] = {"__name__": "__main__"}  # so that they are pickled by value
    exec("\n".join(blocks), found)
    return found


PAGE = nodes_of_the_page()


def counts() -> Graph:
    """Word count."""
    graph = Graph("counts").add("words", ListSource("to", "be", "or", "not", "to", "be"))
    graph.add("n", PAGE["Count"](), parallelism=2).add("out", ListSink())
    return graph.connect("words", "n", key=lambda word: word).connect("n", "out")


def sessions() -> Graph:
    """Hits of two users, one of whom comes back after a session."""
    messages: list[Any] = [{"user": user, "url": url} for user, url in (("ann", "/"), ("bob", "/"), ("ann", "/a"))]
    graph = Graph("sessions").add("hits", ListSource(*messages, Pause(60), {"user": "ann", "url": "/b"}))
    graph.add("sessions", PAGE["Sessions"](), parallelism=2).add("out", ListSink())
    return graph.connect("hits", "sessions", key="user").connect("sessions", "out")


def join() -> Graph:
    """Two inputs with two common keys."""
    graph = (
        Graph("join").add("a", ListSource((1, "a1"), (2, "a2"))).add("b", ListSource((2, "b2"), (1, "b1"), (3, "b")))
    )
    graph.add("join", PAGE["Join"](), parallelism=2).add("out", ListSink())
    for side in "ab":
        graph.connect(side, "join", key=lambda message: message[0])
    return graph.connect("join", "out")


def totals() -> Graph:
    """Batches of amounts."""
    batches = [
        pa.RecordBatch.from_pydict({"user": users, "amount": amounts})
        for users, amounts in ((["ann", "bob", "ann"], [1, 2, 3]), (["bob", "cid", "cid"], [4, None, 5]))
    ]
    graph = Graph("totals").add("rows", ListSource(*batches)).add("totals", PAGE["Totals"](), parallelism=2)
    graph.add("out", ListSink())
    return graph.connect("rows", "totals", key="user", schema="user string, amount bigint").connect("totals", "out")


def rules() -> Graph:
    """A rule that comes at any time, and messages that every rule treats alike."""
    messages = [{"user": user, "size": size} for user, size in (("ann", 20), ("bob", 1), ("ann", 30), ("cid", 15))]
    graph = Graph("rules").add("rules", ListSource({"size": 12})).add("messages", ListSource(*messages))
    graph.add("check", PAGE["Rules"](), parallelism=2).add("out", ListSink())
    graph.connect("rules", "check", partitioning="broadcast").connect("messages", "check", key="user")
    return graph.connect("check", "out")


def seen() -> Graph:
    """Words, whose deltas are stored."""
    graph = Graph("seen").add("words", ListSource("to", "be", "or", "not", "to", "be")).add("seen", PAGE["Seen"]())
    return graph.add("out", ListSink()).connect("words", "seen").connect("seen", "out")


EXPECTED = {
    counts: [("be", 1), ("be", 2), ("not", 1), ("or", 1), ("to", 1), ("to", 2)],
    sessions: [("ann", ["/", "/a"]), ("ann", ["/b"]), ("bob", ["/"])],
    join: [(1, "a1", "b1"), (2, "a2", "b2")],
    totals: [("ann", 4), ("bob", 6), ("cid", 5)],
    rules: [("ann", 2), ("cid", 1)],
    seen: [["be", "not", "or", "to"]],
}


def output(history: History) -> list[Any]:
    """What was committed."""
    return sorted(history.output("out"))


def hits(history: History) -> list[Any]:
    """What was committed, whichever sessions it is in."""
    return sorted((user, url) for user, urls in history.output("out") for url in urls)


@pytest.mark.parametrize("graph", EXPECTED, ids=lambda graph: graph.__name__)
def test_keyed_nodes_are_exact(graph: Any) -> None:
    """The result is right without faults, and the same after crashes, rollbacks and restores."""
    assert output(Simulator(graph(), seed=1).run()) == EXPECTED[graph]
    # A crash takes time, which may end a session earlier, but each hit is in one session.
    checkRecovery(graph(), output=hits if graph is sessions else output, examples=scaled(40))


def test_a_node_that_may_have_no_states_ends_the_run() -> None:
    """A run does not try again what cannot succeed."""
    graph = Graph("plain").add("words", ListSource("a")).add("n", PAGE["Count"](), parallelism=2)
    history = Simulator(graph.connect("words", "n", partitioning="rebalance")).run()
    assert "n[0]: state 'n': a node of parallelism 2 needs an input with a key" in history.reason
