"""Values of every kind that users make, with sharing and cycles, and their description by content, type and sharing."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from fractions import Fraction
from io import BytesIO, TextIOWrapper
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import msgpack
import numpy as np
import pyarrow as pa

from cutline.snapshot.channel.frame import Frame, PayloadKind
from cutline.snapshot.channel.frame_codec import messages_of
from cutline.snapshot.channel.out_of_band_buffers import LARGE_BYTES
from cutline.snapshot.channel.serialization import Codec

Pair = namedtuple("Pair", "left right")


class Colour(IntEnum):
    """An int that is more than an int."""

    RED = 1


class Shape(Enum):
    """No int."""

    ROUND = "round"


class Text(str):
    """A str that is more than a str."""

    __slots__ = ()


@dataclass
class Box:
    """Holds anything, itself too."""

    content: Any = None
    label: str = "box"


class Slotted:
    """An object without a dict."""

    __slots__ = ("content",)

    def __init__(self, content: Any) -> None:
        self.content = content


class Broken(Exception):
    """Can be pickled; its constructor then lacks an argument. Many exceptions are like this."""

    def __init__(self, what: str, where: str) -> None:
        super().__init__(what)
        self.where = where


class Hostile:
    """Cannot be pickled."""

    def __reduce__(self) -> Any:
        raise RuntimeError("no")


@dataclass
class Odd:
    """Can be unpickled if its number is even."""

    number: int

    def __setstate__(self, state: dict[str, int]) -> None:
        if state["number"] % 2:
            raise ValueError("an odd number")
        self.__dict__ |= state


@dataclass
class Maker:
    """Makes one value after another, and now and then gives one that it has made."""

    rng: Random
    made: list[Any] = field(default_factory=list)

    def value(self, depth: int = 4) -> Any:
        """Make a value of at most `depth` levels."""
        if self.made and self.rng.random() < 0.15:
            return self.rng.choice(self.made)
        if depth == 0 or self.rng.random() < 0.4:
            made = self.rng.choice(_LEAVES)(self.rng)
            self.made.append(made)
            return made
        return self.rng.choice(_CONTAINERS)(self, depth - 1)

    def values(self, depth: int) -> list[Any]:
        """Make up to four values."""
        return [self.value(depth) for _ in range(self.rng.randrange(4))]

    def keys(self, count: int) -> list[Any]:
        """Make hashable values."""
        return [self.rng.choice(_KEYS)(self.rng) for _ in range(count)]

    def fill(self, container: Any, add: Callable[[Any, Any], object], depth: int) -> Any:
        """Make the container known before it is filled, so that it may come to hold itself."""
        self.made.append(container)
        for value in self.values(depth):
            add(container, value)
        return container


_LEAVES: list[Callable[[Random], Any]] = [
    lambda rng: rng.choice([None, True, False, 0, -1, 2**63, -(2**63), 2**64, -(10**30), 0.0, -0.0, 1.5]),
    lambda rng: rng.choice([float("inf"), float("nan"), 1j, complex(0.0, -0.0), Colour.RED, Shape.ROUND]),
    lambda rng: rng.choice(["", "text", "ключ", "\ud800", "x" * LARGE_BYTES, Text("more")]),
    lambda rng: rng.choice([b"", b"\xc1", bytes(LARGE_BYTES), bytearray(b"changes"), bytearray(LARGE_BYTES)]),
    lambda rng: rng.choice([Decimal("1.50"), Fraction(1, 3), date(2020, 1, 2), timedelta(1), UUID(int=7), range(3)]),
    lambda rng: rng.choice([datetime(2020, 1, 2, tzinfo=UTC), msgpack.ExtType(1, b"\x90"), msgpack.Timestamp(1, 2)]),
    lambda rng: np.arange(rng.choice([0, 3, LARGE_BYTES]), dtype=rng.choice(["i8", "f4", ">i2"])),
    lambda rng: rng.choice([np.float64(1.5), np.datetime64("2020-01-02"), np.array([{"a": 1}, None], dtype=object)]),
    lambda rng: pa.record_batch({"x": range(rng.choice([0, 3, LARGE_BYTES]))}).slice(rng.choice([0, 1])),
    lambda rng: rng.choice([pa.table({"x": [1]}), pa.scalar(1), pa.int32()]),
    lambda rng: rng.choice([Broken("a", "b"), Hostile(), Odd(1), Odd(2), ValueError("what", 1)]),
    lambda rng: rng.choice(
        [memoryview(b"view"), (each for each in "x"), open, len, Box, Random.random, TextIOWrapper(BytesIO())]
    ),
]
_KEYS: list[Callable[[Random], Any]] = [
    lambda rng: rng.choice([None, True, 7, 2**70, 1.5, "key", "ключ", b"key", Colour.RED, Text("k")]),
    lambda rng: (rng.randrange(3), "pair"),
    lambda rng: frozenset({rng.randrange(3)}),
    lambda rng: Pair(1, (2,)),
]
_CONTAINERS: list[Callable[[Maker, int], Any]] = [
    lambda maker, depth: maker.fill([], list.append, depth),
    lambda maker, depth: maker.fill([], list.append, depth),
    lambda maker, depth: maker.fill({}, lambda each, value: each.update({maker.keys(1)[0]: value}), depth),
    lambda maker, depth: maker.fill({}, lambda each, value: each.update({str(len(each)): value}), depth),
    lambda maker, depth: maker.fill(deque(), deque.append, depth),
    lambda maker, depth: maker.fill(Box(), lambda each, value: setattr(each, "content", value), depth),
    lambda maker, depth: maker.fill(OrderedDict(), lambda each, value: each.update({len(each): value}), depth),
    lambda maker, depth: maker.fill(defaultdict(list), lambda each, value: each.update({len(each): value}), depth),
    lambda maker, depth: tuple(maker.values(depth)),
    lambda maker, depth: tuple(maker.values(depth)),
    lambda maker, depth: Pair(maker.value(depth), 1),
    lambda maker, depth: Slotted(maker.value(depth)),
    lambda maker, depth: set(maker.keys(2)),
    lambda maker, depth: frozenset(maker.keys(2)),
    lambda maker, depth: Counter(maker.keys(3)),
]


def nested(kind: type, depth: int) -> Any:
    """Make containers of one kind, one inside the other."""
    value: Any = 0
    for _ in range(depth):
        value = {0: value} if kind is dict else kind([value])
    return value


def describe(value: Any) -> str:
    """Describe a value so that two descriptions are equal if the values are equal, of equal types and equal sharing."""
    numbers: dict[int, int] = {}
    kept: list[Any] = []

    def text(each: Any) -> str:
        kind = type(each)
        if kind in (bool, int, float, str, bytes, complex, type(None)) or isinstance(each, Enum | type):
            return f"{kind.__name__} {each!r}"
        if kind in (tuple, frozenset) or isinstance(each, Pair):
            inner = [text(part) for part in each]
            return f"{kind.__name__}({', '.join(sorted(inner) if kind is frozenset else inner)})"
        if id(each) in numbers:
            return f"#{numbers[id(each)]}"
        numbers[id(each)] = len(numbers)
        kept.append(each)  # an id is another object's when the object is gone
        return f"#{numbers[id(each)]} {kind.__qualname__} {content(each)}"

    def content(each: Any) -> str:
        match each:
            case list() | deque():
                return f"[{', '.join(map(text, each))}]"
            case set():
                return f"{{{', '.join(sorted(map(text, each)))}}}"
            case dict():
                return f"{{{', '.join(f'{text(key)}: {text(part)}' for key, part in each.items())}}}"
            case Box() | Odd():
                return text(vars(each))
            case Slotted():
                return text(each.content)
            case bytearray() | memoryview():
                return repr(bytes(each))
            case np.ndarray():
                return f"{each.dtype} {text(each.tolist()) if each.dtype.hasobject else each.tobytes()!r}"
            case pa.RecordBatch() | pa.Table():
                return f"{each.schema} {each.to_pylist()}"
            case BaseException():
                return f"{each.args!r} {vars(each)!r}"
            case _:
                return repr(each)

    return text(value)


#: Ways of a value through the codec: {name: (encode, decode)}. "list" and "tuple" are messages among others.
WAYS: dict[str, tuple[Callable[[Codec, Any], bytes | None], Callable[[Codec, bytes], Any]]] = {
    "message": (lambda codec, value: codec.encode(value), lambda codec, data: codec.decode(data)),
    "list": (
        lambda codec, value: codec.pack_all([value]),
        lambda codec, data: messages_of(Frame(1, 1, PayloadKind.VALUES, b"\x91" + data), codec)[0],
    ),
    "tuple": (
        lambda codec, value: codec.encode_tuple((1, value)),
        lambda codec, data: messages_of(Frame(1, 1, PayloadKind.TUPLES, b"\x91" + data), codec)[0][1],
    ),
    "tuples": (
        lambda codec, value: codec.pack_tuples([(1, value)]),
        lambda codec, data: messages_of(Frame(1, 1, PayloadKind.TUPLES, b"\x91" + data), codec)[0][1],
    ),
    "state": (
        lambda codec, value: b"".join(map(bytes, codec.encode_state({"a": value, "b": []}))),
        lambda codec, data: codec.decode_state(data)["a"],
    ),
}


def main(path: str) -> None:
    """Print a description for each line of a file: the way, whether the codec is safe, and the bytes in hex."""
    for line in Path(path).read_text().splitlines():
        way, safe, data = line.split()
        value = WAYS[way][1](Codec(safe=safe == "safe"), bytes.fromhex(data))
        print(repr(describe(value)))
