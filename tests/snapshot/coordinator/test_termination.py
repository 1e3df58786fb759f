"""What a snapshot says of the end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cutline.snapshot.coordinator.termination import ended_components, is_final
from cutline.snapshot.stored.certificate import SubtaskRecord, SubtaskStatus
from tests.snapshot import sample
from tests.snapshot.led import BUSY, ENDED, OVER, record
from tests.snapshot.sample import TOPOLOGY, P, Q


def cut(*statuses: SubtaskStatus, in_flight: int = 0) -> list[SubtaskRecord]:
    """The records of P and Q."""
    pairs = zip((P, Q), statuses, strict=True)
    return [record(TOPOLOGY, subtask, 1, 1, status, in_flight) for subtask, status in pairs]


def test_a_quiet_empty_cycle_is_over() -> None:
    """Passive, no timers, outer inputs ended, and nothing in flight inside it."""
    assert ended_components(TOPOLOGY, cut(OVER, OVER)) == list(TOPOLOGY.components)


@pytest.mark.parametrize(
    "other", [BUSY, replace(OVER, passive=False), replace(OVER, outer_inputs_ended=False)], ids=str
)
def test_a_cycle_with_one_live_member_is_not_over(other: SubtaskStatus) -> None:
    """Any member may still send."""
    assert ended_components(TOPOLOGY, cut(OVER, other)) == []


def test_a_cycle_with_a_message_in_flight_is_not_over() -> None:
    """What is sent and not processed may wake it up."""
    assert ended_components(TOPOLOGY, cut(OVER, OVER, in_flight=1)) == []


def test_a_cycle_that_has_ended_is_not_told_again() -> None:
    """One member that has not is reason enough."""
    assert ended_components(TOPOLOGY, cut(ENDED, ENDED)) == []
    assert ended_components(TOPOLOGY, cut(ENDED, OVER)) == list(TOPOLOGY.components)


def test_only_cyclic_parts_are_told() -> None:
    """Others end by the numbered end of their inputs (PROTOCOL 5.1, end of stream)."""
    acyclic = replace(TOPOLOGY, components=tuple(replace(part, cyclic=False) for part in TOPOLOGY.components))
    assert ended_components(acyclic, cut(OVER, OVER)) == []


def test_final_is_all_ended_and_all_channels_empty() -> None:
    """The sample holds messages on a channel."""
    assert is_final(cut(ENDED, ENDED))
    assert not is_final(cut(ENDED, OVER))
    assert not is_final([replace(each, status=ENDED) for each in sample.records()])
