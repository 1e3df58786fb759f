"""The inputs of a subtask that have something to process, in the order of their turns.

So what a turn costs does not grow with the inputs that have nothing: of a thousand, few have anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from snapshot.ids import ChannelId
from snapshot.subtask.input_processor import InputProcessor


class ReadyInputs:
    """Round robin, so that a busy input does not starve the others.

    Parameters
    ----------
    inputs : iterable of InputProcessor
        All that there are.
    """

    def __init__(self, inputs: Iterable[InputProcessor]) -> None:
        self._inputs = {each.end.channel: each for each in inputs}
        #: held or not
        self._waiting = {channel: each for channel, each in self._inputs.items() if not each.end.drained}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def __iter__(self) -> Iterator[InputProcessor]:
        """Those that wait now, whose turn is first ahead."""
        return iter(list(self._waiting.values()))

    def get(self, channel: ChannelId) -> InputProcessor | None:
        """The input, if something waits there."""
        return self._waiting.get(channel)

    def mark_ready(self, channel: ChannelId) -> None:
        """Something has come: it waits its turn, unless it has one already."""
        self._waiting.setdefault(channel, self._inputs[channel])

    def requeue(self, turn: InputProcessor) -> None:
        """It had its turn, and waits for the next one if anything is left."""
        channel = turn.end.channel
        del self._waiting[channel]
        if not turn.end.drained:
            self._waiting[channel] = turn
