"""A program that is stopped under one Python and goes on under another: ``job.py take|go-on FILE``.

Objects of each kind are messages in flight, own state, keyed state and keys. `go-on` prints what came back as another
thing than the program itself makes, as JSON.
"""

import collections
import datetime
import decimal
import enum
import fractions
import functools
import json
import sys
import typing
import uuid
import zoneinfo
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import msgpack
import numpy as np

from cutline import END, Context, Graph, Node, Source
from cutline.snapshot.testing.steps import Deliver, Initiate, Poll, Quiesce
from cutline.testing import ListSink, Simulator


@dataclass
class Basket:
    amount: int
    more: list[int] = field(default_factory=list)

    def price(self) -> int:
        return 7 * self.amount


@dataclass(frozen=True, slots=True)
class Bag:
    amount: int


class Pair(typing.NamedTuple):
    left: int
    right: Basket


class Size(enum.Enum):
    SMALL = "s"
    LARGE = "l"


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


def outer() -> typing.Any:
    """A class of a function."""

    class Inner:
        def __init__(self, amount: int) -> None:
            self.amount = amount

        def __eq__(self, other: object) -> bool:
            return type(other) is Inner and other.amount == self.amount

        def __hash__(self) -> int:
            return self.amount

    return Inner


Inner = outer()


def price(basket: Basket) -> int:
    """A function of the main module."""
    return basket.price()


def made() -> dict[str, typing.Any]:
    """Return one value of each kind, by name."""
    return {
        "integer": 2**80,
        "float": -0.0,
        "text": "é\ud800",
        "bytes": b"\x00",
        "none": None,
        "list": [1, [2]],
        "tuple": (1, (2,)),
        "dict": {(1, "a"): {2: None}},
        "set": {1, 2},
        "instant": datetime.datetime(2020, 1, 1, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin")),
        "date": datetime.date(1500, 1, 1),
        "decimal": decimal.Decimal("1.20"),
        "fraction": fractions.Fraction(1, 3),
        "uuid": uuid.UUID(int=5),
        "path": PurePosixPath("/a/b"),
        "complex": 1j,
        "range": range(3),
        "array": np.arange(6).reshape(2, 3),
        "number": np.float32(0.5),
        "ordered": collections.OrderedDict(a=1),
        "counter": collections.Counter("aab"),
        "deque": collections.deque([1, 2], maxlen=3),
        "basket": Basket(3),
        "bag": Bag(3),
        "pair": Pair(1, Basket(2)),
        "member": Size.SMALL,
        "flags": Rights.READ | Rights.WRITE,
        "inner": Inner(4),
        "class": Basket,
        "function": price,
        "partial": functools.partial(price, Basket(3)),
        "method": Basket(3).price,
    }


def differs(name: str, found: typing.Any) -> bool:
    """Return whether a value is another one than the program makes."""
    wanted = made()[name]
    if type(found) is not type(wanted):
        return True
    if isinstance(wanted, np.ndarray):
        return not (found.dtype == wanted.dtype and np.array_equal(found, wanted))
    if name in ("partial", "method"):
        return bool(found() != wanted())
    if name == "function":  # each pickle of a function of the main module makes another one
        return bool(found(Basket(3)) != wanted(Basket(3)))
    return bool(found != wanted or (name != "inner" and repr(found) != repr(wanted)))


class Values(Source):
    """Sends each value twice with its name: once before the snapshot's node has it, once in flight."""

    def __init__(self) -> None:
        self.sent = 0

    def poll(self, context: Context) -> typing.Any:
        names = list(made())
        if self.sent == 2 * len(names):
            return END
        name = names[self.sent % len(names)]
        context.send((name, made()[name]))
        self.sent += 1
        return None

    def snapshotState(self, snapshotId: int, timestamp: float) -> int:
        return self.sent

    def restoreState(self, state: int) -> None:
        self.sent = state


class Receiver(Node):
    """Keeps each value as own state, in two kinds of keyed state, and objects as keys of a dict."""

    def __init__(self) -> None:
        self.own: dict[str, typing.Any] = {}
        self.by = {Bag(3): "bag", Size.SMALL: "member", Pair(1, 2): "pair"}  # type: ignore[arg-type]
        self.found: list[typing.Any] = []

    def open(self, context: Context) -> None:
        self.last = context.getValueState("last")
        self.some = context.getMapState("some")

    def onMessage(self, message: typing.Any, context: Context) -> None:
        name, value = message
        self.check("in flight", name, value)
        self.own[name] = value
        self.last.update([value])
        self.some.updateValue(name, [value])

    def check(self, place: str, name: str, value: typing.Any) -> None:
        """Note whether a value is another one than the program makes."""
        self.found.append((place, name, repr(value) if differs(name, value) else ""))

    def onEnd(self, context: Context) -> None:
        for name, value in self.own.items():
            self.check("own state", name, value)
        for name, [value] in self.last.items():
            self.check("value state", name, value)
        for name, entries in self.some.items():
            self.check("map state", name, dict(entries)[name][0])
        keys = [self.by.get(key) for key in (Bag(3), Size.SMALL, Pair(1, 2))]  # type: ignore[arg-type]
        self.found.append(("looked up", "keys", "" if keys == ["bag", "member", "pair"] else repr(self.by)))
        context.sendAll(self.found)

    def snapshotState(self, snapshotId: int, timestamp: float) -> typing.Any:
        return self.own, self.by

    def restoreState(self, state: typing.Any) -> None:
        self.own, self.by = state


def graph() -> Graph:
    """Values to their receiver, by their names."""
    made = Graph("values").add("values", Values()).add("receiver", Receiver()).add("out", ListSink())
    return made.connect("values", "receiver", key=lambda message: message[0]).connect("receiver", "out")


def take(files: dict[str, bytes]) -> None:
    """Process each value once, and take a snapshot with each in flight."""
    count = len(made())
    simulator = Simulator(graph(), [], files=files)
    for step in (
        *(Poll("values"),) * (2 * count),
        *(Deliver("values", "receiver"),) * count,
        *(Initiate(1, "values"), Deliver("values", "receiver", marker=True), Quiesce()),
        *(Deliver("receiver", "out", marker=True), Quiesce()),
    ):
        simulator.take(step)


def go_on(files: dict[str, bytes]) -> None:
    """Print what has come back, as JSON: [[place, name, repr of a value that differs or ""], ...]; or why nothing."""
    history = Simulator(graph(), 1, files=files).run()
    print(json.dumps(history.output("out") or history.reason))


if __name__ == "__main__":
    path = Path(sys.argv[2])
    files: dict[str, bytes] = msgpack.unpackb(path.read_bytes()) if path.exists() else {}
    {"take": take, "go-on": go_on}[sys.argv[1]](files)
    path.write_bytes(msgpack.packb(files))
