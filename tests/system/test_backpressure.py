"""A snapshot under back-pressure: markers that overtake do not wait for the queues, aligned ones do."""

from __future__ import annotations

import pytest

from benchmarks.live import Live
from tests.system.pressure import measure

pytestmark = [pytest.mark.spark, pytest.mark.ray, pytest.mark.slow]


def test_unaligned_snapshot_overtakes_the_queues(live: Live) -> None:
    """With full channels and a slow sink, unaligned is far faster than aligned, because it saves what is queued."""
    unaligned = measure(live, "unaligned")
    aligned = measure(live, "aligned")
    print(f"unaligned: {unaligned}\naligned: {aligned}")
    assert unaligned.messages_in_flight > 0
    assert aligned.messages_in_flight == 0
    assert unaligned.seconds * 4 < aligned.seconds
    assert aligned.align_seconds > unaligned.align_seconds, "that is where the time goes"
    assert min(*unaligned.held_up, *aligned.held_up) > 0.5, "all that is before the slow one is held up"
