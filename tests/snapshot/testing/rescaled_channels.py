"""Channels of one hash edge over several restores, without a run: order and number of messages, many times a second.

A key's records are sent by the owner of the key at A, whichever subtask that is now, to its owner at B. Between two
restores some are sent and some are processed. The plan, the rerouting and the gates are the real ones.
"""

from __future__ import annotations

from random import Random
from typing import Any

from cutline.snapshot.channel.channel_receiver import ChannelReceiver
from cutline.snapshot.channel.frame_codec import messages_of
from cutline.snapshot.channel.partitioning import key_group, subtask_of_group
from cutline.snapshot.coordinator import recovery, reshaping
from cutline.snapshot.coordinator.control import RestoredSubtask
from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.plan.topology import Topology
from cutline.snapshot.stored.manifest import Manifest
from cutline.snapshot.subtask.wave_gates import WaveGates
from cutline.snapshot.testing.checkers import CheckFailed
from cutline.snapshot.worker.restored_parts import RestoredParts
from tests.snapshot.in_flight import CODEC, Flight, edge, flat, restored, snapshot_of

KEYS = range(8)


def first(message: Any) -> Any:
    """The key of a record."""
    return message[0]


class Channels:
    """The edge A->B of one graph after another."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.topology = edge(chance.randrange(1, 4), chance.randrange(1, 4))
        self.ends = {each: ChannelReceiver(each) for each in self.topology.channels}
        self.sent: dict[ChannelId, int] = dict.fromkeys(self.ends, 0)
        #: {channel: messages that are not processed}
        self.waiting: dict[ChannelId, list[Any]] = {each: [] for each in self.ends}
        self.next = dict.fromkeys(KEYS, 0)
        self.due = dict.fromkeys(KEYS, 0)
        #: what was seen: the number of restores, and those that had waves to bring back
        self.seen: dict[str, int] = {"rescaled": 0, "plain": 0, "rescaled with waves": 0, "plain with waves": 0}
        self._gate()

    def run(self, restores: int = 4) -> dict[str, int]:
        """Send, process and restore; then process all.

        Raises
        ------
        CheckFailed
            if a record is lost, doubled or overtaken, or if a rule of a channel is broken.
        """
        for _ in range(restores):
            self._send(self.chance.randrange(8))
            self._process(self.chance.randrange(8))
            self._restore()
        self._send(4)
        self._process(None)
        if self.due != self.next:
            raise CheckFailed("delivery", f"processed {self.due} of {self.next}")
        return self.seen

    # ---------------------------------------------------------------- the edge

    def _gate(self) -> None:
        by_target: dict[Subtask, list[ChannelReceiver]] = {}
        for end in self.ends.values():
            by_target.setdefault(end.channel.target, []).append(end)
        self.gates = {target: WaveGates(ends) for target, ends in by_target.items()}

    def _send(self, count: int) -> None:
        for _ in range(count):
            key = self.chance.choice(KEYS)
            owners = [subtask_of_group(key_group(key), self.topology.node(name).parallelism) for name in "AB"]
            channel = ChannelId(Subtask("A", owners[0]), Subtask("B", owners[1]))
            self.sent[channel] += 1
            self.waiting[channel].append((key, self.next[key]))
            self.ends[channel].deliver(flat(self.sent[channel], self.waiting[channel][-1]))
            self.next[key] += 1

    def _process(self, count: int | None) -> None:
        """Process so many messages, or all, of any channel that may be taken."""
        while count is None or count:
            waiting = [end for end in self.ends.values() if end.head is not None]
            free = [end for end in waiting if self.gates[end.channel.target].may_take(end)]
            if not free:
                return
            end = self.chance.choice(free)
            key, number = self.waiting[end.channel].pop(0)
            if number != self.due[key]:
                raise CheckFailed("delivery", f"{end.channel}: {key} {number} came, {self.due[key]} was due")
            self.due[key] += 1
            end.advance(1)
            count = None if count is None else count - 1

    def _cut(self) -> Manifest:
        flights = {}
        for channel, end in self.ends.items():
            end.start_recording(1)
            cut = end.stop_recording(1, self.sent[channel])
            messages = self.waiting[channel]
            flights[channel.source.index, channel.target.index] = Flight(
                end.processed, list(messages), overtaken=self.chance.randrange(len(messages) + 1), waves=cut.waves
            )
        return snapshot_of(self.topology, flights)

    def _restore(self) -> None:
        before, manifest = self.topology, self._cut()
        has_waves = any(record.waves for record in manifest.records)
        if self.chance.randrange(3):
            self.topology = edge(self.chance.randrange(1, 4), self.chance.randrange(1, 4))
        plan = recovery.plan_restore(self.topology, manifest, (), {})
        parts = restored(plan, self.topology, first)
        problems = reshaping.rerouting_problems(self.topology, manifest, parts.rerouted)
        if problems:
            raise CheckFailed("certificate", "; ".join(problems))
        self._take(plan, parts)
        is_rescaled = [before.node(name).parallelism for name in "AB"] != [
            self.topology.node(name).parallelism for name in "AB"
        ]
        what = "rescaled" if is_rescaled else "plain"
        self.seen[what] += 1
        self.seen[f"{what} with waves"] += has_waves

    def _take(self, plan: list[RestoredSubtask], parts: RestoredParts) -> None:
        self.ends, self.waiting, self.sent = {}, {}, {}
        for each in plan:
            self.sent |= dict(each.sent)
        for channel in self.topology.channels:
            of = parts.channels[channel.target]
            frames = of.frames.get(channel, ())
            end = ChannelReceiver(
                channel, processed=of.processed[channel], restored=frames, waves=of.waves.get(channel, ())
            )
            if end.arrived != self.sent[channel]:
                raise CheckFailed("sequence", f"{channel}: {end.arrived} arrived, {self.sent[channel]} were sent")
            self.ends[channel] = end
            self.waiting[channel] = [message for frame in frames for message in messages_of(frame, CODEC)]
        self._gate()


def topology_of(channels: Channels) -> Topology:
    """The graph now."""
    return channels.topology
