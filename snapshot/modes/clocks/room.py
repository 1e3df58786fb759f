"""Add the assigners of clocks: by epochs, or by slices of the input."""

from __future__ import annotations

from cutline.snapshot.coordinator.cut_start import CutStart
from cutline.snapshot.modes.clocks.epoch_assigner import EpochAssigner
from cutline.snapshot.modes.clocks.negotiated_start import NegotiatedStart
from cutline.snapshot.modes.clocks.slice_assigner import SliceAssigner
from cutline.snapshot.modes.room import Room
from cutline.snapshot.plan.modes import CutRule
from cutline.snapshot.plan.topology import Topology
from cutline.snapshot.subtask.components import SubtaskComponents
from cutline.snapshot.subtask.cut_assigner import StampAssigner


class Clocks(Room):
    """The room of clocks."""

    def equip(self, made: SubtaskComponents) -> None:
        """Let messages be divided by their stamps."""
        core, cut = made.core, made.core.topology.row.cut
        assigner: StampAssigner
        if cut is CutRule.EPOCHS:
            assigner = EpochAssigner(core.node, [each.end for each in core.inputs], core.outputs)
        elif cut is CutRule.SLICES:
            assigner = SliceAssigner(core.subtask, core.node, core.outputs, core.backpressure)
        else:
            return
        made.assigner = assigner
        made.listeners += (assigner,)

    def cut_start(self, topology: Topology) -> CutStart | None:
        """Return the exchange that finds a clock before a cut, where the aggregates negotiate."""
        return NegotiatedStart(topology) if topology.row.cut is CutRule.SLICES else None
