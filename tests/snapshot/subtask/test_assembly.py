"""The assembly of a subtask: a node that cannot be made is refused by name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cutline import Graph
from cutline.snapshot.errors import GraphError
from cutline.snapshot.ids import Subtask
from tests.snapshot.graphs import Passive
from tests.snapshot.hosted import Hosted


@pytest.mark.parametrize(
    ("pickled", "text"),
    [
        (b"cno_such_module\nNode\n.", "ModuleNotFoundError: No module named 'no_such_module'"),
        (b"cpickle\nNoSuchNode\n.", "AttributeError: "),
    ],
)
def test_a_node_whose_module_is_missing_is_refused_by_name(pickled: bytes, text: str) -> None:
    """The error names the subtask and what is missing, and says how a module gets to the executors."""
    host = Hosted(Graph("g").add("a", Passive()))
    host.compiled = replace(host.compiled, code=replace(host.compiled.code, nodes={"a": pickled}))
    with pytest.raises(GraphError, match=rf"a\[0\].*cannot be unpickled here \({text}.*addPyFile"):
        host.machine(Subtask("a", 0))
