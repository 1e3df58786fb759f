"""All mutants of a file, made by the operators of mutmut.

mutmut's own runner is not used. It replaces each function by a switch between all of its mutants, which breaks what is
pickled by name and what is decorated, and it leaves out decorated functions and everything outside of functions.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Any, NamedTuple

import libcst as cst
import libcst.matchers as m
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation.mutators import mutation_operators

from tests.source_files import ROOT, name_of, python_files

#: What only the type checker or a reader sees. A run with a mutant there is the run without it.
_NOT_EXECUTED = (
    m.Annotation()
    | m.ImportFrom()
    | m.Import()
    | m.If(test=m.Name("TYPE_CHECKING"))
    | m.AnnAssign(annotation=m.Annotation(m.Name("TypeAlias")))
    | m.Assign(value=m.Call(func=m.Name("TypeVar") | m.Name("NewType") | m.Name("ParamSpec")))
    | m.Assign(targets=[m.AssignTarget(m.Name("__all__") | m.Name("__slots__"))])
    | m.Call(func=m.Name("cast"), args=[m.Arg(), m.Arg()])
    | m.Expr(value=m.SimpleString())
    # Decorators say what a class is (frozen, slotted), as annotations do; mutmut leaves them out, too.
    | m.Decorator()
    # mutmut leaves out both, because nearly each mutant raises at once.
    | m.Call(func=m.Name("len") | m.Name("isinstance"))
)

#: the kinds of nodes in `_NOT_EXECUTED`, because matching is slow
_MATCHED = (
    cst.Annotation,
    cst.ImportFrom,
    cst.Import,
    cst.If,
    cst.AnnAssign,
    cst.Assign,
    cst.Call,
    cst.Expr,
    cst.Decorator,
)


class Mutant(NamedTuple):
    """One change of one file."""

    file: str
    #: position among the mutants of the file
    number: int
    #: the first and the last line of the statement, or of the head of the compound statement, that is changed
    first: int
    last: int
    #: whether the statement is executed while the module is imported
    is_import_time: bool
    original: Any
    changed: Any
    module: Any

    @property
    def package(self) -> str:
        """The package that the figures are counted by."""
        return self.file.partition("/")[0]

    def code(self) -> str:
        """The text of the mutated file."""
        code: str = self.module.deep_replace(self.original, self.changed).code
        return code

    def diff(self) -> str:
        """The changed lines, with one line around them."""
        was, becomes = (text.splitlines() for text in (self.module.code, self.code()))
        name = f"{self.file}:{self.first}"
        return "\n".join(difflib.unified_diff(was, becomes, name, name, n=1, lineterm=""))


def files_to_mutate(folders: tuple[str, ...]) -> list[str]:
    """The names of all files below `folders`."""
    return [name_of(path) for path in python_files(*folders)]


def mutants_of(file: str) -> Iterator[Mutant]:
    """Yield all mutants of a file, in the order of its text."""
    wrapper = MetadataWrapper(cst.parse_module((ROOT / file).read_text()), unsafe_skip_copy=True)
    positions: Any = wrapper.resolve(PositionProvider)
    walker = _Walker(positions)
    walker.walk(wrapper.module, (1, 1), is_import_time=True)
    for number, (node, changed, lines, is_import_time) in enumerate(walker.found):
        yield Mutant(file, number, *lines, is_import_time, node, changed, wrapper.module)


class _Walker:
    """Finds the nodes that are mutated, and the lines of the statement around each."""

    def __init__(self, positions: Any) -> None:
        self._positions = positions
        self.found: list[tuple[Any, Any, tuple[int, int], bool]] = []

    def walk(self, node: cst.CSTNode, lines: tuple[int, int], is_import_time: bool) -> None:
        """Collect the mutants of `node` and of all nodes below it."""
        if isinstance(node, _MATCHED) and m.matches(node, _NOT_EXECUTED):
            return
        lines = self._lines(node) or lines
        for kind, operator in mutation_operators:
            if isinstance(node, kind) and not _is_prose(node):
                self.found += [(node, changed, lines, is_import_time) for changed in operator(node)]
        for child in node.children:
            # Defaults of parameters are executed where the function is defined.
            is_body = isinstance(node, cst.FunctionDef) and child is node.body
            self.walk(child, lines, is_import_time and not is_body)

    def _lines(self, node: cst.CSTNode) -> tuple[int, int] | None:
        """The lines of a statement, or of the head of a compound statement, or None for other nodes."""
        if not isinstance(node, cst.SimpleStatementLine | cst.BaseCompoundStatement | cst.MatchCase | cst.Else):
            return None
        place = self._positions[node]
        body = getattr(node, "body", None)
        if isinstance(node, cst.SimpleStatementLine) or not isinstance(body, cst.IndentedBlock):
            return place.start.line, place.start.line if isinstance(node, cst.Match) else place.end.line
        return place.start.line, max(place.start.line, self._positions[body.body[0]].start.line - 1)


def _is_prose(node: cst.CSTNode) -> bool:
    """Whether a string has words: an error's text or a help text, of which tests check the facts and not each word."""
    return isinstance(node, cst.SimpleString) and " " in node.raw_value.strip()
