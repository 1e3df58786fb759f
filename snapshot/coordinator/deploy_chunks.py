"""Divide a deployment into deploy chunks, because the restored data may exceed one control message.

This module divides a plan and assembles the chunks again. The coordinator sends a chunk after the worker has confirmed
the previous chunk, because at most one chunk must be in flight, however much is restored.

A piece is the state of a subtask with the numbers of its channels, one part of a channel, or one entry of a list.
Pieces are not divided, because each piece fits a message: the coordinator received the piece in one acknowledgement.
All parts of a subtask together may not fit, because the senders acknowledged the senders' parts, and because the
entries of a list came with the acknowledgements of several snapshots.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from cutline.snapshot.coordinator.control import Deploy, RestoredSubtask
from cutline.snapshot.ids import Subtask

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
        yield replace(restored, channel_parts=(), rows=(), own=(), steps=(), donor_parts=())
        bare = RestoredSubtask(restored.subtask, None, (), (), ())
        yield from (replace(bare, channel_parts=(part,)) for part in restored.channel_parts)
        yield from (replace(bare, rows=(entry,)) for entry in restored.rows)
        yield from (replace(bare, own=(part,)) for part in restored.own)
        yield from (replace(bare, steps=(part,)) for part in restored.steps)
        yield from (replace(bare, donor_parts=(part,)) for part in restored.donor_parts)


def _joined(pieces: Iterable[RestoredSubtask]) -> tuple[RestoredSubtask, ...]:
    """Merge the pieces of each subtask: the first piece, with the parts and entries of all pieces in order."""
    by_subtask: dict[Subtask, list[RestoredSubtask]] = {}
    for piece in pieces:
        by_subtask.setdefault(piece.subtask, []).append(piece)
    return tuple(
        replace(
            of_subtask[0],
            channel_parts=tuple(part for piece in of_subtask for part in piece.channel_parts),
            rows=tuple(entry for piece in of_subtask for entry in piece.rows),
            own=tuple(part for piece in of_subtask for part in piece.own),
            steps=tuple(part for piece in of_subtask for part in piece.steps),
            donor_parts=tuple(part for piece in of_subtask for part in piece.donor_parts),
        )
        for of_subtask in by_subtask.values()
    )


def _weight(piece: RestoredSubtask) -> int:
    state = () if piece.state is None else (piece.state,)
    rows = (entry.handle for entry in piece.rows)
    handles = (*state, *piece.channel_parts, *rows, *piece.own, *piece.steps, *piece.donor_parts)
    rerouted = sum(len(edge.old) + len(edge.new) for edge in piece.reshaped)
    numbers = len(piece.processed) + len(piece.sent) + len(piece.missing_ends) + len(piece.waves)
    suspects = piece.suspects
    failed = len(suspects.messages) + len(suspects.isolated) + len(suspects.letters) + len(suspects.timers)
    named = 1 + numbers + failed + len(handles) + rerouted
    errors = (letter.error for letter in suspects.letters)
    texts = (*(piece.partitions or ()), *errors, *(timer.key for timer in suspects.timers))
    return (
        named * _NAMES_BYTES
        + sum(len(text.encode()) for text in texts)
        + sum(len(handle.inline or b"") for handle in handles)
    )
