"""Checker 6: a run with faults ends with the output of the run without faults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.drawing.labels import shortened, shown
from cutline.snapshot.testing.checking.values import same
from cutline.snapshot.testing.checking.verdict import Verdict, verdict_of
from cutline.snapshot.testing.history import History
from cutline.snapshot.testing.payload import pack

#: number of rows that a problem shows: the first rows are enough to find them in the drawing
_ROWS_SHOWN = 5


def restoreEquivalence(history: History, reference: History, output: Callable[[History], Any] | None = None) -> Verdict:
    """Check that a run's output and outcome are equivalent to those of a run without faults.

    Parameters
    ----------
    history : History
        The run with faults.
    reference : History
        The run without faults.
    output : callable, optional
        Output of a history, compared by ``==``. Default: the same multiset at every sink and at every node without
        outputs.

    Returns
    -------
    Verdict
        Problems name the node and the messages that are missing or too many.

    Raises
    ------
    ValueError
        if there is neither such a node nor an `output`.
    """
    problems: list[str] = []
    if history.outcome is not reference.outcome:
        problems.append(f"the run {_ending(history)}, but without faults it {_ending(reference)}")
    if output is not None:
        found, due = output(history), output(reference)
        if found != due:
            problems.append(f"its output is {shortened(repr(found))}, but without faults {shortened(repr(due))}")
        return verdict_of("restore equivalence", problems, f"the output is {shortened(repr(found))} with and without")
    last = _last_nodes(history)
    for node in last:
        problems += _row_problems(node, history.output(node), reference.output(node), history.codec)
    return verdict_of("restore equivalence", problems, f"the same came out of {', '.join(last)} with and without")


def _ending(history: History) -> str:
    if history.outcome is None:
        return "was cut off before its end"
    return f"ended {history.outcome.value}" + (f" ({history.reason})" if history.reason else "")


def _last_nodes(history: History) -> list[str]:
    """Return the nodes where output shows: sinks, and nodes without outputs. Dead letters are no output of a node."""
    topology = history.topology
    sending = [edge.source for edge in topology.edges if not topology.carries_dead_letters(edge)]
    last = [node.name for node in topology.nodes if node.is_sink or node.name not in sending]
    if not last:
        raise ValueError(f"graph {topology.name!r} has no sink and no node without outputs: say what output is")
    return last


def _row_problems(node: str, found: list[Any], due: list[Any], codec: Codec) -> Iterator[str]:
    missing, excess = _difference([pack(row, codec) for row in due], [pack(row, codec) for row in found], codec)
    for what, rows in (("lost", missing), ("too many", excess)):
        if rows:
            values = ", ".join(shown(row, codec) for row in rows[:_ROWS_SHOWN])
            yield f"{node}: {len(rows)} {what} of {len(due)}: {values}{', ...' if len(rows) > _ROWS_SHOWN else ''}"


def _difference(due: list[bytes], found: list[bytes], codec: Codec) -> tuple[list[bytes], list[bytes]]:
    """Return missing rows and excess rows. Most rows are equal as bytes; all other rows are compared pair by pair."""
    missing = list((Counter(due) - Counter(found)).elements())
    excess = list((Counter(found) - Counter(due)).elements())
    for row in list(missing):
        twin = next((other for other in excess if same(row, other, codec)), None)
        if twin is not None:
            missing.remove(row)
            excess.remove(twin)
    return missing, excess
