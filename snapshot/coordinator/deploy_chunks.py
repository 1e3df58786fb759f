"""A deployment in instalments: what a worker restores may be more than one control message holds.

Owns how a plan is cut into messages and put together again. The coordinator sends an instalment when the worker has
confirmed the one before, so that no more than one is on its way, however much is restored.

What is not cut further came to the coordinator in one acknowledgement, or is less: the state of a subtask with the
numbers of its channels, or one part of a channel. So each instalment fits, as the acknowledgements did. Only all
parts of a subtask together need not: its senders' parts were acknowledged by them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from snapshot.coordinator.control import Deploy, RestoredSubtask
from snapshot.ids import Subtask
from snapshot.stored.part import Handle

#: About what one instalment holds, unless one piece alone is more: large enough that a run whose states are in
#: files is deployed by one message, far below what a control message holds, for weights are estimates.
DEPLOY_CHUNK_BYTES = 4 * 1024 * 1024

#: What the names and numbers of one channel or one part count for; those of ordinary length take a fifth of it.
_NAMES_BYTES = 1024


def deploy_chunks(plan: Iterable[RestoredSubtask]) -> list[tuple[RestoredSubtask, ...]]:
    """`plan` in messages, at least one; a subtask may be in several, beginning with its state."""
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
    """Puts the instalments of a deployment together at its worker."""

    def __init__(self) -> None:
        self._incarnation = 0
        self._pieces: list[RestoredSubtask] = []

    def take(self, deploy: Deploy) -> Deploy | None:
        """The whole deployment once its last instalment is here; None: confirm this one, and more will come.

        An instalment of another incarnation than the last one begins anew.
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
    """Each subtask once: what its first piece says, and the channel parts of all, in order."""
    firsts: dict[Subtask, RestoredSubtask] = {}
    parts: dict[Subtask, list[Handle]] = {}
    for piece in pieces:
        firsts.setdefault(piece.subtask, piece)
        parts.setdefault(piece.subtask, []).extend(piece.channel_parts)
    return tuple(replace(first, channel_parts=tuple(parts[subtask])) for subtask, first in firsts.items())


def _weight(piece: RestoredSubtask) -> int:
    handles = (*piece.channel_parts, *(() if piece.state is None else (piece.state,)))
    named = 1 + len(piece.processed) + len(piece.sent) + len(handles)
    return named * _NAMES_BYTES + sum(len(handle.inline or b"") for handle in handles)
