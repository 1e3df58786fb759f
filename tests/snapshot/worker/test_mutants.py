"""Every rule of the worker's machine has teeth: without it, a test of `test_machine` fails."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import pytest

from snapshot.worker import machine as module
from snapshot.worker.machine import WorkerMachine
from snapshot.worker.upload_batcher import UploadBatcher
from tests.snapshot.worker import test_machine


class Mutant(NamedTuple):
    """One rule taken away: a piece of a method's source is replaced."""

    rule: str
    method: str
    old: str
    new: str
    owner: type = WorkerMachine


_OBEY, _TAKE = "_obey", "_take"
_RESTORES = "== self.incarnation and self.stage is Stage.RESTORING:\n                self._restore"

MUTANTS = (
    Mutant("messages of another incarnation are dropped", _OBEY, "!= self.incarnation", "< 0"),
    Mutant("connect is obeyed once restored", _OBEY, "is not Stage.RESTORED", "is None"),
    Mutant("start is obeyed once connected", _OBEY, "is not Stage.CONNECTED", "is None"),
    Mutant("snapshots are obeyed while running", _OBEY, "_ if self.stage is not Stage.RUNNING", "None"),
    Mutant("peers are read after the start", _OBEY, "self._effects.append(ReadPeers())", "pass"),
    Mutant("a trigger answers a request", _OBEY, "self.deadlines.pop(RequestDeadline(subtask), None)", "0"),
    Mutant("the last snapshot is known", _OBEY, "if is_last:", "if False:"),
    Mutant("only the last snapshot is reported", _OBEY, "if is_last:", "if True:"),
    Mutant("an ended cycle is idle again", _OBEY, "self._forget_idleness()", "pass"),
    Mutant("a lower claim is refused", "_welcome", "claim < self._claim", "False"),
    Mutant("a fenced coordinator is not obeyed", _OBEY, "case _ if self._is_coordinator_fenced", "case _ if False"),
    Mutant("a new connection ends the fence", "_take", "self._is_coordinator_fenced = False", "pass"),
    Mutant("the highest claim is kept", "_welcome", "self._claim = claim", "pass"),
    Mutant("a welcome answers requests", "_welcome", "if asked:", "if False:"),
    Mutant("a lower incarnation is not deployed", "_deploy", "message.incarnation < self.incarnation", "False"),
    Mutant("old data is dropped", "_deploy", "self._drop_data()", "self.subtasks = {}"),
    Mutant("peers of the new incarnation are admitted", "_deploy", "self._effects.append(AdmitPeers(", "(("),
    Mutant("a failed worker reads nothing", "_deploy", "elif self.stage is Stage.RESTORING", "elif True"),
    Mutant("chunks are confirmed", "_deploy", "self._send(control.DeployTaken", "(control.DeployTaken"),
    Mutant("late parts are dropped", _TAKE, "parts.deploy.incarnation == self.incarnation and", ""),
    Mutant("parts are restored once", _TAKE, _RESTORES, _RESTORES.replace(" and self.stage is Stage.RESTORING", "")),
    Mutant(
        "late errors of reads are dropped",
        _TAKE,
        "if incarnation == self.incarnation and self.stage is Stage.RESTORING",
        "if True",
    ),
    Mutant(
        "late connections are dropped",
        _TAKE,
        "incarnation == self.incarnation and self.stage is Stage.CONNECTING",
        "True",
    ),
    Mutant("a lost peer of this incarnation only", _TAKE, "if incarnation == self.incarnation:", "if True:"),
    Mutant("a passed deadline passes once", _TAKE, "self.deadlines.pop(deadline, None) is not None", "True"),
    Mutant("damage is permanent", "_fail", "isinstance(error, _PERMANENT)", "False"),
    Mutant("not everything is permanent", "_fail", "isinstance(error, _PERMANENT)", "True"),
    Mutant("the first failure counts", "_fail", "(Stage.WAITING, Stage.FAILED)", "(Stage.WAITING,)"),
    Mutant("connections drop at a failure", "_fail", "self._effects.append(DropConnections())", "pass"),
    Mutant("deadlines end at a failure", "_fail", "self._forget_deadlines()", "pass"),
    Mutant("a lost peer is reported late", "_fail", "isinstance(error, ChannelError)", "False"),
    Mutant("only a lost peer is reported late", "_fail", "isinstance(error, ChannelError) and", ""),
    Mutant("nodes are closed", "_drop_data", "CloseSubtasks(tuple(self.subtasks.values()))", "DropConnections()"),
    Mutant("the last snapshot ends with its incarnation", "_drop_data", "self._last_snapshot = None", "pass"),
    Mutant("idleness is reported once", "_note_idleness", "not self._is_reported_idle and", ""),
    Mutant("idleness needs a while", "_note_idleness", "now + self._settings.idle_seconds", "now"),
    Mutant("work is reported after idleness", "_note_idleness", "if was_reported:", "if False:"),
    Mutant("a pause is not reported", "_note_idleness", "if was_reported:", "if True:"),
    Mutant(
        "uploads below the minimum are dropped",
        "_discard_below",
        "self._uploads.discard_below(min_snapshot_id)",
        "pass",
    ),
    Mutant("deadlines below the minimum end", "_discard_below", "deadline.snapshot_id < min_snapshot_id", "False"),
    Mutant(
        "a contribution has a deadline",
        "_dispatch",
        "self.deadlines.setdefault(UploadDeadline",
        "(lambda *_: 0)(UploadDeadline",
    ),
    Mutant("a whole upload has none", "_dispatch", "self.deadlines.pop(UploadDeadline(snapshot_id), None)", "pass"),
    Mutant(
        "a failed snapshot is declined", "_dispatch", "self._send(control.SnapshotDeclined", "(control.SnapshotDeclined"
    ),
    Mutant("a request is sent", "_dispatch", "self._send(control.SnapshotAskedFor", "(control.SnapshotAskedFor"),
    Mutant(
        "an alignment has a deadline",
        "_dispatch",
        "self.deadlines[AlignmentDeadline(snapshot_id, subtask)] = now + timeout",
        "pass",
    ),
    Mutant("an end brings the report forward", "_dispatch", "self._effects.append(ReportProgress())", "pass"),
    Mutant("whole uploads go together", "add", "batch.count == self._subtask_count", "True", UploadBatcher),
)


