"""The values of a node that a diagnosis compares."""

from __future__ import annotations

import threading
from typing import Any

from cutline import Context, Node, Sink
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.testing.diagnosis.node_attributes import Spot, names_in_hooks, node_attributes
from cutline.snapshot.testing.payload import unpack

CODEC = Codec()
TABLE: dict[str, int] = {"row": 1}
NOTHING = None


def helper() -> None:
    """A function holds no state."""


class Base(Node):
    limit = 5
    mine = "of the class"

    @property
    def half(self) -> int:
        return self.limit // 2


class Holder(Base):
    def __init__(self) -> None:
        self.mine = "of the instance"
        self.lock = threading.Lock()  # cannot be packed

    def onMessage(self, message: Any, context: Context) -> None:
        helper()
        (lambda: TABLE.update(row=NOTHING or threading.active_count()))()

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return self.mine


class Restoring(Base):
    def restoreState(self, state: Any) -> None:
        self.limit = state


class Shelf(Sink):
    def onMessage(self, message: Any, context: Context) -> None:
        TABLE["row"] += 1


def test_values_are_found_where_they_are() -> None:
    """In the instance, in its classes, and in the variables that its hooks name; code and what is None are no state."""
    found = {spot: unpack(value, CODEC) for spot, value in node_attributes(Holder(), CODEC).items()}
    assert found == {
        Spot("attribute", "mine"): "of the instance",
        Spot("class attribute", "limit"): 5,
        Spot("module variable", "TABLE"): {"row": 1},
    }
    assert [str(spot) for spot in found if spot.is_shared] == ["class attribute 'limit'", "module variable 'TABLE'"]


def test_variables_outside_of_a_sink_are_its_output() -> None:
    """A table that a sink writes to is no state of the sink."""
    assert node_attributes(Shelf(), CODEC) == {}


def test_names_in_the_snapshot_hooks() -> None:
    """Only those two hooks decide what a snapshot holds."""
    assert names_in_hooks(Holder()) == ["mine"]
    assert names_in_hooks(Restoring()) == ["limit"]
