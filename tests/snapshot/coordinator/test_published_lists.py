"""Before a snapshot is published, its lists are compared with the snapshot before, or with what was restored."""

from __future__ import annotations

from dataclasses import replace

from cutline.snapshot.coordinator import control, events
from cutline.snapshot.ids import Subtask
from cutline.snapshot.plan.topology import KEY_GROUPS
from cutline.snapshot.stored.certificate import ListEntry
from tests.snapshot import sample
from tests.snapshot.led import BUSY, Led, order, record
from tests.snapshot.listed import rows, whole
from tests.snapshot.sample import P

Q = Subtask("Q")


def generation(number: int, incarnation: int, first: int | None = None) -> ListEntry:
    """A generation of P, or a segment of several."""
    return whole(rows(P, (number if first is None else first, number), (0, KEY_GROUPS), incarnation))


def publish(led: Led, *entries: ListEntry) -> str:
    """A snapshot of P's list and of Q, which has none. Returns "" when it is published, or why it is not."""
    led.step(events.SnapshotRequested(order(len(led.effects))))
    incarnation, (snapshot_id,) = led.coordinator.incarnation, led.coordinator.pending
    topology = led.settings.topology
    p, q = (record(topology, each, incarnation, snapshot_id, BUSY) for each in (P, Q))
    for each in (replace(p, groups=(0, KEY_GROUPS), rows=entries), q):
        led.feed(0, control.SnapshotAcknowledged(incarnation, snapshot_id, each, sample.TIMINGS))
    if snapshot_id in led.coordinator.history:
        return ""
    aborted, reason = led.coordinator.aborted.newest[-1]
    assert aborted == snapshot_id
    return reason


def roll_back(led: Led) -> None:
    """A worker fails, and all workers restore the newest snapshot."""
    led.fail()
    led.restored()
    led.connected()


def test_a_generation_that_was_published_is_not_lost() -> None:
    """An abort loses none either: the list of an aborted snapshot does not count."""
    led = Led().run()
    one, two, three = (generation(number, 1) for number in (1, 2, 3))
    assert publish(led, one) == ""
    assert publish(led, one, two, generation(4, 1)).endswith("generations 4 to 4 are listed where 3 was due")
    assert publish(led, one, two) == ""
    assert publish(led, one) == (
        "the cut is not consistent: P[0]: its list of rows ends with generation 1, but 2 was published"
    )
    assert publish(led, one, two, three) == ""


def test_a_restored_list_is_compared_until_a_base_replaces_it() -> None:
    """What was restored stays in front. After a base of this incarnation it does not come back."""
    led = Led().run()
    old = (generation(2, 1, first=0), generation(3, 1))
    assert publish(led, *old) == ""
    roll_back(led)
    one, base = generation(1, 2), generation(2, 2, first=0)
    assert "lost or changed what was restored: 1 entries instead of 2" in publish(led, old[0], one)
    assert publish(led, *old) == ""
    assert publish(led, *old, one) == ""
    assert publish(led, base) == ""
    assert publish(led, one, generation(2, 2)).endswith("P[0]: its list of rows has lost its base")
    assert "its own generations begin with 3" in publish(led, *old, generation(3, 2))


def test_a_fresh_start_restores_no_list() -> None:
    """A list with a restored part, where nothing was restored, is refused."""
    led = Led().run()
    assert "lost or changed what was restored: 1 entries instead of 0" in publish(led, generation(0, 0))


def test_adopted_workers_are_compared_from_their_next_snapshot_on() -> None:
    """A coordinator that did not deploy the workers does not know what they restored."""
    first = Led().run()
    old = generation(1, 1)
    assert publish(first, old) == ""
    second = Led(store=first.store, instance="A2")
    second.register(0, 1, running=1)
    assert second.coordinator.incarnation == 1
    two = generation(2, 1)
    assert publish(second, old, two) == ""
    assert "ends with generation 1, but 2 was published" in publish(second, old)
    roll_back(second)
    assert "lost or changed what was restored: 0 entries instead of 2" in publish(second)
    assert publish(second, old, two) == ""
