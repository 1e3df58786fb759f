"""What can be wrong with a node's class: hooks missing their partner, misspelled, or with a wrong signature."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Final

from snapshot.node import GUARANTEES, Node, Sink, Source, defines, guarantee_of


def _hooks(*bases: type[Node]) -> dict[str, int]:
    """The hooks that these classes declare, with the number of arguments that each is called with."""
    return {
        name: len(inspect.signature(member).parameters) - 1  # without self
        for base in bases
        for name, member in vars(base).items()
        if inspect.isfunction(member)
    }


_NODE_HOOKS: Final = _hooks(Node)
_SOURCE_HOOKS: Final = _hooks(Source)
_SINK_HOOKS: Final = _hooks(Sink)

#: Hooks of a source or sink whose names nobody else gives to a method of a plain node by chance.
_TELLING = (("poll", Source), ("prepareCommit", Sink), ("discardUncommitted", Sink))

_PAIRS = (
    ("snapshotState", "restoreState", "the state would be saved and never restored"),
    ("restoreState", "snapshotState", "there would be no state to restore"),
)


def hook_problems(node: Node) -> Iterator[str]:
    """Say each thing that is wrong with the class of `node`, without naming the node."""
    hooks = {
        **_NODE_HOOKS,
        **(_SOURCE_HOOKS if isinstance(node, Source) else {}),
        **(_SINK_HOOKS if isinstance(node, Sink) else {}),
    }
    for hook, argument_count in hooks.items():
        if defines(node, hook):
            yield from _signature_problems(node, hook, argument_count)
    yield from _misspelled(node, hooks)
    yield from _pairing_problems(node)
    if isinstance(node, Source | Sink):
        yield from _guarantee_problems(node)


def _signature_problems(node: Node, hook: str, argument_count: int) -> Iterator[str]:
    method = getattr(node, hook)
    if not callable(method):
        yield f"{hook} is no method, but {type(method).__qualname__}"
        return
    if inspect.iscoroutinefunction(method) or inspect.isgeneratorfunction(method) or inspect.isasyncgenfunction(method):
        yield f"{hook} is a generator or coroutine: calling it would run nothing of it"
    base = next(vars(cls)[hook] for cls in (Node, Source, Sink) if hook in vars(cls))
    expected = list(inspect.signature(base).parameters)[1:]
    signature = inspect.signature(method)
    try:
        signature.bind(*expected)
    except TypeError:
        yield (
            f"{hook}{signature} cannot be called with ({', '.join(expected)}): "
            f"it must take {argument_count} argument{'' if argument_count == 1 else 's'}"
        )


def _misspelled(node: Node, hooks: dict[str, int]) -> Iterator[str]:
    """Find ``snapshot_state`` and the like: they would never be called, and their state would be lost in silence."""
    meant = {hook.lower(): hook for hook in hooks if hook.lower() not in hooks}
    for name in dir(type(node)):
        hook = meant.get(name.replace("_", "").lower(), name)
        if name != hook and not name.startswith("_") and not defines(node, hook):
            yield f"has {name}, which is never called: the hook is {hook}"


def _pairing_problems(node: Node) -> Iterator[str]:
    for present, missing, consequence in _PAIRS:
        if defines(node, present) and not defines(node, missing):
            yield f"defines {present}, but not {missing}: {consequence}"
    for hook, base in _TELLING:
        if defines(node, hook) and not isinstance(node, base):
            yield f"defines {hook}, but is no {base.__name__}: it would never be called"
    if isinstance(node, Source) and isinstance(node, Sink):
        yield "is a Source and a Sink: it must be one of the two"
    if isinstance(node, Source) and not defines(node, "poll"):
        yield "is a Source without poll: it could never send anything"
    if isinstance(node, Sink) and defines(node, "commit") != defines(node, "prepareCommit"):
        present, missing = ("commit", "prepareCommit") if defines(node, "commit") else ("prepareCommit", "commit")
        yield f"defines {present}, but not {missing}: a commit takes both phases"


def _guarantee_problems(node: Source | Sink) -> Iterator[str]:
    if node.guarantee is not None and node.guarantee not in GUARANTEES:
        yield f"declares guarantee {node.guarantee!r}, which is none of {', '.join(GUARANTEES)}"
    elif isinstance(node, Source) and guarantee_of(node) == "exactly_once" and not defines(node, "snapshotState"):
        yield "declares guarantee 'exactly_once', but has no snapshotState to replay from"
