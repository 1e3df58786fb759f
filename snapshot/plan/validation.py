"""Find the faults of a declared graph, by name of node and edge, as many as possible at once.

Returns lists of problems, which are empty when the graph can be built. The class of a node may lack the partner of a
hook, misspell a hook, or give it a wrong signature. `snapshot.plan.alignment` has the rules of alignment.
"""

from __future__ import annotations

import inspect
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, get_args

from cutline.snapshot.node import GUARANTEES, Node, Sink, Source, defines, guarantee_of, keeps_totals
from cutline.snapshot.plan.alignment import parse_alignment
from cutline.snapshot.plan.declarations import EdgeDeclaration, Invariant, NodeDeclaration, PartitioningName
from cutline.snapshot.plan.schemas import to_arrow_schema
from cutline.snapshot.plan.topology import KEY_GROUPS
from cutline.snapshot.replayable_source import ReplayableSource


def _hooks(*bases: type[Node]) -> dict[str, int]:
    """Return the hooks that these classes declare, with the number of arguments of each call."""
    return {
        name: len(inspect.signature(member).parameters) - 1  # without self
        for base in bases
        for name, member in vars(base).items()
        if inspect.isfunction(member)
    }


_NODE_HOOKS: Final = _hooks(Node)
_SOURCE_HOOKS: Final = _hooks(Source)
_SINK_HOOKS: Final = _hooks(Sink)
_SLICE_HOOKS: Final = {"first": 1, "available": 2, "read": 4}

#: Hooks of a source or sink that no plain node defines by chance, because of their names.
_TELLING = (("poll", Source), ("prepareCommit", Sink), ("discardUncommitted", Sink))

_PAIRS = (
    ("snapshotState", "restoreState", "the state would be saved and never restored"),
    ("restoreState", "snapshotState", "there would be no state to restore"),
)


