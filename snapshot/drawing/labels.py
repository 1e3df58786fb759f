"""Values, messages, events, sizes and times in few words: for people, wherever something is shown to them."""

from __future__ import annotations

from itertools import islice
from reprlib import Repr
from typing import Any

from snapshot.channel.extensions import NotSerialisable
from snapshot.channel.serialization import Codec
from snapshot.trace_events import Event, Kind

#: Characters of a value that a verdict shows: enough to know it again.
_CHARACTERS = 60
#: Entries of a container, and depth, that are looked at before it is shortened.
_ENTRIES, _DEPTH = 30, 5


#: Kinds whose payload is no message.
_WITH_COUNTS = (Kind.RESTORED, Kind.CUT)
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


class _Brief(Repr):
    """`repr` that does not write out a million entries, and survives what a user's own `__repr__` raises."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = _DEPTH
        self.maxlist = self.maxtuple = self.maxdict = self.maxset = self.maxdeque = _ENTRIES
        self.maxstring = self.maxother = self.maxlong = 2 * _CHARACTERS

    def repr_dict(self, x: dict[Any, Any], level: int) -> str:
        """Like all others in its own order, not sorted."""
        if level <= 0 and x:
            return "{...}"
        pairs = [f"{self.repr1(key, level - 1)}: {self.repr1(x[key], level - 1)}" for key in islice(x, self.maxdict)]
        return "{" + ", ".join(pairs + ["..."] * (len(x) > self.maxdict)) + "}"


_BRIEF = _Brief()


def shortened(text: str, characters: int = _CHARACTERS) -> str:
    """The beginning of a text, where it is long."""
    return text if len(text) <= characters else text[: characters - 3] + "..."


def brief(value: Any, characters: int = _CHARACTERS) -> str:
    """A value on one line."""
    return shortened(" ".join(_BRIEF.repr(value).split()), characters)


def shown(packed: bytes | None, codec: Codec, characters: int = _CHARACTERS) -> str:
    """An encoded message; None stands for the end of the stream."""
    if packed is None:
        return "the end of the stream"
    try:
        return brief(codec.decode(packed), characters)
    except NotSerialisable:  # its class may be known to the workers only
        return f"({len(packed)} bytes that cannot be read here)"


def size_text(size_bytes: int) -> str:
    """As ``1.5 MiB``."""
    amount, unit = float(size_bytes), 0
    while amount >= 1024 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1024, unit + 1
    return f"{amount:.0f} {_UNITS[unit]}" if unit == 0 else f"{amount:.1f} {_UNITS[unit]}"


def counted(count: int, noun: str) -> str:
    """As ``1 channel`` or ``2 channels``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def duration_text(seconds: float) -> str:
    """As ``35 ms`` or ``1.25 s``."""
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.2f} s"


def format_event(event: Event, codec: Codec) -> str:
    """An event."""
    where = "" if event.channel is None else f" on {event.channel}"
    which = f" of message {event.number}" if event.number else ""
    what = f" ({shown(event.payload, codec)})" if event.payload and event.kind not in _WITH_COUNTS else ""
    return f"{event.kind.value}{which}{what}{where}"
