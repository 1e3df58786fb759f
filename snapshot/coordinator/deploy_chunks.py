"""Divide a deployment into deploy chunks, because the restored data may exceed one control message.

This module divides a plan and assembles the chunks again. The coordinator sends a chunk after the worker has confirmed
the previous chunk, because at most one chunk must be in flight, however much is restored.

A piece is the state of a subtask with the numbers of its channels, or one part of a channel. Pieces are not divided,
because each piece fits a message: the coordinator received the piece in one acknowledgement. All parts of a subtask
together may not fit, because the senders acknowledged the senders' parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from snapshot.coordinator.control import Deploy, RestoredSubtask
from snapshot.ids import Subtask
from snapshot.stored.part import Handle

#: approximate bytes of one chunk, unless one piece is larger. A run whose states are in files fits one message. The
#: limit is far below the size of a control message, because weights are estimates.
DEPLOY_CHUNK_BYTES = 4 * 1024 * 1024

#: estimated bytes of the names and numbers of one channel or part; ordinary names take a fifth of this
_NAMES_BYTES = 1024


def deploy_chunks(plan: Iterable[RestoredSubtask]) -> list[tuple[RestoredSubtask, ...]]:
    """Divide `plan` into at least one chunk. A subtask may be in several chunks, and its state comes first."""
    groups: list[list[RestoredSubtask]] = [[]]
    weight = 0
    for piece in _pieces(plan):
        weight += _weight(piece)
        if groups[-1] and weight > DEPLOY_CHUNK_BYTES:
            groups.append([])
            weight = _weight(piece)
        groups[-1].append(piece)
    return [_joined(group) for group in groups]


class DeploymentAssembler:
    """Assemble the chunks of a deployment at the worker."""

    def __init__(self) -> None:
        self._incarnation = 0
        self._pieces: list[RestoredSubtask] = []

    def take(self, deploy: Deploy) -> Deploy | None:
        """Add a chunk. Return the whole deployment after the last chunk, else None; the caller then confirms the chunk.

        A chunk of another incarnation than the previous chunk begins a new deployment.
        """
        if deploy.incarnation != self._incarnation:
            self._incarnation, self._pieces = deploy.incarnation, []
        self._pieces += deploy.subtasks
        if deploy.has_more:
            return None
        pieces, self._pieces = self._pieces, []
        return replace(deploy, subtasks=_joined(pieces))


def _pieces(plan: Iterable[RestoredSubtask]) -> Iterator[RestoredSubtask]:
    for restored in plan:
        yield replace(restored, channel_parts=())
        for part in restored.channel_parts:
            yield RestoredSubtask(restored.subtask, None, (), (), (part,))


def _joined(pieces: Iterable[RestoredSubtask]) -> tuple[RestoredSubtask, ...]:
    """Merge the pieces of each subtask: the first piece, with the channel parts of all pieces in order."""
    firsts: dict[Subtask, RestoredSubtask] = {}
    parts: dict[Subtask, list[Handle]] = {}
    for piece in pieces:
        firsts.setdefault(piece.subtask, piece)
        parts.setdefault(piece.subtask, []).extend(piece.channel_parts)
    return tuple(replace(first, channel_parts=tuple(parts[subtask])) for subtask, first in firsts.items())


def _weight(piece: RestoredSubtask) -> int:
    handles = (*piece.channel_parts, *(() if piece.state is None else (piece.state,)))
    named = 1 + len(piece.processed) + len(piece.sent) + len(handles) + len(piece.isolated) + len(piece.missing_ends)
    texts = (*(piece.partitions or ()), *(isolated.error or "" for isolated in piece.isolated))
    return (
        named * _NAMES_BYTES
        + sum(len(text.encode()) for text in texts)
        + sum(len(handle.inline or b"") for handle in handles)
    )
