"""The base of steps, and how steps print: as they are written, so that a printed schedule pastes into a test."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields

from cutline.snapshot.ids import Subtask

#: A subtask, or its name: ``"sum"`` or ``"sum[1]"``.
Named = Subtask | str


def subtask_named(name: Named) -> Subtask:
    """Return the subtask that `name` stands for.

    Raises
    ------
    ValueError
        if `name` is not the name of a subtask.
    """
    if isinstance(name, Subtask):
        return name
    node, bracket, index = name.partition("[")
    if not bracket:
        return Subtask(node)
    if not node or not index.endswith("]") or not index[:-1].isdigit():
        raise ValueError(f"{name!r} is no name of a subtask: write 'node' or 'node[1]'")
    return Subtask(node, int(index[:-1]))


def short_name(subtask: Subtask) -> str:
    """Return the name of a subtask as steps print it."""
    return subtask.node if subtask.index == 0 else str(subtask)


@dataclass(frozen=True, slots=True, repr=False)
class Step:
    """A step that can be taken next in a run."""

    def __repr__(self) -> str:
        said = []
        for field in fields(self):
            value = getattr(self, field.name)
            shown = repr(short_name(value)) if isinstance(value, Subtask) else repr(value)
            if field.default is MISSING:
                said.append(shown)
            elif value != field.default:
                said.append(f"{field.name}={shown}")
        return f"{type(self).__name__}({', '.join(said)})"

    def resolve(self, *names: str) -> None:
        """Replace names of subtasks in these fields by the subtasks."""
        for name in names:
            object.__setattr__(self, name, subtask_named(getattr(self, name)))


class Fault(Step):
    """A step that a run without faults does not take."""

    __slots__ = ()
