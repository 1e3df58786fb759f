"""Start a snapshot when its clock is found (PROTOCOL 13.15, negotiated clocks)."""

from __future__ import annotations

from cutline.snapshot.coordinator.control import AnnounceClock, AskClock, ClockAnswered, CoordinatorMessage
from cutline.snapshot.coordinator.cut_start import Exchange, StartAtOnce
from cutline.snapshot.modes.clocks.negotiator import Negotiator
from cutline.snapshot.plan.topology import Topology

#: seconds for which aggregates wait for a clock, because they take no message meanwhile
NEGOTIATION_SECONDS_MAX = 2.0


class NegotiatedStart(StartAtOnce):
    """Ask all aggregates before a snapshot starts.

    Parameters
    ----------
    topology : Topology
    """

    def __init__(self, topology: Topology) -> None:
        super().__init__(topology)
        self._negotiator = Negotiator(topology.aggregates)

    def begin(self, incarnation: int, snapshot_id: int) -> Exchange:
        """Ask for the clock of a snapshot."""
        self._negotiator.begin(snapshot_id)
        return Exchange(AskClock(incarnation, snapshot_id), self._negotiator.aggregates, NEGOTIATION_SECONDS_MAX)

    def receive(self, answer: ClockAnswered) -> CoordinatorMessage | None:
        """Take the answer of an aggregate. After the last one, return the clock."""
        snapshot_id, negotiator = answer.snapshot_id, self._negotiator
        if negotiator.answer(snapshot_id, answer.subtask, answer.seen, has_ended=answer.has_ended):
            return AnnounceClock(answer.incarnation, snapshot_id, negotiator.clock)
        return None

    def who_is_late(self, named_max: int) -> str:
        """Return which aggregates have not answered."""
        who = ", ".join(map(str, self._negotiator.missing[:named_max]))
        return f"no clock after {NEGOTIATION_SECONDS_MAX:g} s; these have not answered: {who}"
