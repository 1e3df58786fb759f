"""Read and decode the stored parts that the subtasks of one worker restore."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from snapshot.channel.frame import Frame
from snapshot.coordinator.control import Deploy, RestoredSubtask
from snapshot.ids import ChannelId, Subtask
from snapshot.stored.part import Handle, decode_frames
from snapshot.subtask.assembly import RestoredChannels


@dataclass(frozen=True, slots=True)
class RestoredParts:
    """Contents of all parts of one deployment, with checked checksums."""

    deploy: Deploy
    #: {subtask: body of its state part, or None for a fresh node}
    states: Mapping[Subtask, memoryview | None]
    channels: Mapping[Subtask, RestoredChannels]


def read_parts(deploy: Deploy, read: Callable[[Handle], memoryview]) -> RestoredParts:
    """Read every part that `deploy` names.

    Parameters
    ----------
    deploy : Deploy
        The whole deployment, assembled from its deploy chunks.
    read : callable
        Returns the checked body of a part. Errors of `read` pass through.
    """
    subtasks = deploy.subtasks
    states = {each.subtask: None if each.state is None else read(each.state) for each in subtasks}
    return RestoredParts(deploy, states, {each.subtask: _channels(each, read) for each in subtasks})


def _channels(restored: RestoredSubtask, read: Callable[[Handle], memoryview]) -> RestoredChannels:
    frames: dict[ChannelId, tuple[Frame, ...]] = {}
    for handle in restored.channel_parts:
        assert handle.channel is not None
        frames[handle.channel] = (*frames.get(handle.channel, ()), *decode_frames(handle, read(handle)))
    return RestoredChannels(
        dict(restored.processed),
        frames,
        dict(restored.sent),
        restored.partitions,
        restored.isolated,
        restored.missing_ends,
    )
