"""Everything wrong with a graph is said at build time, by name of node and edge."""

from __future__ import annotations

import socket
import threading
import unicodedata
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutline import Context, Graph, GraphError, MemoryStore, Node, PersistentAggregate, Sum
from cutline.snapshot.plan.compiled_graph import build
from cutline.snapshot.plan.validation import NAME_CHARACTERS_MAX, PARALLELISM_MAX, name_problem
from cutline.testing import ListSink, ListSource
from tests.snapshot.graphs import Passive


class Batches(Node):
    def onBatch(self, batch: pa.RecordBatch, context: Context) -> None:
        pass


class Deaf(Node):
    pass


class Holding(Passive):
    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)


def two(parallelism: int = 1) -> Graph:
    return Graph("g").add("a", Passive()).add("b", Passive(), parallelism=parallelism)


WRONG: list[tuple[Callable[[], Graph], str]] = [
    (lambda: Graph("g"), "graph 'g': has no nodes"),
    (lambda: Graph("a/b").add("a", Passive()), "graph 'a/b': contains '/'"),
    (lambda: two().add("a", Passive()), "node 'a': 2 have this name"),
    (lambda: two().add("../x", Passive()), "node '../x': contains '/'"),
    (lambda: two().add(7, Passive()), "node 7: a name is a str, not int"),  # type: ignore[arg-type]
    (lambda: two().add("c", Passive), "node 'c': is the class Passive: give an instance, Passive(...)"),  # type: ignore[arg-type]
    (lambda: two().add("c", "node"), "node 'c': is a str, which is no subclass of Node"),  # type: ignore[arg-type]
    (lambda: two().add("c", Passive(), parallelism=0), "node 'c': parallelism 0 is no whole number from 1"),
    (lambda: two().add("c", Passive(), parallelism=True), "node 'c': parallelism True is no whole number"),
    (lambda: two().add("c", Passive(), parallelism=PARALLELISM_MAX + 1), "node 'c': parallelism 32769 is no"),
    (lambda: two().add("c", Deaf()).connect("a", "c"), "node 'c': has inputs, but neither onMessage nor"),
    (lambda: two().add("c", Batches()).connect("a", "c"), "edge a->c: has no schema, and 'c' has only onBatch"),
    (lambda: two().connect("a", "x"), "edge a->x: there is no node 'x'"),
    (lambda: two().connect("x", "b"), "edge x->b: there is no node 'x'"),
    (lambda: two().connect("a", "b").connect("a", "b"), "edge a->b: declared 2 times; at most one is possible"),
    (lambda: two().connect("a", "b", partitioning="hash"), "edge a->b: unknown partitioning 'hash'"),  # type: ignore[arg-type]
    (lambda: two().connect("a", "b", key="k", partitioning="forward"),
     "edge a->b: has a key and partitioning 'forward'"),
    (lambda: two(2).connect("a", "b", partitioning="forward"),
     "partitioning 'forward' needs equal parallelism, but it is 1 and 2"),
    (lambda: two().connect("a", "b", key=""), "edge a->b: key '' is no column's name"),
    (lambda: two().connect("a", "b", key=()), "edge a->b: key () is no column's name"),
    (lambda: two().connect("a", "b", key=b"k"), "edge a->b: key b'k' is no column's name"),  # type: ignore[arg-type]
    (lambda: two().connect("a", "b", key=3), "edge a->b: key 3 is no column's name"),  # type: ignore[arg-type]
    (lambda: two().connect("a", "b", alignment="both"), "edge a->b: alignment 'both' is none of"),  # type: ignore[arg-type]
    (lambda: two().connect("a", "b", alignment=0.0), "edge a->b: alignment 0.0 is none of"),
    (lambda: two().connect("a", "b", schema="a strin"), "edge a->b: schema: unknown type 'strin'"),
    (lambda: two().connect("a", "b", schema=3), "edge a->b: schema: a schema is DDL or a pyarrow.Schema, not int"),
    (lambda: two().connect("a", "b", schema="a int", key=("a", "c")), "edge a->b: key column 'c' is not in its schema"),
    (lambda: two().add("c", PersistentAggregate(Sum(), MemoryStore())).connect("a", "c").connect("b", "c", key="k"),
     "edge a->c: has no key, and 'c' adds up by key"),
    (lambda: two().addInvariant("i", 3), "invariant 'i': cannot be called"),  # type: ignore[arg-type]
    (lambda: two().addInvariant("i", bool).addInvariant("i", bool), "invariant 'i': 2 have this name"),
    (lambda: two().addInvariant("", bool), "invariant '': has 0 characters: a name has 1 to 200"),
]  # fmt: skip


