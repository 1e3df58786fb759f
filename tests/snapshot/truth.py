"""What really happened, kept beside the machines, and the checkers that hold snapshots against it.

The truth is written by the nodes' own hooks and by taps on `send`; it never looks at the core's numbers. The
checkers have the names of RELIABILITY. A failed one raises `CheckFailed`, also where a hook noticed it, whose
own exception the core would have taken for user code's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from snapshot.channel.frame import PayloadKind
from snapshot.channel.frame_codec import messages_of
from snapshot.channel.serialization import Codec
from snapshot.ids import ChannelId, Subtask
from snapshot.plan.topology import Topology
from snapshot.stored.certificate import SubtaskRecord, problems
from snapshot.stored.node_state import NodeState
from snapshot.stored.part import Handle, PartKind, decode_frames, decode_part
from tests.snapshot.walkers import AMOUNT, Plan, Store, canonical, expected, fields

#: The end of a stream in the lists of messages: it is a message like others (PROTOCOL 5.1).
END_OF_STREAM = ("end of stream",)


class CheckFailed(AssertionError):
    """A checker, by name, found something wrong."""

    def __init__(self, checker: str, text: str) -> None:
        super().__init__(f"{checker}: {text}")
        self.checker = checker


class Point(NamedTuple):
    """How far one subtask was when it recorded its state."""

    sent: dict[ChannelId, int]
    processed: dict[ChannelId, int]


class Truth:
    """Per channel, the messages as sent and as processed; per cut, where each subtask was.

    Parameters
    ----------
    topology : Topology
    plans : mapping of str to Plan
    is_ordered : bool
        Whether ids were given out by the rule of PROTOCOL 3.3, so that every subtask must cut in their order.
    """

    def __init__(self, topology: Topology, plans: Mapping[str, Plan], *, is_ordered: bool) -> None:
        self.topology = topology
        self.plans = plans
        self.is_ordered = is_ordered
        self.codec = Codec()
        self.sent: dict[ChannelId, list[Any]] = {channel: [] for channel in topology.channels}
        self.handled: dict[ChannelId, list[Any]] = {channel: [] for channel in topology.channels}
        self.points: dict[tuple[int, Subtask], Point] = {}
        self.complete: list[int] = []
        self.failure: CheckFailed | None = None
        self.money = sum(plan.walks * plan.parallelism for plan in plans.values()) * AMOUNT

    # ---------------------------------------------------------------- what the hooks tell

    def processed(self, subtask: Subtask, sender: Subtask, message: Any) -> None:
        """Note a message, and that it is the next of those that were sent (FIFO, nothing lost or doubled)."""
        channel = ChannelId(sender, subtask)
        done = self.handled[channel]
        sent = self.sent[channel]
        if len(done) >= len(sent) or sent[len(done)] != message:
            due = sent[len(done)] if len(done) < len(sent) else "nothing"
            self.fail("delivery", f"{channel}: message {len(done) + 1} is {message}, but {due} was sent")
        done.append(message)

    def cut(self, subtask: Subtask, snapshot_id: int) -> None:
        """Note where a subtask is at its cut."""
        if (snapshot_id, subtask) in self.points:
            self.fail("completeness", f"{subtask} recorded snapshot {snapshot_id} twice")
        self.points[snapshot_id, subtask] = Point(
            {channel: len(self.sent[channel]) for channel in self.topology.outputs_of(subtask)},
            {channel: len(self.handled[channel]) for channel in self.topology.inputs_of(subtask)},
        )

    def fail(self, checker: str, text: str) -> None:
        """Remember the first failure; `raise_failure` raises it where no hook is in the way."""
        self.failure = self.failure or CheckFailed(checker, text)

    def raise_failure(self) -> None:
        """Raise what a hook noticed."""
        if self.failure is not None:
            raise self.failure

    def roll_back(self, snapshot_id: int | None) -> None:
        """Forget what happened after the cut of `snapshot_id`; None: everything."""
        for channel in self.topology.channels:
            sent = handled = 0
            if snapshot_id is not None:
                sent = self.points[snapshot_id, channel.source].sent[channel]
                handled = self.points[snapshot_id, channel.target].processed[channel]
            del self.sent[channel][sent:]
            del self.handled[channel][handled:]
        kept = snapshot_id or 0
        self.points = {key: point for key, point in self.points.items() if key[0] <= kept}
        self.complete = [snapshot_id for snapshot_id in self.complete if snapshot_id <= kept]

    # ---------------------------------------------------------------- checkers of one snapshot

    def check(self, snapshot_id: int, records: Sequence[SubtaskRecord], incarnation: int) -> None:
        """Checkers 1 to 4 on a snapshot that is complete."""
        self.check_certificate(records, incarnation)
        parts: dict[tuple[PartKind, ChannelId | None], Handle] = {
            (h.kind, h.channel): h for record in records for h in record.handles if h.channel is not None
        }
        flying = {channel: self._flying(channel, parts) for channel in self.topology.channels}
        for channel, messages in flying.items():
            self._check_exact(snapshot_id, channel, messages)
        self._check_order(snapshot_id)
        states = [self.state_of(record) for record in records]
        self._check_causality({record.subtask: state[1] for record, state in zip(records, states, strict=True)})
        held = sum(state[0] + sum(delayed[3] for delayed in state[2]) for state in states)
        moving = sum(m[2] for messages in flying.values() for m in messages if m is not END_OF_STREAM)
        if held + moving != self.money:
            raise CheckFailed("conservation", f"snapshot {snapshot_id}: {held} + {moving} in flight, not {self.money}")

    def check_certificate(self, records: Sequence[SubtaskRecord], incarnation: int) -> None:
        """Checkers 1 and 4 by the certificate."""
        found = problems(self.topology.channels, self.topology.subtasks, records, incarnation)
        if found:
            raise CheckFailed("certificate", "; ".join(found))

    def state_of(self, record: SubtaskRecord) -> Any:
        """What the node's `snapshotState` returned."""
        body = decode_part(record.state, record.state.inline or b"")
        return NodeState.decode(body, self.codec).state

    def _flying(self, channel: ChannelId, parts: Mapping[tuple[PartKind, ChannelId | None], Handle]) -> list[Any]:
        """The channel state, by value, as it is stored: receiver's part, then sender's part."""
        found: list[Any] = []
        for kind in (PartKind.RECEIVED, PartKind.SENT):
            handle = parts.get((kind, channel))
            if handle is None:
                continue
            for frame in decode_frames(handle, decode_part(handle, handle.inline or b"")):
                messages = messages_of(frame, self.codec)
                if frame.kind is PayloadKind.END:
                    found.append(END_OF_STREAM)
                found += map(_by_value, messages.to_pylist() if isinstance(messages, pa.RecordBatch) else messages)
        return found

    def _check_exact(self, snapshot_id: int, channel: ChannelId, messages: list[Any]) -> None:
        sent = self.points[snapshot_id, channel.source].sent[channel]
        handled = self.points[snapshot_id, channel.target].processed[channel]
        due = self.sent[channel][handled:sent]
        if handled > sent or messages != due:
            text = f"{channel} at snapshot {snapshot_id}: {handled} processed, {sent} sent, so {due}; stored {messages}"
            raise CheckFailed("exact cut", text)

    def _check_order(self, snapshot_id: int) -> None:
        """All subtasks cut in the order of ids (PROTOCOL 3.3); a snapshot that was aborted may be out of it."""
        self.complete.append(snapshot_id)
        if not self.is_ordered:
            return
        cuts = [(number, subtask) for number, subtask in self.points if number in self.complete]
        for subtask in self.topology.subtasks:
            order = [number for number, cutting in cuts if cutting == subtask]
            if order != sorted(order):
                raise CheckFailed("order", f"{subtask} cut in the order {order}")

    def _check_causality(self, clocks: Mapping[Subtask, list[int]]) -> None:
        for number, subtask in enumerate(self.topology.subtasks):
            for other, clock in clocks.items():
                if clock[number] > clocks[subtask][number]:
                    raise CheckFailed("causality", f"{other} knows what {subtask} did after its cut")

    # ---------------------------------------------------------------- checkers of the end

    def check_end(self, records: Sequence[SubtaskRecord], store: Store) -> None:
        """Checker 6: the run, with all its faults, did what the run without them does."""
        seen: dict[str, Counter[int]] = {name: Counter() for name in self.plans}
        for record in records:
            _, _, delayed, ends, ids, _ = self.state_of(record)
            seen[record.subtask.node].update(ids)
            inputs = dict.fromkeys(c.source.node for c in self.topology.inputs_of(record.subtask))
            if sorted(ends) != sorted(inputs) or delayed:
                raise CheckFailed("equivalence", f"{record.subtask}: ends of {ends}, has inputs {list(inputs)}")
        for name, due in expected(self.plans).items():
            if seen[name] != due:
                raise CheckFailed("equivalence", f"{name}: missing {due - seen[name]}, too many {seen[name] - due}")
            # Where ids cross, "committed up to s" has no meaning, so nothing is promised of output (PROTOCOL 3.3).
            if self.plans[name].is_sink and self.is_ordered and store.rows(name) != due:
                rows = store.rows(name)
                raise CheckFailed("output", f"{name}: missing {due - rows}, doubled {rows - due}")


def _by_value(message: Any) -> Any:
    step, clock = fields(message)
    return canonical((*step, clock))
