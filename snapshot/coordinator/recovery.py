"""Plan a recovery: from a manifest to the restored state of each subtask.

A changed graph may lose data. `plan_restore` names the loss, and refuses the restore unless the loss was allowed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from cutline.snapshot.coordinator.control import RestoredSubtask
from cutline.snapshot.coordinator.partition_assignment import (
    DROPPED_STATE,
    Assignment,
    assign_afresh,
    assign_again,
    deal_again,
)
from cutline.snapshot.coordinator.rescaling import inherited, records_by_node, refuse_whole_state
from cutline.snapshot.coordinator.reshaping import StoredChannels, carries_end, reshaped_edges
from cutline.snapshot.coordinator.restore_plan import (
    Change,
    RestorePlan,
    fresh_lines,
    is_another_graph,
    messages_in_flight,
    plan_lines,
)
from cutline.snapshot.errors import RestoreRefused
from cutline.snapshot.ids import ChannelId, Subtask, renamed_channel
from cutline.snapshot.plan.modes import name_of_mode
from cutline.snapshot.plan.topology import NodeSpec, Topology
from cutline.snapshot.plan.versions import newer_text, unmigrated_text
from cutline.snapshot.stored.certificate import LocalVersion, OwnStateKind, SubtaskRecord
from cutline.snapshot.stored.manifest import Manifest
from cutline.snapshot.stored.part import Handle
from cutline.snapshot.stored.renaming import renames, with_present_names
from cutline.snapshot.stored.topology_record import topology_of_record

#: names that `submit(allow=...)` accepts
CHANGED_GRAPH = "changedGraph"
DROPPED_MESSAGES = "droppedMessages"
REPEATED_OUTPUT = "repeatedOutput"
ALLOWANCES = (CHANGED_GRAPH, DROPPED_MESSAGES, DROPPED_STATE, REPEATED_OUTPUT)


def check_allowances(allow: Collection[str]) -> tuple[str, ...]:
    """Return the allowances in order.

    Raises
    ------
    ValueError
        if a name is not in `ALLOWANCES`.
    """
    unknown = [each for each in allow if each not in ALLOWANCES]
    if unknown:
        raise ValueError(f"allow={set(unknown)} is unknown; there are {', '.join(ALLOWANCES)}")
    return tuple(sorted(allow))


#: {source: names that its `partitions` hook listed, in that order}
Partitions = Mapping[str, tuple[str, ...]]


def fresh_start(topology: Topology, partitions: Partitions) -> list[RestoredSubtask]:
    """Return the plan of a fresh start, with every subtask as submitted."""
    assigned = {
        node.name: assign_afresh(partitions[node.name], node.parallelism)
        for node in topology.nodes
        if node.name in partitions
    }
    return [RestoredSubtask(each, None, (), (), (), _share(assigned, each)) for each in topology.subtasks]


def plan_restore(
    topology: Topology, manifest: Manifest, allow: Collection[str], partitions: Partitions
) -> list[RestoredSubtask]:
    """Return the restored state of every subtask of `topology`, from the snapshot of `manifest`.

    Raises
    ------
    RestoreRefused
        if the snapshot is of another graph, or of partitions that are no longer listed, and this was not allowed. The
        error names each difference. A note of the error is the whole plan.
    """
    restore = _Restore(topology, manifest)
    try:
        return restore.subtasks(allow, partitions)
    except RestoreRefused as error:
        error.add_note(str(restore.plan(None)))
        raise


def explain_restore(
    topology: Topology, manifest: Manifest | None, allow: Collection[str], partitions: Partitions
) -> RestorePlan:
    """Return what `plan_restore` does with the same arguments, or why it refuses. None: a fresh start."""
    if manifest is None:
        return RestorePlan(topology.name, None, fresh_lines(topology), None)
    restore, reason = _Restore(topology, manifest), None
    try:
        restore.subtasks(allow, partitions)
    except RestoreRefused as error:
        reason = str(error)
    return restore.plan(reason)


class _Restore:
    """A graph, and a snapshot with the present names of nodes.

    Parameters
    ----------
    topology : Topology
    manifest : Manifest
    """

    def __init__(self, topology: Topology, manifest: Manifest) -> None:
        self._topology = topology
        self._names = renames(topology, topology_of_record(manifest.topology))
        self._manifest = with_present_names(manifest, self._names)
        self._stored = topology_of_record(self._manifest.topology)
        self._where = f"run {manifest.run!r}, snapshot {manifest.snapshot_id}"

    def plan(self, reason: str | None) -> RestorePlan:
        """Return the plan as data, with the reason of a refusal."""
        reshaped = reshaped_edges(self._topology, self._stored, StoredChannels(self._manifest))
        lines = plan_lines(self._topology, self._stored, self._manifest, self._names, reshaped)
        return RestorePlan(self._manifest.run, self._manifest.snapshot_id, lines, reason)

    def subtasks(self, allow: Collection[str], partitions: Partitions) -> list[RestoredSubtask]:
        """Return the restored state of every subtask. Raises as `plan_restore`."""
        self._refuse_other_mode()
        if is_another_graph(self._topology, self._stored) and CHANGED_GRAPH not in allow:
            changes = [f"\n  {line}" for line in self.plan(None).lines if line.change is not Change.SAME]
            raise RestoreRefused(
                f"{self._where} is of another graph:{''.join(changes)}\n"
                f"Submit the graph that it was taken of, under another name, or with allow={{'{CHANGED_GRAPH}'}}"
            )
        _refuse_other_key_groups(self._where, self._topology, self._stored)
        _refuse_dropped_messages(self._where, self._topology, self._stored, self._manifest, allow)
        _refuse_dropped_state(self._where, self._topology, self._manifest, allow)
        plan = _Plan(self._topology, self._stored, self._manifest, self._names, allow, partitions)
        plan.check()
        return plan.subtasks()

    def _refuse_other_mode(self) -> None:
        """PROTOCOL 12.1, 14.6: a run keeps its mode, and one that has steps or logs of channels its graph."""
        now, before = name_of_mode(self._topology.mode), name_of_mode(self._stored.mode)
        if now != before:
            raise RestoreRefused(
                f"run {self._manifest.run!r} was made in mode {before!r}; submit it so, or under another name"
            )
        self._refuse_other_copy()
        has_steps = any(record.steps for record in self._manifest.records)
        if not has_steps and not self._topology.row.keeps_channels:
            return
        changes = [f"\n  {line}" for line in self.plan(None).lines if line.change is not Change.SAME]
        for node in self._topology.nodes:
            stored = self._stored.node(node.name) if self._stored.has_node(node.name) else None
            if stored is not None and stored.parallelism != node.parallelism:
                changes.append(f"\n  node {node.name}: parallelism {stored.parallelism} -> {node.parallelism}")
        if changes:
            why = "has work to repeat behind its last state" if has_steps else "has logs of channels that must stay"
            raise RestoreRefused(
                f"{self._where} {why}, and this is another graph:"
                f"{''.join(changes)}\n{_way_out_of_steps(self._topology)}"
            )

    def _refuse_other_copy(self) -> None:
        """Refuse another `copy`, because the list of rows would begin or end in the middle of the run."""
        now, before = self._topology.row, self._stored.row
        if now.makes_versions and now.copies_rows != before.copies_rows:
            raise RestoreRefused(
                f"run {self._manifest.run!r} was made with copy={before.copies_rows}; "
                "submit it so, or under another name"
            )


def _share(assigned: Mapping[str, Assignment], subtask: Subtask) -> tuple[str, ...] | None:
    return assigned[subtask.node][subtask.index] if subtask.node in assigned else None


def _refuse_other_key_groups(where: str, topology: Topology, stored: Topology) -> None:
    if stored.key_groups != topology.key_groups:
        raise RestoreRefused(
            f"{where}: has {stored.key_groups} key groups, but this Cutline divides keys into {topology.key_groups}, "
            "so its rows would lie where their messages do not go: restore it with the Cutline that wrote it"
        )


def _refuse_dropped_messages(
    where: str, topology: Topology, stored: Topology, manifest: Manifest, allow: Collection[str]
) -> None:
    edges = dict.fromkeys((edge.source, edge.target) for edge in topology.edges)
    channels = StoredChannels(manifest)
    gone = [each for each in stored.channels if (each.source.node, each.target.node) not in edges]
    counts = [f"{each}: {n:,} messages" for each in gone if (n := messages_in_flight(stored, channels, each))]
    if counts and DROPPED_MESSAGES not in allow:
        raise RestoreRefused(
            f"{where} holds messages of channels that the graph no longer has:\n  " + "\n  ".join(counts)
            + f"\nallow={{'{DROPPED_MESSAGES}'}} drops them"
        )  # fmt: skip


def _refuse_dropped_state(where: str, topology: Topology, manifest: Manifest, allow: Collection[str]) -> None:
    gone = [record for record in manifest.records if not topology.has_node(record.subtask.node)]
    lost = [f"{record.subtask}: {', '.join(kept)}" for record in gone if (kept := [*_kept_state(record)])]
    if lost and DROPPED_STATE not in allow:
        raise RestoreRefused(
            f"{where} holds state of nodes that the graph no longer has:\n  " + "\n  ".join(lost)
            + f"\nallow={{'{DROPPED_STATE}'}} drops it. A node that has another name now takes its state over: "
            "add(..., formerly=...)"
        )  # fmt: skip


def _kept_state(record: SubtaskRecord) -> Iterator[str]:
    """Yield what a subtask of a snapshot keeps."""
    status = record.status
    if status.own_state is not None:
        size = record.state.size + sum(handle.size for handle in record.own or ())
        yield f"its own state, {size:,} bytes"
    if record.rows:
        yield f"keyed state, {sum(entry.handle.size for entry in record.rows):,} bytes"
    elif status.has_timers:
        yield "timers"
    if status.uncommitted:
        yield f"prepared output of {len(status.uncommitted)} snapshots"


def _way_out_of_steps(topology: Topology) -> str:
    other = "Submit the graph that it was taken of, or this one under another name"
    if not topology.row.replays_all:
        return f"{other}; or stop the run with a snapshot, which has no work behind it"
    return other


class _Plan:
    """A restore into a graph that may have nodes of another parallelism.

    Parameters
    ----------
    topology, stored : Topology
        The graph now, and that of the snapshot.
    manifest : Manifest
    names : mapping of str to str
        {name in the snapshot: name now} of renamed nodes. `stored` and `manifest` have the present names.
    allow : collection of str
    partitions : Partitions
    """

    def __init__(
        self,
        topology: Topology,
        stored: Topology,
        manifest: Manifest,
        names: Mapping[str, str],
        allow: Collection[str],
        partitions: Partitions,
    ) -> None:
        self._topology = topology
        self._stored = stored
        self._manifest = manifest
        self._names = names
        self._channels = StoredChannels(manifest)
        self._where = self._channels.where
        self._records = {record.subtask: record for record in manifest.records}
        self._by_node = records_by_node(manifest.records)
        self._reshaped = reshaped_edges(topology, stored, self._channels)
        #: whether steps are repeated
        self._replays = any(record.steps for record in manifest.records)
        self._ended = {subtask for subtask in topology.subtasks if self._has_ended(subtask)}
        self._assigned = self._assign(allow, partitions)
        #: parts of each old channel, the receiver's before the sender's (PROTOCOL 1.3, channel state)
        self._parts: dict[ChannelId, list[Handle]] = {}
        for handle in sorted(self._channel_handles(), key=lambda handle: handle.kind):
            assert handle.channel is not None
            self._parts.setdefault(renamed_channel(handle.channel, names), []).append(handle)

    def _channel_handles(self) -> list[Handle]:
        return [handle for record in self._manifest.records for handle in record.handles if handle.channel is not None]

    def _is_rescaled(self, node: str) -> bool:
        return node in self._by_node and len(self._by_node[node]) != self._topology.node(node).parallelism

    def _has_ended(self, subtask: Subtask) -> bool:
        records = self._by_node.get(subtask.node, [])
        if self._is_rescaled(subtask.node):
            return all(record.status.ended for record in records)
        return subtask in self._records and self._records[subtask].status.ended

    def _assign(self, allow: Collection[str], partitions: Partitions) -> dict[str, Assignment]:
        """Assign the partitions of each source that lists some, or whose snapshot holds some."""
        assigned = {}
        for node in self._topology.nodes:
            stored = [record.status for record in self._by_node.get(node.name, [])]
            if not stored and node.name in partitions:
                assigned[node.name] = assign_afresh(partitions[node.name], node.parallelism)
            elif node.name in partitions or any(status.partitions is not None for status in stored):
                source = f"{self._where}: source {node.name!r}"
                listed = partitions.get(node.name, ())
                if self._is_rescaled(node.name):
                    assigned[node.name] = deal_again(source, listed, stored, allow, node.parallelism)
                else:
                    assigned[node.name] = assign_again(source, listed, stored, allow)
        return assigned

    # ---------------------------------------------------------------- refusals

    def check(self) -> None:
        """Refuse what cannot be mapped.

        Raises
        ------
        RestoreRefused
        """
        for node in self._topology.nodes:
            if self._stored.has_node(node.name):
                self._refuse_version(self._stored.node(node.name), node)
                self._refuse_messages(self._stored.node(node.name), node)
            if self._is_rescaled(node.name):
                refuse_whole_state(self._where, node.name, self._by_node[node.name], node.parallelism)
                self._refuse_versions(node.name, "cannot be divided among another number of subtasks")
        for (_, target), plan in self._reshaped.items():
            kinds = [record.status.own_state for record in self._by_node[target]]
            plan.check(has_divided_state=OwnStateKind.PARTITIONED in kinds)
        self._refuse_edges_into_ended()

    def _refuse_version(self, before: NodeSpec, now: NodeSpec) -> None:
        """Refuse states that the node cannot read. A worker refuses keyed state, because it reads the states' names."""
        what, versions = f"{self._where}: node {now.name!r}", (before.state_version, now.state_version)
        if before.state_version > now.state_version:
            raise RestoreRefused(newer_text(what, *versions))
        if before.state_version != now.state_version:
            self._refuse_versions(now.name, f"have version {before.state_version} of the values")
        if before.state_version == now.state_version or "migrateState" in (now.migrations or ()):
            return
        if any(record.status.own_state is not None for record in self._by_node[now.name]):
            raise RestoreRefused(unmigrated_text(what, *versions, "migrateState"))

    def _older_messages(self, node: str) -> int | None:
        """Return `messageVersion` of a node in the snapshot if it is an older one."""
        before = self._stored.node(node).message_version
        return None if before == self._topology.node(node).message_version else before

    def _refuse_messages(self, before: NodeSpec, now: NodeSpec) -> None:
        """Refuse messages of a newer version, and logs whose messages would be others.

        A worker refuses messages without a hook for them, because it sees whether there are any.
        """
        what, versions = f"{self._where}: node {now.name!r}", (before.message_version, now.message_version)
        if before.message_version > now.message_version:
            raise RestoreRefused(newer_text(what, *versions, kind="message"))
        if before.message_version == now.message_version:
            return
        if self._replays or self._stored.row.keeps_channels:
            raise RestoreRefused(
                f"{what} has messages of version {before.message_version} in logs that are repeated, and its "
                f"messageVersion is {now.message_version}: take a snapshot on request (takeSnapshot) or stop the run "
                "with one, in a mode whose snapshots have all state, and submit the new class then"
            )

    def _refuse_versions(self, node: str, why: str) -> None:
        """Refuse keyed state that is on local disks only."""
        row = self._stored.row
        if row.makes_versions and not row.copies_rows and any(each.version for each in self._by_node[node]):
            raise RestoreRefused(
                f"{self._where}: the keyed state of {node!r} is in local databases only, which {why}: go on as before, "
                "or use copy=True in the next run"
            )

    def _refuse_edges_into_ended(self) -> None:
        """Refuse a new edge to a node that has ended, because an ended node processes no message."""
        for channel in self._topology.channels:
            if self._is_new(channel) and channel.target in self._ended and channel.source not in self._ended:
                raise RestoreRefused(
                    f"{self._where}: the edge {self._topology.edge_of(channel)} is new, and {channel.target} has ended "
                    "in the snapshot: it would take no message. Lead the edge to a new node, or restore an earlier "
                    "snapshot"
                )

    def _is_new(self, channel: ChannelId) -> bool:
        return channel not in self._channels.numbers and not self._is_reshaped(channel)

    def _is_reshaped(self, channel: ChannelId) -> bool:
        return (channel.source.node, channel.target.node) in self._reshaped

    def _misses_end(self, channel: ChannelId) -> bool:
        """Return whether a channel from an ended subtask carried no end in the stored graph (PROTOCOL 6.7).

        Such a channel is new, or lay inside a cycle of the stored graph, where channels carry no end. A subtask that
        has ended needs no end.
        """
        if channel.source not in self._ended or channel.target in self._ended or self._is_reshaped(channel):
            return False
        had_end = channel in self._channels.numbers and carries_end(self._stored, self._stored.edge_of(channel))
        return not had_end and carries_end(self._topology, self._topology.edge_of(channel))

    # ---------------------------------------------------------------- subtasks

    def subtasks(self) -> list[RestoredSubtask]:
        """Return the restored state of every subtask."""
        return [self._with_channels(self._state_of(subtask)) for subtask in self._topology.subtasks]

    def _state_of(self, subtask: Subtask) -> RestoredSubtask:
        restored = self._unnamed_state_of(subtask)
        if not restored.is_known:
            return restored
        names = (subtask.node, self._topology.former_names.get(subtask.node))
        listed = (*(entry.handle for entry in restored.rows), *restored.own, *restored.steps)
        return replace(
            restored,
            state_version=self._stored.node(subtask.node).state_version,
            message_version=self._older_messages(subtask.node),
            renames=tuple(self._names.items()),
            needs_base=any(handle.subtask.node not in names for handle in listed),
        )

    def _unnamed_state_of(self, subtask: Subtask) -> RestoredSubtask:
        partitions = _share(self._assigned, subtask)
        if self._is_rescaled(subtask.node):
            parallelism = self._topology.node(subtask.node).parallelism
            seed = f"{self._manifest.run}/{self._manifest.snapshot_id}/{subtask}/{parallelism}"
            return inherited(subtask, parallelism, self._by_node[subtask.node], partitions, seed)
        record = self._records.get(subtask)
        if record is None:
            return RestoredSubtask(subtask, None, (), (), (), partitions)
        if self._replays:
            return self._replayed(record, partitions)
        return RestoredSubtask(
            subtask, record.state, (), (), (), partitions,
            groups=record.groups, rows=record.rows or (), own=record.own or (), base=record.base,
            version=self._version_of(record),
        )  # fmt: skip

    def _version_of(self, record: SubtaskRecord) -> LocalVersion | None:
        """Return the local version that holds the rows, or None where the rows must be migrated, which are copied."""
        node = record.subtask.node
        is_older = self._stored.node(node).state_version != self._topology.node(node).state_version
        return None if is_older else record.version

    def _replayed(self, record: SubtaskRecord, partitions: tuple[str, ...] | None) -> RestoredSubtask:
        """PROTOCOL 12.3: return a subtask that repeats its steps, from the state after which they go on.

        A sink has the state of the snapshot itself. Without a state of all subtasks, all others begin afresh.
        """
        subtask, base = record.subtask, record.base
        restored = RestoredSubtask(subtask, None, (), (), (), partitions, steps=record.steps or (), base=base)
        if base is not None:
            inputs, outputs = self._topology.inputs_of(subtask), self._topology.outputs_of(subtask)
            restored = replace(
                restored,
                processed=tuple(zip(inputs, base.processed, strict=True)),
                sent=tuple(zip(outputs, base.sent, strict=True)),
            )
        elif not self._topology.node(subtask.node).is_sink:
            return restored
        return replace(
            restored, state=record.state, groups=record.groups, rows=record.rows or (), own=record.own or (),
            version=self._version_of(record),
        )  # fmt: skip

    def _with_channels(self, restored: RestoredSubtask) -> RestoredSubtask:
        if self._replays:
            return restored  # its channels begin where its state was
        subtask, numbers = restored.subtask, self._channels.numbers
        inputs, outputs = self._topology.inputs_of(subtask), self._topology.outputs_of(subtask)
        edges = [plan.plan(subtask.index) for (_, target), plan in self._reshaped.items() if target == subtask.node]
        kept = [channel for channel in inputs if channel in numbers and not self._is_reshaped(channel)]
        read = [*kept, *(old.channel for edge in edges for old in edge.old)]
        return replace(
            restored,
            processed=tuple((channel, numbers[channel][0]) for channel in kept),
            sent=tuple((channel, self._sent(channel)) for channel in outputs if not self._is_new(channel)),
            channel_parts=tuple(part for channel in read for part in self._parts.get(channel, ())),
            missing_ends=tuple(channel for channel in outputs if self._misses_end(channel)),
            reshaped=tuple(edges),
            fresh_outputs=tuple(target for source, target in self._reshaped if source == subtask.node),
            waves=tuple((channel, waves) for channel in kept if (waves := self._channels.waves.get(channel))),
        )

    def _sent(self, channel: ChannelId) -> int:
        plan = self._reshaped.get((channel.source.node, channel.target.node))
        return self._channels.numbers[channel][1] if plan is None else plan.sent(channel.source.index)
