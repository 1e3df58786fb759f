"""Logging of the runtime: standard `logging`, with run, incarnation and subtask attached. Never logs a secret."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from typing import Any

from cutline.barrier_runtime.launch import WorkerLaunch
from cutline.snapshot.ids import Subtask

_FORMAT = "%(asctime)s %(levelname)s %(name)s [%(where)s] %(message)s"


class _Where(logging.Filter):
    """Adds a place to every record without a place, because the format needs a place."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self._where = where

    def filter(self, record: logging.LogRecord) -> bool:
        if not hasattr(record, "where"):
            record.where = self._where
        return True


def configure(where: str, level: int) -> None:
    """Log to standard error. Call once in each process of Cutline, and never in the user's driver."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(_FORMAT))
    handler.addFilter(_Where(where))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)


def worker_logger(launch: WorkerLaunch, number: int) -> logging.LoggerAdapter[Any]:
    """Make the logger for a worker's own messages."""
    return logging.LoggerAdapter(logging.getLogger("cutline.worker"), {"where": f"{launch.run} worker-{number}"})


def subtask_logger(run: str, incarnation: int, subtask: Subtask) -> logging.LoggerAdapter[Any]:
    """Return the logger that a node gets as ``context.logger``."""
    place: Mapping[str, object] = {
        "run": run,
        "incarnation": incarnation,
        "subtask": str(subtask),
        "where": f"{run} incarnation {incarnation} {subtask}",
    }
    return logging.LoggerAdapter(logging.getLogger(f"cutline.node.{subtask.node}"), dict(place))