def scenarios() -> Iterator[Callable[[], object]]:
    """All tests of the machine, with each of their parameters."""
    for name, function in vars(test_machine).items():
        if not name.startswith("test_"):
            continue
        marks = [mark for mark in getattr(function, "pytestmark", []) if mark.name == "parametrize"]
        if not marks:
            yield function
        for mark in marks:
            for values in mark.args[1]:
                yield partial(function, *(values if isinstance(values, tuple) else (values,)))


def _mutated(mutant: Mutant) -> Any:
    plain, old = textwrap.dedent(inspect.getsource(getattr(mutant.owner, mutant.method))), mutant.old
    assert old in plain, f"{mutant.rule}: {old!r} is not in {mutant.method} any more"
    scope: dict[str, Any] = dict(vars(module)) if mutant.owner is WorkerMachine else dict(_namespace(mutant.owner))
    exec("from __future__ import annotations\n" + plain.replace(old, mutant.new), scope)
    return scope[mutant.method]


def _namespace(owner: type) -> dict[str, Any]:
    found = inspect.getmodule(owner)
    assert found is not None
    return vars(found)


def test_without_a_mutant_all_pass() -> None:
    """The scenarios are those of `test_machine`, so that a mutant that fails them is found by it."""
    found = list(scenarios())
    assert len(found) > 30
    for scenario in found:
        scenario()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.rule)
def test_every_rule_has_teeth(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some scenario fails without the rule."""
    monkeypatch.setattr(mutant.owner, mutant.method, _mutated(mutant))
    for scenario in scenarios():
        try:
            scenario()
        except Exception:  # noqa: BLE001  # whatever it is, it is a difference that a test sees
            return
    pytest.fail(f"no scenario fails without the rule that {mutant.rule}")
