"""Bring the messages in flight of a restored snapshot to the present `Node.messageVersion` of their receiver.

Whole channels are migrated, before the first message is processed and before messages are put on other channels. So
frames have no version of their own, and a running channel pays nothing.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from cutline.snapshot.channel.edited_frames import renumbered, replaced
from cutline.snapshot.channel.frame import Frame
from cutline.snapshot.channel.partitioning import key_function, key_group, subtask_of_group
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.channel.undecodable import Undecodable
from cutline.snapshot.error_text import describe, shown
from cutline.snapshot.errors import GraphError, RestoreRefused
from cutline.snapshot.ids import ChannelId
from cutline.snapshot.node import Node, defines
from cutline.snapshot.plan.compiled_graph import CompiledGraph
from cutline.snapshot.plan.versions import unmigrated_text


@dataclass(frozen=True, slots=True)
class MessageMigration:
    """How the messages of one channel of a snapshot become those of the program."""

    channel: ChannelId
    node: Node  #: an instance of its own
    #: `messageVersion` of the messages
    version: int
    #: schema of the edge, which rows of batches have afterwards; None: that of the batch
    schema: pa.Schema | None
    #: returns the subtask that has the key of a message, or None where messages may be on any channel
    owner_of: Callable[[Any], int] | None

    def frames(self, frames: Iterable[Frame], codec: Codec) -> tuple[Frame, ...]:
        """Return the frames of the channel with migrated messages. One that cannot be decoded stays as it is.

        Raises
        ------
        RestoreRefused
            if the node has no hook, the hook raises, or a message that it returns cannot be stored or has the key of
            another subtask.
        """
        listed = tuple(frames)
        if not defines(self.node, "migrateMessage") and not all(frame.is_control for frame in listed):
            versions = (self.version, self.node.messageVersion)
            raise RestoreRefused(unmigrated_text(str(self.channel.target), *versions, "migrateMessage"))
        try:
            done = replaced(listed, _is_decoded, self._migrated, codec, self.schema).frames
        except GraphError as error:
            raise RestoreRefused(f"{self.channel}: migrateMessage: {error}") from error
        return tuple(renumbered(done, listed[0].first)) if listed else ()

    def _migrated(self, message: Any) -> Any:
        try:
            new = self.node.migrateMessage(message, self.version)
            owner = None if self.owner_of is None else self.owner_of(new)
        except BaseException as error:  # because hook and key function are the user's own
            what = f"migrateMessage({shown(message)}, {self.version})"
            raise RestoreRefused(f"{self.channel}: {what}: {describe(error)}") from error
        if owner is not None and owner != self.channel.target.index:
            raise RestoreRefused(
                f"{self.channel}: migrateMessage made {shown(new)} of {shown(message)}, whose key is one of "
                f"{replace(self.channel.target, index=owner)}: a migrated message keeps a key of its subtask. Restore "
                "with another parallelism to send messages to the subtasks of their new keys"
            )
        return new


def migration_of(
    compiled: CompiledGraph, channel: ChannelId, version: int, *, is_kept: bool
) -> MessageMigration | None:
    """Return how messages of a snapshot become those of the program, or None where the version is the same.

    Parameters
    ----------
    channel : ChannelId
        By the names of the present graph.
    version : int
        `messageVersion` of the receiver in the snapshot.
    is_kept : bool
        Whether the messages stay on the channel, so that their keys must stay in the receiver's key groups.
    """
    target = compiled.topology.node(channel.target.node)
    if version == target.message_version:
        return None
    node = pickle.loads(compiled.nodes[target.name])  # noqa: S301  # trusted like the code, because `build` made it
    assert isinstance(node, Node)
    code = compiled.edges[channel.source.node, target.name]
    owner_of = None
    if is_kept and code.key is not None:
        key_of = key_function(code.key)

        def owner_of(message: Any) -> int:
            return subtask_of_group(key_group(key_of(message)), target.parallelism)

    return MessageMigration(channel, node, version, code.schema, owner_of)


def _is_decoded(_: int, message: Any) -> bool:
    return not isinstance(message, Undecodable)
