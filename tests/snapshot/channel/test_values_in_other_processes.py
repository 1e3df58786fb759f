"""Values of a script: made by its worker, which cannot import the script, and read by the script of another day."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.source_files import ROOT

#: a script, run as the main module; it ships its graph, and reads what a worker has stored before
_SCRIPT = """
import enum, functools, pickle, sys, typing
from dataclasses import dataclass, field
from cutline import Graph, Node
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.plan.compiled_graph import build

@dataclass
class Basket:
    amount: int
    FIELD
    def price(self): return self.amount * FACTOR

@dataclass(frozen=True, slots=True)
class Bag:
    amount: int
    FIELD
    def price(self): return self.amount * FACTOR

class Pair(typing.NamedTuple):
    amount: int
    other: Basket
    def price(self): return self.amount * FACTOR

class Size(enum.Enum):
    SMALL = 3
    def price(self): return 3 * FACTOR

def local():
    class Box:
        def __init__(self, amount): self.amount = amount
        def price(self): return self.amount * FACTOR
    return Box

Box = local()

def price(basket): return basket.amount * FACTOR

class Shop(Node):
    def made(self):
        return [Basket(3), Bag(3), Pair(3, Basket(3)), Size.SMALL, Box(3), price, functools.partial(price, Basket(3)),
                Basket, Basket(3).price]
    def agree(self, values):
        return [type(each) for each in values] == [type(each) for each in self.made()]

codec = Codec(names=build(Graph("g").add("shop", Shop()), "unaligned").program_names())
if sys.argv[1] == "ship":
    open(sys.argv[2], "wb").write(build(Graph("g").add("shop", Shop()), "unaligned").shipped())
else:
    values = codec.decode(open(sys.argv[2], "rb").read())
    basket, bag, pair, size, box, function, partial, kind, method = values
    assert Shop().agree(values), values
    assert kind is Basket and type(pair.other) is Basket
    prices = [each.price() for each in (basket, bag, pair, size, box, pair.other)]
    print([*prices, function(basket), partial(), method()])
"""

#: a worker: another main module, which has the shipped graph only
_WORKER = """
import pickle, sys
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.plan.compiled_graph import CompiledGraph

compiled = CompiledGraph.opened(open(sys.argv[1], "rb").read())
codec = Codec(names=compiled.program_names())
shop, again = pickle.loads(compiled.nodes["shop"]), pickle.loads(compiled.nodes["shop"])
stored = codec.encode(shop.made())
assert again.agree(codec.decode(stored))
assert b"cloudpickle" not in stored
open(sys.argv[2], "wb").write(codec.encode(codec.decode(stored)))
"""


def _run(program: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False, timeout=120, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout.strip()


def test_a_corrected_script_reads_what_a_worker_has_stored(tmp_path: Path) -> None:
    """Every kind of value is of the class of the script, with its code of today, and with a field more."""
    graph, values = str(tmp_path / "graph"), str(tmp_path / "values")
    before = _SCRIPT.replace("FACTOR", "1").replace("FIELD", "pass")
    after = _SCRIPT.replace("FACTOR", "2").replace("FIELD", "more: int = 1")
    _run(before, "ship", graph)
    _run(_WORKER, graph, values)
    assert _run(before, "read", values) == str([3] * 9)
    assert _run(after, "read", values) == str([6] * 9)
