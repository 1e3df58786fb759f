"""Stored snapshots as plain data, for ``--json`` and for the tables. Reads manifests only."""

from __future__ import annotations

from typing import Any

from cutline.barrier_runtime.cli.stored import StoredRun, Unreadable
from cutline.snapshot.ids import ChannelId
from cutline.snapshot.stored.snapshot import Snapshot


def summary(snapshot: Snapshot) -> dict[str, Any]:
    """Return a line of ``snapshots list``."""
    manifest = snapshot.manifest
    return {
        "run": snapshot.run,
        "id": snapshot.id,
        "timestamp": snapshot.timestamp,
        "size_bytes": snapshot.size,
        "duration_seconds": manifest.duration,
        "in_flight": sum(sent - processed for sent, processed in counts(snapshot).values()),
        "pinned": snapshot.pinned,
        "final": manifest.final,
        "incarnation": manifest.incarnation,
        "claim": manifest.claim,
        "written_by": manifest.written_by,
        "edited_from": manifest.edited_from,
        "problem": None,
    }


def unreadable(found: Unreadable) -> dict[str, Any]:
    """Return the record of a snapshot that cannot be read, with the fields that are known."""
    of_manifest = dict.fromkeys(("timestamp", "size_bytes", "duration_seconds", "in_flight", "pinned", "final"))
    of_claim = dict.fromkeys(("incarnation", "claim", "written_by", "edited_from"))
    return {"run": found.run, "id": found.id, **of_manifest, **of_claim, "problem": found.problem}


def run_record(run: StoredRun) -> dict[str, Any]:
    """Return a line of ``runs``. The size is the sum over all parts, and counts a shared part once."""
    sizes = {
        handle.checksum: handle.size
        for snapshot in run.snapshots
        for record in snapshot.manifest.records
        for handle in record.all_handles
    }
    newest = run.newest
    return {
        "run": run.name,
        "snapshots": len(run.snapshots),
        "newest": None if newest is None else newest.id,
        "timestamp": None if newest is None else newest.timestamp,
        "size_bytes": sum(sizes.values()),
        "pinned": sum(snapshot.pinned for snapshot in run.snapshots),
        "final": newest is not None and newest.manifest.final,
        "problems": [found.problem for found in run.unreadable],
    }


def subtasks(snapshot: Snapshot) -> list[dict[str, Any]]:
    """Return the subtasks of ``snapshots show``."""
    return [
        {"subtask": str(record.subtask), "state_bytes": record.state_size, "ended": record.status.ended}
        for record in snapshot.manifest.records
    ]


def channels(snapshot: Snapshot) -> list[dict[str, Any]]:
    """Return the channels of ``snapshots show``."""
    return [
        {
            "source": str(channel.source),
            "target": str(channel.target),
            "sent": sent,
            "processed": processed,
            "in_flight": sent - processed,
        }
        for channel, (sent, processed) in counts(snapshot).items()
    ]


def counts(snapshot: Snapshot) -> dict[ChannelId, tuple[int, int]]:
    """Return by channel the numbers of messages sent and processed at the cut."""
    sent = {entry.channel: entry.sent for record in snapshot.manifest.records for entry in record.sent}
    processed = {entry.channel: entry.processed for record in snapshot.manifest.records for entry in record.received}
    return {channel: (sent[channel], processed[channel]) for channel in snapshot.channels}
