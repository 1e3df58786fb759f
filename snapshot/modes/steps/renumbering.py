"""Begin channels with the numbers of a log of compacted input, which has fewer messages than the run had."""

from __future__ import annotations

from dataclasses import replace

from cutline.snapshot.ids import Subtask
from cutline.snapshot.modes.steps.determinants import beginning_of
from cutline.snapshot.plan.topology import Topology
from cutline.snapshot.subtask.restored import RestoredChannels


def renumbered(restored: RestoredChannels, subtask: Subtask, topology: Topology) -> RestoredChannels | None:
    """Return the same with the numbers of its log, or None where the log says none."""
    if restored.first_step is None:
        return None
    began = beginning_of(restored.first_step, f"the log of {subtask}")
    if began is None:
        return None
    sent = dict(zip(topology.outputs_of(subtask), began.sent, strict=True))
    processed = dict(zip(topology.inputs_of(subtask), began.processed, strict=True))
    return replace(restored, sent=sent, processed=processed)