def hook_problems(node: Node) -> Iterator[str]:
    """Yield the faults of the class of `node`, without naming the node."""
    hooks = {
        **_NODE_HOOKS,
        **(_SOURCE_HOOKS if isinstance(node, Source) else {}),
        **(_SINK_HOOKS if isinstance(node, Sink) else {}),
        **(_SLICE_HOOKS if isinstance(node, ReplayableSource) else {}),
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
    base = next(vars(cls)[hook] for cls in (Node, Source, Sink, ReplayableSource) if hook in vars(cls))
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
    """Find ``snapshot_state`` and the like, which would never be called, so that state would be lost in silence."""
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
    if isinstance(node, ReplayableSource):
        yield from _slice_problems(node)
    elif isinstance(node, Source) and not defines(node, "poll"):
        yield "is a Source without poll: it could never send anything"
    if isinstance(node, Sink) and defines(node, "commit") != defines(node, "prepareCommit"):
        present, missing = ("commit", "prepareCommit") if defines(node, "commit") else ("prepareCommit", "commit")
        yield f"defines {present}, but not {missing}: a commit takes both phases"


def _slice_problems(node: ReplayableSource) -> Iterator[str]:
    """Find missing hooks of a replayable source, and hooks that only its base may define."""
    own = [cls for cls in type(node).__mro__ if issubclass(cls, ReplayableSource) and cls is not ReplayableSource]
    for hook in ("partitions", "first", "available", "read"):
        if not any(hook in vars(cls) for cls in own):
            yield f"is a ReplayableSource without {hook}: it could never read anything"
    for hook in ("poll", "snapshotState", "restoreState"):
        if any(hook in vars(cls) for cls in own):
            yield f"defines {hook}, which a ReplayableSource has already: define available and read"


def _guarantee_problems(node: Source | Sink) -> Iterator[str]:
    if node.guarantee is not None and node.guarantee not in GUARANTEES:
        yield f"declares guarantee {node.guarantee!r}, which is none of {', '.join(GUARANTEES)}"
    elif isinstance(node, Source) and guarantee_of(node) == "exactly_once" and not defines(node, "snapshotState"):
        yield "declares guarantee 'exactly_once', but has no snapshotState to replay from"


#: Most characters in the name of a graph, run, node or invariant. Several such names fit in a log line.
NAME_CHARACTERS_MAX: Final = 200

#: Largest parallelism of a node, because with more subtasks than key groups some would own no key.
PARALLELISM_MAX: Final = KEY_GROUPS

_PARTITIONINGS: Final[tuple[str, ...]] = get_args(PartitioningName)


def name_problem(name: object) -> str | None:
    """Return the reason why `name` cannot name a graph, run, node or invariant, or None if the name is allowed.

    Allowed are 1 to `NAME_CHARACTERS_MAX` letters and digits of any script, ``_``, ``-`` and ``.``, not
    beginning with a dot or a combining mark. So a name is one word of a log line, and never a path.
    """
    if not isinstance(name, str):
        return f"a name is a str, not {type(name).__qualname__}"
    if not 1 <= len(name) <= NAME_CHARACTERS_MAX:
        return f"has {len(name)} characters: a name has 1 to {NAME_CHARACTERS_MAX}"
    bad = [character for character in dict.fromkeys(name) if not _is_allowed(character)]
    if bad:
        said = ", ".join(ascii(character) for character in bad)
        return f"contains {said}: a name has letters, digits, '_', '-' and '.' only"
    if name[0] == "." or unicodedata.category(name[0]).startswith("M"):
        return f"begins with {name[0]!a}: a name begins with a letter, a digit, '_' or '-'"
    return None


def graph_problems(
    name: object,
    nodes: Sequence[NodeDeclaration],
    edges: Sequence[EdgeDeclaration],
    invariants: Sequence[tuple[str, Invariant]],
) -> list[str]:
    """Return all faults of a graph that can be found without building the graph."""
    by_name = {node.name: node for node in nodes if isinstance(node.name, str)}
    problems = _name_problems("graph", [name])
    if not nodes:
        problems.append(f"graph {name!r}: has no nodes")
    problems += _name_problems("node", [node.name for node in nodes])
    targets = dict.fromkeys(edge.target for edge in edges)
    for node in nodes:
        problems += [f"node {node.name!r}: {problem}" for problem in _node_problems(node, node.name in targets)]
    problems += _former_name_problems(nodes)
    repeated = _repeated(map(str, edges))
    problems += [f"edge {edge}: declared {count} times; at most one is possible" for edge, count in repeated]
    for edge in edges:
        problems += [f"edge {edge}: {problem}" for problem in _edge_problems(edge, by_name)]
    problems += _name_problems("invariant", [each for each, _ in invariants])
    problems += [f"invariant {each!r}: cannot be called" for each, holds in invariants if not callable(holds)]
    return problems


def _is_allowed(character: str) -> bool:
    return character in "_-." or unicodedata.category(character)[0] in "LMN"


def _name_problems(kind: str, names: Sequence[object]) -> list[str]:
    problems = [f"{kind} {name!a}: {problem}" for name in names if (problem := name_problem(name)) is not None]
    return problems + [f"{kind} {name!r}: {count} have this name" for name, count in _repeated(map(str, names))]


def _former_name_problems(nodes: Sequence[NodeDeclaration]) -> list[str]:
    """Return the faults of `formerly`: a name that two nodes claim, or that a node of the graph has."""
    claims: list[tuple[str, object]] = [(node.name, node.formerly) for node in nodes if node.formerly is not None]
    problems = [
        f"node {name!r}: formerly {former!a}: {problem}"
        for name, former in claims
        if (problem := name_problem(former)) is not None
    ]
    names = [node.name for node in nodes]
    problems += [
        f"node {name!r}: is formerly {former!r}, but the graph has a node {former!r}: a node takes over from a node "
        "that the graph no longer has"
        for name, former in claims
        if former in names
    ]
    for former, count in _repeated(str(former) for _, former in claims):
        claimed = ", ".join(repr(name) for name, each in claims if str(each) == former)
        problems.append(f"nodes {claimed}: {count} are formerly {former!r}, and only one can take over its state")
    return problems


def _repeated(names: Iterable[str]) -> list[tuple[str, int]]:
    return [(name, count) for name, count in Counter(names).items() if count > 1]


#: hooks that take messages one by one or in lists
_LIST_HOOKS = ("onMessage", "onMessages")


def _node_problems(declared: NodeDeclaration, has_inputs: bool) -> Iterator[str]:
    node: object = declared.node  # the user may have given anything
    if isinstance(node, type):
        yield f"is the class {node.__qualname__}: give an instance, {node.__qualname__}(...)"
    elif not isinstance(node, Node):
        yield f"is a {type(node).__qualname__}, which is no subclass of Node"
    else:
        yield from hook_problems(node)
        versions: dict[str, object] = {"stateVersion": node.stateVersion, "messageVersion": node.messageVersion}
        for name, version in versions.items():
            if not isinstance(version, int) or isinstance(version, bool) or version < 1:
                yield f"{name} {version!r} is no whole number from 1"
        if has_inputs and not any(defines(node, hook) for hook in (*_LIST_HOOKS, "onBatch")):
            yield "has inputs, but neither onMessage nor onMessages nor onBatch to take them with"
    if not _is_whole(declared.parallelism) or not 1 <= declared.parallelism <= PARALLELISM_MAX:
        yield f"parallelism {declared.parallelism!r} is no whole number from 1 to {PARALLELISM_MAX}"


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _edge_problems(edge: EdgeDeclaration, nodes: Mapping[str, NodeDeclaration]) -> Iterator[str]:
    ends = dict.fromkeys((edge.source, edge.target))
    yield from (f"there is no node {name!r}" for name in ends if name not in nodes)
    yield from _partitioning_problems(edge, nodes)
    yield from _totals_problems(edge, nodes)
    if edge.key is not None:
        yield from _key_problems(edge.key)
    if edge.alignment is not None:
        try:
            parse_alignment(edge.alignment)
        except ValueError as error:
            yield str(error)
    yield from _schema_problems(edge, nodes)
    on_error: object = edge.on_error  # the user may have given anything
    if on_error is not None and not isinstance(on_error, str):
        yield f"onError is a {type(on_error).__qualname__}: give the name of a node"


def _totals_problems(edge: EdgeDeclaration, nodes: Mapping[str, NodeDeclaration]) -> Iterator[str]:
    target = nodes.get(edge.target)
    if target is not None and isinstance(target.node, Node) and keeps_totals(target.node) and edge.key is None:
        yield f"has no key, and {edge.target!r} adds up by key"


def _partitioning_problems(edge: EdgeDeclaration, nodes: Mapping[str, NodeDeclaration]) -> Iterator[str]:
    if edge.partitioning is None:
        return
    if edge.partitioning not in _PARTITIONINGS:
        yield f"unknown partitioning {edge.partitioning!r}; there are {', '.join(_PARTITIONINGS)}, and key for hash"
    elif edge.key is not None:
        yield f"has a key and partitioning {edge.partitioning!r}: a key spreads by hash; leave one of the two out"
    elif edge.partitioning == "forward" and edge.source in nodes and edge.target in nodes:
        source, target = nodes[edge.source].parallelism, nodes[edge.target].parallelism
        if source != target:
            yield f"partitioning 'forward' needs equal parallelism, but it is {source} and {target}"


def _key_problems(key: object) -> Iterator[str]:
    if callable(key) or (isinstance(key, str) and key):
        return
    if not isinstance(key, Sequence) or not key or not all(isinstance(name, str) and name for name in key):
        yield f"key {key!r} is no column's name, sequence of names, or function"


def _schema_problems(edge: EdgeDeclaration, nodes: Mapping[str, NodeDeclaration]) -> Iterator[str]:
    target = nodes[edge.target].node if edge.target in nodes else None
    if edge.schema is None:
        if isinstance(target, Node) and defines(target, "onBatch") and not any(defines(target, h) for h in _LIST_HOOKS):
            yield f"has no schema, and {edge.target!r} has only onBatch: messages become batches by a schema"
        return
    try:
        schema = to_arrow_schema(edge.schema)
    except ValueError as error:
        yield f"schema: {error}"
        return
    yield from (f"key column {name!r} is not in its schema" for name in _columns(edge) if name not in schema.names)


def _columns(edge: EdgeDeclaration) -> tuple[str, ...]:
    """Return the columns that the key names, if any."""
    if edge.key is None or callable(edge.key):
        return ()
    return (edge.key,) if isinstance(edge.key, str) else tuple(edge.key)
