"""Warns of a node that keeps state but declares none: it would be lost at the first restore."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cloudpickle

from snapshot.ids import Subtask
from snapshot.node import Node, defines

if TYPE_CHECKING:
    from logging import LoggerAdapter

#: An attribute that is larger, a model above all, is not compared: it would be pickled at every snapshot.
_COMPARED_BYTES_MAX = 64 * 1024


class LostStateCheck:
    """Compares the attributes of a node without `snapshotState` with those that it was added with."""

    def __init__(self, node: Node, subtask: Subtask, logger: LoggerAdapter[Any]) -> None:
        self._node = node
        self._subtask = subtask
        self._logger = logger
        self._at_start: dict[str, bytes | None] | None = None
        if not defines(node, "snapshotState"):
            pickled = {name: _pickled(value) for name, value in vars(node).items()}
            self._at_start = {n: p for n, p in pickled.items() if p is None or len(p) <= _COMPARED_BYTES_MAX}

    def warn(self) -> None:
        """Warn once, by name, of attributes that changed while the node ran. Called at snapshots."""
        if self._at_start is None:
            return
        changed = [
            name for name, before in self._at_start.items() if _pickled(getattr(self._node, name, None)) != before
        ]
        if changed:
            self._at_start = None
            self._logger.warning(
                "%s changes its attributes %s but has no snapshotState: a restore brings back what it was added with",
                self._subtask, ", ".join(changed),
            )  # fmt: skip


def _pickled(value: object) -> bytes | None:
    """Comparable bytes; None for what cannot be pickled, such as a connection that `open` made."""
    try:
        return bytes(cloudpickle.dumps(value))
    except Exception:  # noqa: BLE001  # pickling runs the value's own code, which may raise anything
        return None
