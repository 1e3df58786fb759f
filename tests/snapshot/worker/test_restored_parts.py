"""Stored parts as they are read for a deployment: one that cannot be read is named."""

from __future__ import annotations

import pytest

from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.coordinator.control import Deploy, RestoredSubtask
from cutline.snapshot.errors import SnapshotCorrupt
from cutline.snapshot.ids import Subtask
from cutline.snapshot.stored.part import Handle, PartKind, decode_part
from cutline.snapshot.worker.restored_parts import read_parts
from tests.snapshot import sample


def test_changes_that_cannot_be_read_are_named() -> None:
    """The error names the part of own state, as for every other part."""
    subtask = Subtask("a")
    handle = Handle(PartKind.OWN, "r", 1, 1, subtask, None, 1, 1, 1, b"", "a-file", None)
    deploy = Deploy(2, (RestoredSubtask(subtask, None, (), (), (), own=(handle,)),), has_more=False)
    with pytest.raises(SnapshotCorrupt) as caught:
        read_parts(deploy, lambda _: memoryview(b"x"), sample.compiled(), Codec())
    assert str(caught.value).startswith(f"{handle.name}: its table of changes cannot be read")


def test_an_unknown_control_frame_is_refused_by_name() -> None:
    """A restore never skips a statement of a channel."""
    handle = sample.sent_part(*sample.UNKNOWN_STATEMENT).inline()
    deploy = Deploy(2, (RestoredSubtask(sample.Q, None, (), (), (handle,)),), has_more=False)
    with pytest.raises(SnapshotCorrupt, match=r"P\[0\]->Q\[0\].*message 8 is a control frame"):
        read_parts(deploy, lambda each: decode_part(each, each.inline or b""), sample.compiled(), Codec())
