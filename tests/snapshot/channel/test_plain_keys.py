"""Keys have one class each: the plain key of a key, and what is refused with the expression that makes a key of it."""

from __future__ import annotations

import datetime as dt
import enum
import re
import uuid
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pytest

from cutline.snapshot.channel.key_hash import hash_keys, stable_hash
from cutline.snapshot.channel.partitioning import HashPartitioner
from cutline.snapshot.channel.plain_keys import plain_key
from cutline.snapshot.errors import NodeError
from cutline.snapshot.graph import Graph
from cutline.snapshot.key_groups import keyGroup
from cutline.snapshot.node import Context, Node
from cutline.snapshot.testing.lists import ListSink, ListSource
from cutline.snapshot.testing.simulator import Simulator
from tests.snapshot.keyed.keyed_subtask import KeyedSubtask


class Level(enum.IntEnum):
    LOW = 1


class Word(enum.StrEnum):
    ONE = "one"


class Colour(enum.Enum):
    RED = 1


class Point(NamedTuple):
    x: Any
    y: Any


class Text(str):
    def __str__(self) -> str:
        return "another text"


class Number(int):
    def __index__(self) -> int:
        return 99


class Octets(bytes):
    def __bytes__(self) -> bytes:
        return b"other bytes"


KEYS = [
    (True, 1),
    (Level.LOW, 1),
    (Number(7), 7),
    (Word.ONE, "one"),
    (Text("own"), "own"),
    (Octets(b"own"), b"own"),
    (np.str_("a"), "a"),
    (np.bytes_(b"a"), b"a"),
    (np.int8(-3), -3),
    (np.uint64(2**64 - 1), 2**64 - 1),
    (np.True_, 1),
    (Point(1, True), (1, 1)),
    ((Word.ONE, (np.int64(5), None)), ("one", (5, None))),
]


def _classes(key: Any) -> Any:
    """The class of a key, and those of its elements."""
    return (type(key), list(map(_classes, key))) if isinstance(key, tuple) else type(key)


@pytest.mark.parametrize(("key", "plain"), KEYS, ids=repr)
def test_a_key_becomes_the_plain_key(key: Any, plain: Any) -> None:
    """Equal, of the base class, with the same hash and the same target."""
    found = plain_key(key)
    assert (found, _classes(found)) == (plain, _classes(plain))
    assert stable_hash(key) == stable_hash(plain) == hash_keys([key, "x"])[0]
    assert keyGroup(key) == keyGroup(plain)
    for parallelism in (1, 5):
        partitioner = HashPartitioner(lambda message: message, parallelism)
        assert partitioner.choose(key) == partitioner.choose(plain)
        keys = [each for _, _, share in partitioner.share([key, plain]) for each in share or ()]
        assert [_classes(each) for each in keys] == [_classes(plain)] * 2


@pytest.mark.parametrize(("key", "plain"), KEYS, ids=repr)
def test_states_hold_plain_keys(key: Any, plain: Any) -> None:
    """In bulk calls, and as keys of a map."""
    subtask = KeyedSubtask()
    value, mapped = subtask.value(), subtask.map()
    value.updateAll([key], ["a"])
    with subtask.key("k"):
        mapped.updateValue(key, 1)
        assert [_classes(each) for each, _ in mapped.iterator()] == [_classes(plain)]
    assert [(_classes(each), held) for each, held in value.items()] == [(_classes(plain), "a")]
    assert value.getAll([plain]) == ["a"]


class Keys(Node):
    """Sends the class of each key."""

    def onMessage(self, message: Any, context: Context) -> None:
        context.send(repr(_classes(context.key)))


class ListsOfKeys(Node):
    def onMessages(self, messages: Any, context: Context) -> None:
        context.sendAll([repr(_classes(key)) for key in context.keys or ()])


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("node", [Keys, ListsOfKeys])
def test_nodes_get_plain_keys(node: type[Node], parallelism: int) -> None:
    """By reference, by value, one by one and together."""
    graph = Graph("g").add("in", ListSource(*range(len(KEYS)))).add("node", node(), parallelism=parallelism)
    graph.add("out", ListSink()).connect("in", "node", key=lambda number: KEYS[number][0]).connect("node", "out")
    found = Simulator(graph, 1).run().output("out")
    assert sorted(found) == sorted(repr(_classes(plain)) for _, plain in KEYS)


def _now(zone: Any) -> datetime:
    return datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=zone)


REFUSED = [
    *(2.5, Decimal("1.50"), Colour.RED, date(2026, 1, 2), _now(None), _now(timezone(timedelta(hours=2)))),
    *(timedelta(1), dt.time(1), uuid.UUID(int=5), bytearray(b"a"), [1, "a"], {2, 1}, {"b": 1, "a": 2}),
    *(np.float32(2.5), np.array([1, 2]), np.datetime64("2026-01-02")),
]


@pytest.mark.parametrize("k", REFUSED, ids=repr)
def test_what_is_refused_names_an_expression_that_works(k: Any) -> None:
    """At the key itself, inside of a tuple, in a state and in `keyGroup`."""
    for refuse in (plain_key, stable_hash, keyGroup, lambda key: plain_key(("a", key))):
        with pytest.raises(TypeError, match=f"{type(k).__qualname__} cannot be a key: .*; give ") as caught:
            refuse(k)
    found = re.search(r"; give (.*)$", str(caught.value))
    assert found is not None
    key = eval(found[1], {"k": k, "datetime": datetime, "timedelta": timedelta, "UTC": UTC})
    assert plain_key(key) == key
    with pytest.raises(NodeError, match=re.escape(found[1])):
        KeyedSubtask().value().updateAll([("a", k)], ["a"])


def test_other_objects_are_refused_by_class() -> None:
    """There is no expression for any object."""
    with pytest.raises(TypeError, match="object cannot be a key: keys are None, bool, int"):
        plain_key(object())


def test_equal_times_in_two_zones_make_one_key() -> None:
    """The expression counts from the same moment."""
    texts = []
    for zone in (UTC, timezone(timedelta(hours=2))):
        with pytest.raises(TypeError) as caught:
            plain_key(_now(zone))
        texts.append(str(caught.value))
    assert texts[0] == texts[1]
    assert "tzinfo=UTC" in texts[0]
