"""Every rule of the worker's machine has teeth: without it, a test of `test_machine` fails."""

from __future__ import annotations

import pytest

from cutline.snapshot.worker.collector import ToCoordinator
from cutline.snapshot.worker.machine import WorkerMachine
from cutline.snapshot.worker.upload_batcher import UploadBatcher
from tests.mutation import Mutant, require_all_pass, require_teeth
from tests.snapshot.worker import test_machine

_OBEY, _TAKE = "_obey", "_take"
_RESTORES = "== self.incarnation and self.stage is Stage.RESTORING:\n                self._restore"

MUTANTS = (
    Mutant("messages of another incarnation are dropped", WorkerMachine, _OBEY, "!= self.incarnation", "< 0"),
    Mutant("connect is obeyed once restored", WorkerMachine, _OBEY, "is not Stage.RESTORED", "is None"),
    Mutant("start is obeyed once connected", WorkerMachine, "_start", "is not Stage.CONNECTED", "is None"),
    Mutant("snapshots are obeyed while running", WorkerMachine, _OBEY, "_ if self.stage is not Stage.RUNNING", "None"),
    Mutant("peers are read after the start", WorkerMachine, "_start", "self._effects.append(ReadPeers())", "pass"),
    Mutant(
        "a trigger answers a request", WorkerMachine, _OBEY, "self.deadlines.pop(RequestDeadline(subtask), None)", "0"
    ),
    Mutant("the last snapshot is known", WorkerMachine, "_published", "if message.is_last:", "if False:"),
    Mutant("only the last snapshot is reported", WorkerMachine, "_published", "if message.is_last:", "if True:"),
    Mutant("an ended cycle is idle again", WorkerMachine, _OBEY, "self._forget_idleness()", "pass"),
    Mutant("a lower claim is refused", WorkerMachine, "_welcome", "claim < self._claim", "False"),
    Mutant(
        "a fenced coordinator is not obeyed",
        WorkerMachine,
        _OBEY,
        "case _ if self._is_coordinator_fenced",
        "case _ if False",
    ),
    Mutant("a new connection ends the fence", WorkerMachine, "_take", "self._is_coordinator_fenced = False", "pass"),
    Mutant("a lower claim is not kept", WorkerMachine, "_welcome", "return\n", "pass\n"),
    Mutant("the highest claim is kept", WorkerMachine, "_welcome", "self._claim = claim", "pass"),
    Mutant("a welcome answers requests", WorkerMachine, "_welcome", "if asked:", "if False:"),
    Mutant(
        "a lower incarnation is not deployed",
        WorkerMachine,
        "_deploy",
        "message.incarnation < self.incarnation",
        "False",
    ),
    Mutant("old data is dropped", WorkerMachine, "_deploy", "self._drop_data()", "self.subtasks = {}"),
    Mutant(
        "peers of the new incarnation are admitted", WorkerMachine, "_deploy", "self._effects.append(AdmitPeers(", "(("
    ),
    Mutant(
        "a failed worker reads nothing", WorkerMachine, "_deploy", "elif self.stage is Stage.RESTORING", "elif True"
    ),
    Mutant("chunks are confirmed", WorkerMachine, "_deploy", "self._send(control.DeployTaken", "(control.DeployTaken"),
    Mutant("late parts are dropped", WorkerMachine, _TAKE, "parts.deploy.incarnation == self.incarnation and", ""),
    Mutant(
        "parts are restored once",
        WorkerMachine,
        _TAKE,
        _RESTORES,
        _RESTORES.replace(" and self.stage is Stage.RESTORING", ""),
    ),
    Mutant(
        "late errors of reads are dropped",
        WorkerMachine,
        _TAKE,
        "if incarnation == self.incarnation and self.stage is Stage.RESTORING",
        "if True",
    ),
    Mutant(
        "an error of a second read is dropped",
        WorkerMachine,
        _TAKE,
        "if incarnation == self.incarnation and self.stage is Stage.RESTORING",
        "if incarnation == self.incarnation",
    ),
    Mutant(
        "late connections are dropped",
        WorkerMachine,
        _TAKE,
        "incarnation == self.incarnation and self.stage is Stage.CONNECTING",
        "True",
    ),
    Mutant(
        "a lost peer of this incarnation only", WorkerMachine, _TAKE, "if incarnation == self.incarnation:", "if True:"
    ),
    Mutant(
        "a passed deadline passes once", WorkerMachine, _TAKE, "self.deadlines.pop(deadline, None) is not None", "True"
    ),
    Mutant("damage is permanent", WorkerMachine, "_fail", "isinstance(error, _PERMANENT)", "False"),
    Mutant("not everything is permanent", WorkerMachine, "_fail", "isinstance(error, _PERMANENT)", "True"),
    Mutant("the first failure counts", WorkerMachine, "_fail", "(Stage.WAITING, Stage.FAILED)", "(Stage.WAITING,)"),
    Mutant("connections drop at a failure", WorkerMachine, "_fail", "self._effects.append(DropConnections())", "pass"),
    Mutant("deadlines end at a failure", WorkerMachine, "_fail", "self._forget_deadlines()", "pass"),
    Mutant("a lost peer is reported late", WorkerMachine, "_fail", "isinstance(error, ChannelError)", "False"),
    Mutant("only a lost peer is reported late", WorkerMachine, "_fail", "isinstance(error, ChannelError) and", ""),
    Mutant(
        "nodes are closed",
        WorkerMachine,
        "_drop_data",
        "CloseSubtasks(tuple(self.subtasks.values()))",
        "DropConnections()",
    ),
    Mutant("idleness is reported once", WorkerMachine, "_note_idleness", "not self._is_reported_idle and", ""),
    Mutant("idleness needs a while", WorkerMachine, "_note_idleness", "now + self._settings.idle_seconds", "now"),
    Mutant("work is reported after idleness", WorkerMachine, "_note_idleness", "if was_reported:", "if False:"),
    Mutant("a pause is not reported", WorkerMachine, "_note_idleness", "if was_reported:", "if True:"),
    Mutant(
        "uploads below the minimum are dropped",
        WorkerMachine,
        "_discard_below",
        "self._data.uploads.discard_below(min_snapshot_id)",
        "pass",
    ),
    Mutant(
        "deadlines below the minimum end",
        WorkerMachine,
        "_discard_below",
        "deadline.snapshot_id < min_snapshot_id",
        "False",
    ),
    Mutant(
        "deadlines at the minimum stay",
        WorkerMachine,
        "_discard_below",
        "deadline.snapshot_id < min_snapshot_id",
        "deadline.snapshot_id <= min_snapshot_id",
    ),
    Mutant(
        "a contribution has a deadline",
        WorkerMachine,
        "_dispatch",
        "self.deadlines.setdefault(UploadDeadline",
        "(lambda *_: 0)(UploadDeadline",
    ),
    Mutant(
        "a whole upload has none",
        WorkerMachine,
        "_dispatch",
        "self.deadlines.pop(UploadDeadline(snapshot_id), None)",
        "pass",
    ),
    Mutant(
        "a failed snapshot is declined",
        WorkerMachine,
        "_dispatch",
        "self._decided(self._data.acknowledgements.parts_stored([declined]), now)",
        "str(declined)",
    ),
    Mutant(
        "a request is sent",
        ToCoordinator,
        "asked",
        "yield SendToCoordinator((SnapshotAskedFor",
        "((SnapshotAskedFor",
    ),
    Mutant(
        "an alignment has a deadline",
        WorkerMachine,
        "_dispatch",
        "self.deadlines[AlignmentDeadline(snapshot_id, subtask)] = now + timeout",
        "pass",
    ),
    Mutant(
        "an end brings the report forward", WorkerMachine, "_note_end", "self._effects.append(ReportProgress())", "pass"
    ),
    Mutant("uploads at the minimum stay", UploadBatcher, "discard_below", "each < snapshot_id", "each <= snapshot_id"),
    Mutant("whole uploads go together", UploadBatcher, "add", "batch.count == self._subtask_count", "True"),
)


def test_without_a_mutant_all_pass() -> None:
    """The scenarios are those of `test_machine`, so that a mutant that fails them is found by it."""
    require_all_pass(test_machine, 37)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.rule)
def test_every_rule_has_teeth(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some scenario fails without the rule."""
    require_teeth(mutant, test_machine, monkeypatch)
