"""Recognise messages that may go by reference: plain values that nobody can change, alone or in tuples.

A shape is the type of a message, or the shapes of a tuple's fields. Looking at the types of a pair in a loop costs as
much as encoding the pair. So each subtask has a check that is written out for the shapes that the subtask sends, as
Python code that is made of types and numbers of fields only. A new shape is learnt by looking at each value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Any, Final

from cutline.snapshot.channel.survey import ATOMS

#: Most values in one message, tuples included, and most characters or bytes of each. Within these limits an estimate of
#: the memory of many messages by a few of them is wrong by a known factor only.
VALUES_MAX: Final = 16
TEXT_MAX: Final = 256

#: Shapes that one subtask sends. With more shapes the messages have no pattern, and the check would be slow.
SHAPES_MAX: Final = 16

#: Messages larger than `VALUES_MAX`, after which no further message is checked.
_LARGE_MAX: Final = 256

#: A type, or a tuple of the shapes of a tuple's fields.
Shape = Any


class Shapes:
    """The shapes of one subtask's messages, and the check that was written out for the shapes."""

    def __init__(self) -> None:
        self._known: list[Shape] = []
        self._large = 0
        #: called when the check has changed
        self.on_learnt: list[Callable[[], None]] = []
        #: returns whether a message may go by reference
        self.fits: Callable[[Any], bool] = self._learn
        #: returns whether each message of a list may go by reference
        self.all_fit: Callable[[list[Any]], bool] = lambda messages: all(map(self._learn, messages))

    def names(self) -> dict[str, type]:
        """Return the global names that the code of `lines` uses."""
        types = dict.fromkeys(leaf for shape in self._known for leaf in _leaves(shape))
        return {f"T{number}": each for number, each in enumerate(types)}

    def lines(self, outcome: Callable[[str, str], list[str]]) -> list[str]:
        """Return code that finds the shape of the message `m`.

        Parameters
        ----------
        outcome : callable
            Returns the code of one shape, from two conditions: `m` has the shape, and such an `m` may go by reference.
        """
        names = {each: name for name, each in self.names().items()}
        ordered = sorted(self._known, key=_width)
        widths = dict.fromkeys(width for each in ordered if (width := _width(each)) >= 0)
        lines: list[str] = []
        for width, shapes in groupby(ordered, key=_width):
            fields = [("m", None)] if width < 0 else [(f"m{number}", number) for number in range(width)]
            found: list[str] = []
            for shape in shapes:
                values = [(name, shape if at is None else shape[at]) for name, at in fields]
                types = [text for name, each in values for text in _types(name, each, names)]
                sizes = [text for name, each in values for text in _sizes(name, each)]
                found += outcome(" and ".join(types) or "True", " and ".join(sizes) or "True")
            if width < 0:
                lines += ["if type(m) is not tuple:", *(f" {line}" for line in found)]
                continue
            unpack = f"{', '.join(name for name, _ in fields)}, = m" if fields else "pass"
            if len(widths) == 1 and fields:  # because a call of `len` costs as much as the rest of the check
                lines += ["if type(m) is tuple:", " try:", f"  {unpack}", " except ValueError:", "  pass", " else:"]
                lines += [f"  {line}" for line in found]
            else:
                lines += [f"if type(m) is tuple and len(m) == {width}:", f" {unpack}", *(f" {line}" for line in found)]
        return lines

    def _learn(self, message: Any) -> bool:
        """Look at each value of a message, and write the check out for its shape too."""
        shape = _shape_of(message)
        if shape is None:
            self._large += 1
        elif shape not in self._known:
            self._known.append(shape)
            self._write()
        if len(self._known) > SHAPES_MAX or self._large > _LARGE_MAX:
            self._known.clear()
            self.fits = self.all_fit = _never
            self._changed()
        return shape is not None and self.fits is not _never and _fits(message)

    def _changed(self) -> None:
        for learnt in self.on_learnt:
            learnt()

    def _write(self) -> None:
        one = self.lines(lambda has_shape, may_go: [f"if {has_shape}:", f" return {may_go}"])
        each = self.lines(lambda has_shape, may_go: [f"if {has_shape} and {may_go}:", " continue"])
        together = ["for m in messages:", *(f" {line}" for line in each), " if not fits(m):", "  return False"]
        self.fits = function("fits", "m", [*one, "return learn(m)"], self._globals())
        self.all_fit = function("all_fit", "messages", [*together, "return True"], self._globals())
        self._changed()

    def _globals(self) -> dict[str, Any]:
        return {**self.names(), "learn": self._learn, "fits": self.fits}


def function(name: str, parameters: str, lines: list[str], names: dict[str, Any]) -> Callable[..., Any]:
    """Return a function with these lines as its body and `names` as its global names."""
    source = "\n".join([f"def {name}({parameters}):", *(f" {line}" for line in lines)])
    exec(source, names)  # noqa: S102  # made of the types and the numbers of fields only
    made: Callable[..., Any] = names[name]
    return made


def _never(_: Any) -> bool:
    return False


def _shape_of(message: Any) -> Shape | None:
    """Return the shape of a message, or None if the message has more than `VALUES_MAX` values."""
    if type(message) is not tuple:
        return type(message)
    room = VALUES_MAX

    def shape(value: Any) -> Shape:
        nonlocal room
        room -= 1
        if type(value) is not tuple:
            return type(value)
        return tuple([shape(each) for each in value if room >= 0])

    found = shape(message)
    return found if room >= 0 else None


def _fits(value: Any) -> bool:
    """Return whether a value of a learnt shape may go by reference."""
    if type(value) is tuple:
        return all(map(_fits, value))
    return type(value) in ATOMS and not (type(value) in _SIZED and len(value) > TEXT_MAX)


#: Types of atoms of any size that is counted. Integers are not counted, because large ones are rare.
_SIZED: Final = (str, bytes)


def _width(shape: Shape) -> int:
    return len(shape) if isinstance(shape, tuple) else -1


def _leaves(shape: Shape) -> Iterator[type]:
    if isinstance(shape, tuple):
        for each in shape:
            yield from _leaves(each)
    else:
        yield shape


def _types(name: str, shape: Shape, names: dict[type, str]) -> Iterator[str]:
    """Return conditions that hold exactly for values of a shape."""
    if not isinstance(shape, tuple):
        yield f"type({name}) is {names[shape]}"
        return
    yield f"type({name}) is tuple and len({name}) == {len(shape)}"
    for at, each in enumerate(shape):
        yield from _types(f"{name}[{at}]", each, names)


def _sizes(name: str, shape: Shape) -> Iterator[str]:
    """Return further conditions for a value of a shape to go by reference."""
    if isinstance(shape, tuple):
        for at, each in enumerate(shape):
            yield from _sizes(f"{name}[{at}]", each)
    elif shape not in ATOMS:
        yield "False"
    elif shape in _SIZED:
        yield f"len({name}) <= {TEXT_MAX}"
