"""`Context.increment`: what a node counts can be told, whatever sort of number it is."""

from __future__ import annotations

import logging
from enum import IntEnum
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pytest

from cutline.barrier_runtime.control_codec import decode_message, encode_message
from cutline.barrier_runtime.progress import WorkerProgress
from cutline.snapshot.errors import NodeError
from cutline.snapshot.ids import Subtask
from cutline.snapshot.subtask.context import SubtaskContext
from cutline.snapshot.subtask.timers import Timers


class _Level(IntEnum):
    HIGH = 3


def _context() -> SubtaskContext:
    return SubtaskContext(
        run="run",
        incarnation=1,
        subtask=Subtask("a", 1),
        parallelism=2,
        inputs=(),
        edges=(),
        timers=Timers(),
        logger=logging.LoggerAdapter(logging.getLogger("run"), {}),
        chance=lambda: Random(1),
        ask_snapshot=lambda: None,
    )


@pytest.mark.parametrize(
    ("by", "total"),
    [
        (1, 2),
        (0.5, 1.0),
        (True, 2),
        (_Level.HIGH, 6),
        (np.int64(7), 14),
        (np.float64(0.25), 0.5),
        (np.float32(0.5), 1.0),
        (np.bool_(True), 2.0),
        (Fraction(1, 4), 0.5),
        (2**60, 2.0**61),
        (-(2**70), -(2.0**71)),
    ],
    ids=repr,
)
def test_every_number_counts_and_travels(by: Any, total: float) -> None:
    """As Python's own numbers, which are all that the control link takes; large ones as floats."""
    context = _context()
    context.increment("seen", by)
    context.increment("seen", by)
    assert context.metrics == {"seen": total} and type(context.metrics["seen"]) is type(total)
    report = WorkerProgress(0, 1, {}, {}, {}, {}, context.metrics, {}, 0, {})
    assert decode_message(encode_message(report)) == report


@pytest.mark.parametrize(
    ("metric", "by", "says"),
    [("seen", "x", "'seen' by 'x', which is no number"), ("seen", None, "None"), (_Level.HIGH, 1, "is a str, not")],
    ids=repr,
)
def test_what_is_no_count_is_named(metric: Any, by: Any, says: str) -> None:
    """At the call that made it: later nobody could say whose it was."""
    with pytest.raises(NodeError, match=says):
        _context().increment(metric, by)


@pytest.mark.parametrize(
    "metric", ["", " ", "\u3000", "a\x1b[2J", "a\nb", "\x00", "\x9b", "half \ud800", "\udfff"], ids=ascii
)
def test_what_is_no_name_is_refused(metric: str) -> None:
    """No page could show it, and a half of a surrogate pair would end the worker that reports it."""
    context = _context()
    with pytest.raises(NodeError, match=r"increment: '.*' is no name of a metric") as refused:
        context.increment(metric)
    assert str(refused.value).isprintable() and context.metrics == {}


@pytest.mark.parametrize("metric", ["seen", "rows read", "gelesen, größer", "\u6570\u3000\u636e", "\U0001f600"])
def test_any_other_name_is_a_name(metric: str) -> None:
    """Of any script, with spaces between words."""
    context = _context()
    context.increment(metric)
    context.increment(metric)
    assert context.metrics == {metric: 2}