@pytest.mark.parametrize(("declare", "problem"), WRONG, ids=[problem for _, problem in WRONG])
def test_each_mistake_is_said(declare: Callable[[], Graph], problem: str) -> None:
    """One mistake, one GraphError with one problem."""
    with pytest.raises(GraphError) as caught:
        build(declare(), "unaligned")
    assert problem in str(caught.value)
    assert "problems" not in str(caught.value)


def test_several_problems_are_said_at_once() -> None:
    """Nobody has to find them one by one."""
    graph = two().add("c", Passive(), parallelism=0).connect("a", "x").connect("b", "c", alignment=-1)
    with pytest.raises(GraphError, match="graph 'g' has 3 problems:") as caught:
        build(graph, "unaligned")
    assert [line.strip()[:9] for line in str(caught.value).splitlines()[1:]] == ["node 'c':", "edge a->x", "edge b->c"]


def test_what_cannot_be_serialised_is_named_down_to_the_attribute() -> None:
    """Locks, sockets and generators in a node; a function with one in a key or a transform."""
    lock = threading.Lock()
    with socket.socket() as connection:
        graph = Graph("g").add("lock", Holding(fine=1, lock=lock)).add("socket", Holding(link=connection))
        graph.connect("lock", "socket", key=lambda message: lock.locked())
        with pytest.raises(GraphError) as caught:
            build(graph, "unaligned")
    first, second, third = str(caught.value).splitlines()[1:]
    assert "node 'lock': cannot be serialised: attribute 'lock': lock (TypeError" in first
    assert "node 'socket': cannot be serialised: attribute 'link': socket" in second
    assert "edge lock->socket: its function cannot be serialised: function" in third


def test_a_run_may_not_wish_for_nonsense() -> None:
    """The run's alignment is checked as an edge's is."""
    with pytest.raises(GraphError, match="graph 'g': alignment 'both' is none of"):
        build(two(), "both")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "name", ["a", "a_b-c.d", "7", "größe", "数", "_", "-", "a__b", "x" * NAME_CHARACTERS_MAX, "हिन्दी"]
)
def test_good_names(name: str) -> None:
    """Letters and digits of any script."""
    assert name_problem(name) is None


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", ".a", "a/b", "a\\b", "a\0", "a b", "a\n", "a:b", "a*", "\ud800", "\u202e", "\u0301a", "x" * 201],
)  # fmt: skip
def test_bad_names(name: str) -> None:
    """Nothing that a path, a shell, a log or an eye could take for something else; the message is plain ASCII of it."""
    assert name_problem(name) is not None


@given(st.text(max_size=12))
def test_names_that_pass_are_words(name: str) -> None:
    """Whatever passes has neither separators nor control characters nor symbols, and is no path."""
    problem = name_problem(name)
    if problem is None:
        assert all(c in "_-." or unicodedata.category(c)[0] in "LMN" for c in name)
        assert not name.startswith(".")
        assert 1 <= len(name) <= NAME_CHARACTERS_MAX
    else:
        assert problem.isascii()


_NAMES = ("a\x1b[2J", "a\nb", "\x00", "\x9b", "half \ud800", "\u202egnp", "")
_REFUSED: list[Callable[[str], Graph]] = [
    Graph,
    lambda name: two().add(name, Passive()),
    lambda name: two().add(name, Passive()).add(name, Passive()),
    lambda name: two().connect(name, "b"),
    lambda name: two().connect("a", name, alignment=-1),
    lambda name: two().connect("a", "b", partitioning=name),  # type: ignore[arg-type]
    lambda name: two().connect("a", "b", schema=f"{name} {name}"),
    lambda name: two().addInvariant(name, bool),
    lambda name: Graph("g").source(name, ListSource()).keyBy("x").map(str).to("out", ListSink()),
]


@pytest.mark.parametrize("name", _NAMES, ids=ascii)
@pytest.mark.parametrize("declare", _REFUSED)
def test_a_refusal_shows_any_name(declare: Callable[[str], Graph], name: str) -> None:
    """Control characters as escapes, because a terminal would obey them."""
    with pytest.raises(GraphError) as caught:
        build(declare(name), "unaligned")
    assert all(line.isprintable() for line in str(caught.value).split("\n  "))
