"""The components of one subtask: its core, and what its mode adds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from cutline.snapshot.subtask.acts import Acts
from cutline.snapshot.subtask.core import SubtaskCore
from cutline.snapshot.subtask.cut_assigner import CutAssigner
from cutline.snapshot.subtask.listener import Listener
from cutline.snapshot.subtask.recording import Recording
from cutline.snapshot.subtask.strand import StrandCapture
from cutline.snapshot.subtask.subtask_log import SubtaskLog
from cutline.snapshot.subtask.turns import Turns


@dataclass(slots=True)
class SubtaskComponents:
    """Components from which a `SubtaskMachine` is made, by `snapshot.assembly`."""

    core: SubtaskCore
    #: strands in the order of their capture, without own state, which the state part comes with
    strands: tuple[StrandCapture, ...] = ()
    assigner: CutAssigner = field(default_factory=CutAssigner)
    log: SubtaskLog = field(default_factory=SubtaskLog)
    #: what listens to the events of the subtask, in this order
    listeners: tuple[Listener, ...] = ()
    #: returns the turns that repeat what a restore has brought, or None where it has brought nothing to repeat
    repeated_turns: Callable[[Acts], Turns | None] = lambda acts: None
    #: takes records of the subtask alone; None where markers cut the graph
    recording: Recording | None = None
