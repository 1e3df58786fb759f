"""Keep messages that failed apart from the others, and say which go along the dead-letter edge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from cutline.snapshot.channel.message_hash import content_hashes
from cutline.snapshot.channel.object_frame import AnyFrame
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.channel.undecodable import Undecodable, decoded_messages
from cutline.snapshot.errors import NodeError
from cutline.snapshot.failed_event import DeadLetter, FailedMessage, Suspects
from cutline.snapshot.ids import ChannelId
from cutline.snapshot.subtask.output_edge import OutputEdge

#: Messages about the number of one that failed, among which it is looked for, because each of them is hashed.
_SEARCHED_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class Piece:
    """The next messages of a channel that are handled together."""

    count: int
    #: error of the one message, which is set aside; None: the node gets the messages
    error: str | None = None
    #: what the one message is, if it failed before: several if it had several numbers
    suspects: tuple[FailedMessage, ...] = ()


class Isolation:
    """The suspects among the messages of one channel (PROTOCOL 6.6, failing messages).

    Parameters
    ----------
    channel : ChannelId
    suspects : Suspects
        Those of other channels are left out.
    edge : OutputEdge or None
        Dead-letter edge of the channel, or None if none was declared.
    codec : Codec
    """

    def __init__(self, channel: ChannelId, suspects: Suspects, edge: OutputEdge | None, codec: Codec) -> None:
        self._channel = channel
        self._edge = edge
        self._codec = codec
        self._messages = [each for each in suspects.messages if each.channel == channel]
        self._isolated = [each for each in suspects.isolated if each.channel == channel]
        self._letters = [each for each in suspects.letters if each.channel == channel]
        self._handled: list[FailedMessage] = []
        self._decoded: tuple[AnyFrame, list[Any] | pa.RecordBatch] | None = None

    def concerns(self, frame: AnyFrame) -> bool:
        """Return whether a frame, or a frame after it, has suspects. Frames come in order."""
        if not (self._messages or self._isolated or self._letters):
            return False
        first = frame.first
        self._messages = [each for each in self._messages if each.number + _SEARCHED_MAX >= first]
        self._isolated = [each for each in self._isolated if each.last >= first]
        self._letters = [each for each in self._letters if each.number + _SEARCHED_MAX >= first]
        return bool(self._messages or self._isolated or self._letters)

    def messages(self, frame: AnyFrame) -> list[Any] | pa.RecordBatch:
        """Return the messages of a frame as they were sent, because those after a piece may not fit the node's shape.

        The last frame is kept, because it may be handled in many pieces.
        """
        if self._decoded is None or self._decoded[0] is not frame:
            self._decoded = (frame, decoded_messages(frame, self._codec))
        return self._decoded[1]

    def note_undecodable(self, frame: AnyFrame, processed: int) -> bool:
        """Let the messages of a frame be set aside that cannot be decoded here, from the one after `processed` on.

        Return whether there is a dead-letter edge for them.
        """
        if self._edge is None:
            return False
        for number, message in enumerate(self.messages(frame), frame.first):
            if number > processed and isinstance(message, Undecodable):
                self._letters.append(DeadLetter(self._channel, number, None, message.error))
        return True

    def piece(self, number: int, messages: list[Any] | pa.RecordBatch) -> Piece:
        """Return how many of the messages from `number` on are handled next: at least one."""
        end = number + len(messages)
        for isolated in self._isolated:
            end = min(bound for bound in (end, isolated.first, isolated.last + 1) if bound > number)
        numbers = (each.number - _SEARCHED_MAX for each in self._messages)  # it may come earlier than before
        first = max(number, min([end, *numbers, *(letter.number for letter in self._letters)]))
        searched = messages[first - number : end - number]
        for each, content in enumerate(content_hashes(searched, self._codec), first):
            letter = self._letter_of(each, content)
            suspects = tuple(suspect for suspect in self._messages if suspect.content == content)
            if (letter is not None or suspects) and each > number:
                return Piece(each - number)
            if letter is not None:
                self._letters.remove(letter)
                return Piece(1, error=letter.error)
            if suspects:
                return Piece(1, suspects=suspects)
        return Piece(end - number)

    def _letter_of(self, number: int, content: bytes) -> DeadLetter | None:
        """Return the dead letter for a message: one with its content, or one for its number alone."""
        for letter in self._letters:
            is_for_number = letter.content is None and letter.number == number
            if is_for_number or (letter.content == content and letter.number <= number):
                return letter
        return None

    def note_handled(self, piece: Piece) -> None:
        """Note a message that failed before, and was handled now."""
        self._handled += piece.suspects
        self._messages = [each for each in self._messages if each not in piece.suspects]

    def take_handled(self) -> list[FailedMessage]:
        """Return the messages that failed before, and were handled since the last call."""
        handled, self._handled = self._handled, []
        return handled

    def set_aside(self, message: Any, number: int, error: str) -> None:
        """Send a message that failed along the dead-letter edge."""
        if self._edge is None:
            raise NodeError(f"{self._channel}: message {number} cannot be set aside, because the edge has no onError")
        self._edge.emit({
            "message": message,
            "error": error,
            "node": self._channel.target.node,
            "channel": str(self._channel),
            "sequenceNumber": number,
        })  # fmt: skip
