"""The performer of tasks: one step for each task, and a failure that is the result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from cutline import MemoryBackend
from cutline.snapshot.modes.records.record_tasks import CheckNextClaim, WriteRecord
from cutline.snapshot.stored.history import Claim
from cutline.snapshot.stored.local_checkpoint import LocalCheckpoint
from cutline.snapshot.stored.local_checkpoint_files import LocalCheckpointFiles
from cutline.snapshot.stored.run_store import RunStore
from cutline.snapshot.worker.events import Performed
from cutline.snapshot.worker.ledger import TaskFailed
from cutline.snapshot.worker.performer import Performer
from cutline.snapshot.worker.storage_tasks import StorageWork
from cutline.snapshot.worker.upload_batcher import PendingUpload
from tests.snapshot import sample

NEXT = sample.INCARNATION + 1
#: Seconds of the captures, and of their acknowledgements.
CAPTURED_AT, NOW = 10.0, 12.5


class Failing(MemoryBackend):
    """Stores nothing inline. Raises `error` at each write, if there is one."""

    def __init__(self) -> None:
        super().__init__()
        self.inline_bytes_max = 0
        self.error: Exception | None = None

    def _put_if_absent(self, path: str, chunks: Sequence[memoryview]) -> bool:
        if self.error is not None:
            raise self.error
        return super()._put_if_absent(path, chunks)


class Host:
    """A performer over a store that fails on demand."""

    def __init__(self) -> None:
        self.backend = Failing()
        self.store = RunStore(self.backend, sample.RUN)
        work = StorageWork(sample.RUN, sample.INCARNATION, sample.CODEC, self.store.put_rows, self.store.read_part)
        self.performer = Performer(self.store, work, lambda: NOW, OSError)
        record = sample.records()[0]
        self.record = LocalCheckpoint(sample.RUN, record.state.snapshot_id, record, (), (), 0)
        self.write = WriteRecord(self.record, NEXT)

    def upload(self) -> tuple[Any, ...]:
        """Store the contributions of two subtasks together, and return the messages about them."""
        return self.performer.upload([PendingUpload(taken, CAPTURED_AT) for taken in sample.taken()]).messages


def test_the_check_of_a_claim_follows_the_write_of_a_record() -> None:
    """The check is a step of its own, so that a claim between the two is found."""
    host = Host()
    check = host.performer.step(host.write)
    assert check == CheckNextClaim(host.record, NEXT) and check.subtask == host.record.subtask
    assert LocalCheckpointFiles(host.store).newest(sample.INCARNATION) == (host.record,)
    assert host.performer.step(check) == Performed(sample.INCARNATION, check, None)
    claim = Claim(NEXT, "another", "instance")
    assert host.store.take_claim(claim)
    assert host.performer.perform(host.write) == Performed(sample.INCARNATION, check, claim)


def test_a_failure_is_the_result_of_its_task() -> None:
    """No check follows a record that may not be stored. The text of an error is never empty."""
    host = Host()
    for error, reason in ((OSError("no space\x1b"), "no space\\x1b"), (OSError(), "OSError()")):
        host.backend.error = error
        ended = host.performer.perform(host.write)
        assert ended == Performed(sample.INCARNATION, host.write, TaskFailed(reason))


def test_an_error_that_is_no_failure_is_raised() -> None:
    """A simulator must find it."""
    host = Host()
    host.backend.error = AssertionError("a bug")
    with pytest.raises(AssertionError, match="a bug"):
        host.performer.perform(host.write)
    with pytest.raises(AssertionError, match="a bug"):
        host.upload()


def test_contributions_are_acknowledged_or_declined_together() -> None:
    """An acknowledgement has the seconds from the capture until all was stored."""
    host = Host()
    stored = host.upload()
    assert [(each.snapshot_id, each.timings.upload) for each in stored] == [(sample.SNAPSHOT_ID, NOW - CAPTURED_AT)] * 2
    host = Host()
    host.backend.error = OSError("no space")
    declined = host.upload()
    subtasks = [taken.subtask for taken in sample.taken()]
    assert [each.reason for each in declined] == [f"{subtask} could not be stored: no space" for subtask in subtasks]
    assert [each.subtask for each in declined] == subtasks
