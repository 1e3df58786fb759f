"""Format values, messages, events, sizes and times as short text for people."""

from __future__ import annotations

from itertools import islice
from reprlib import Repr
from typing import Any

from cutline.snapshot.channel.pickles import NotSerialisable
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.trace_events import Event, Kind

#: characters of a value in a verdict, enough to recognise the value
_CHARACTERS = 60
#: entries of a container, and depth, that are formatted before the text is shortened
_ENTRIES, _DEPTH = 30, 5


#: kinds of events whose payload is no message
_WITH_COUNTS = (Kind.RESTORED, Kind.CUT)
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


class _Brief(Repr):
    """A `repr` that limits the entries, and survives errors of a user's `__repr__`."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = _DEPTH
        self.maxlist = self.maxtuple = self.maxdict = self.maxset = self.maxdeque = _ENTRIES
        self.maxstring = self.maxother = self.maxlong = 2 * _CHARACTERS

    def repr_int(self, x: int, level: int) -> str:
        """Format an integer, also one of so many digits that Python makes no text of it."""
        try:
            return super().repr_int(x, level)
        except ValueError:
            return f"<an integer of {x.bit_length():,} bits>"

    def repr_dict(self, x: dict[Any, Any], level: int) -> str:
        """Format a dict in its own order, not sorted."""
        if level <= 0 and x:
            return "{...}"
        pairs = [f"{self.repr1(key, level - 1)}: {self.repr1(x[key], level - 1)}" for key in islice(x, self.maxdict)]
        return "{" + ", ".join(pairs + ["..."] * (len(x) > self.maxdict)) + "}"


_BRIEF = _Brief()


def shortened(text: str, characters: int = _CHARACTERS) -> str:
    """Shorten a text to at most `characters`."""
    return text if len(text) <= characters else text[: characters - 3] + "..."


def brief(value: Any, characters: int = _CHARACTERS) -> str:
    """Format a value on one line."""
    return shortened(" ".join(_BRIEF.repr(value).split()), characters)


def shown(packed: bytes | None, codec: Codec, characters: int = _CHARACTERS) -> str:
    """Format an encoded message. None stands for the end of the stream."""
    if packed is None:
        return "the end of the stream"
    try:
        return brief(codec.decode(packed), characters)
    except NotSerialisable:  # because only the workers may know its class
        return f"({len(packed)} bytes that cannot be read here)"


def size_text(size_bytes: int) -> str:
    """Format a size in bytes, as ``1.5 MiB``."""
    amount, unit = float(size_bytes), 0
    while amount >= 1024 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1024, unit + 1
    return f"{amount:.0f} {_UNITS[unit]}" if unit == 0 else f"{amount:.1f} {_UNITS[unit]}"


def counted(count: int, noun: str) -> str:
    """Format a count with its noun, as ``1 channel`` or ``2 channels``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def duration_text(seconds: float) -> str:
    """Format a duration in seconds, as ``35 ms`` or ``1.25 s``."""
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.2f} s"


def format_event(event: Event, codec: Codec) -> str:
    """Format an event on one line."""
    where = "" if event.channel is None else f" on {event.channel}"
    which = f" of message {event.number}" if event.number else ""
    what = f" ({shown(event.payload, codec)})" if event.payload and event.kind not in _WITH_COUNTS else ""
    return f"{event.kind.value}{which}{what}{where}"
