"""Find state of a node that a restore would lose: attributes that change, without `snapshotState`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import cloudpickle

from cutline.snapshot.errors import GraphError
from cutline.snapshot.ids import Subtask
from cutline.snapshot.node import Node
from cutline.snapshot.state import KeyedState

if TYPE_CHECKING:
    from logging import LoggerAdapter

#: bytes; a larger attribute, such as a model, is not compared, because each snapshot would pickle the attribute again
_COMPARED_BYTES_MAX = 64 * 1024


class LostStateCheck:
    """Compare the attributes of a node without `snapshotState` with its attributes at the start."""

    def __init__(self, node: Node, subtask: Subtask, logger: LoggerAdapter[Any]) -> None:
        self._node = node
        self._subtask = subtask
        self._logger = logger
        #: None after a warning
        self._at_start: dict[str, bytes | None] | None
        #: names of the attributes at the start
        self._known: set[str]
        self._note()

    def warn(self) -> None:
        """Warn once, by name, of attributes that changed while the node ran. Each snapshot calls this method."""
        if self._at_start is None:
            return
        if changed := self._changed(self._at_start):
            self._at_start = None
            self._logger.warning(
                "%s changes its attributes %s but has no snapshotState: a restore brings back what it was added with",
                self._subtask, ", ".join(changed),
            )  # fmt: skip

    def opened(self) -> None:
        """Compare with the attributes after `open` from now on, because a replay calls `open` too."""
        if self._at_start is not None:
            self._note()

    def refuse(self) -> None:
        """Refuse attributes that came or changed since `opened`, where states are hashed (PROTOCOL 12.13).

        Raises
        ------
        GraphError
            with the names of the attributes, because such attributes have no hash.
        """
        if self._at_start is None:
            return
        came = [n for n, each in vars(self._node).items() if n not in self._known and not _is_state(each)]
        if changed := self._changed(self._at_start) + came:
            raise GraphError(
                f"{self._subtask} changes its attributes {', '.join(changed)}, which have no hash, because it has no "
                "snapshotState: give it one, or keep keyed state"
            )

    def _note(self) -> None:
        pickled = {name: _pickled(value) for name, value in vars(self._node).items()}
        self._at_start = {n: p for n, p in pickled.items() if p is None or len(p) <= _COMPARED_BYTES_MAX}
        self._known = set(pickled)

    def _changed(self, at_start: Mapping[str, bytes | None]) -> list[str]:
        return [
            name
            for name, before in at_start.items()
            if not _is_state(value := getattr(self._node, name, None)) and _pickled(value) != before
        ]


def _is_state(value: object) -> bool:
    """Return whether a value is keyed state, which the framework saves, a method of one, or a collection of them."""
    values = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return any(isinstance(getattr(each, "__self__", each), KeyedState) for each in (value, *values))


def _pickled(value: object) -> bytes | None:
    """Pickle a value for comparison. Return None for an unpicklable value, such as a connection that `open` made."""
    try:
        return bytes(cloudpickle.dumps(value))
    except BaseException:  # noqa: BLE001  # because pickling runs the value's own code
        return None
