"""Implement the context that is passed to a subtask's hooks. `snapshot.node.Context` is the contract.

The context holds values for the hooks, and passes their calls to the subtask. The context makes no decisions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from operator import index, length_hint
from typing import TYPE_CHECKING, Any

from cutline.snapshot.channel.channel_sender import AT_ONCE_MAX
from cutline.snapshot.channel.partitioning import groups_of
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.channel.shapes import Shapes
from cutline.snapshot.error_text import shown
from cutline.snapshot.errors import NodeError
from cutline.snapshot.ids import Subtask
from cutline.snapshot.keyed.kinds import StateKind
from cutline.snapshot.node import Context
from cutline.snapshot.subtask.direct_send import keyed_send, written_send
from cutline.snapshot.subtask.timers import NO_KEY, checked_seconds

if TYPE_CHECKING:
    from logging import LoggerAdapter
    from random import Random

    from cutline.snapshot.keyed.keyed_states import KeyedStates
    from cutline.snapshot.keyed.states import Plus
    from cutline.snapshot.state import ListState, MapState, ReducingState, ValueState
    from cutline.snapshot.subtask.output_edge import OutputEdge
    from cutline.snapshot.subtask.timers import Timers


def _drop(message: Any, to: Any = None) -> None:
    """Serve as `send` and as `sendAll` of a subtask that has ended."""


#: messages for each channel; from this number on, dividing and encoding the messages together is cheaper
_TOGETHER_MIN = 16

#: counters below this limit are integers, because every JSON reader accepts them; larger counters are floats
_WHOLE_MAX = 2**53

#: control characters and halves of surrogate pairs, which no name of a metric may hold
_NOT_IN_A_NAME = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


class HookCounter:
    """Counts calls of hooks, so that an iterator over keyed state ends with its hook."""

    __slots__ = ("calls", "rest")

    def __init__(self) -> None:
        #: calls so far; the messages of one slice count as one call
        self.calls = 0
        #: the messages of the running slice that were not passed yet
        self.rest: Iterator[Any] = iter(())


class SubtaskContext(Context):
    """The context of one subtask, reused for every call."""

    def __init__(
        self,
        *,
        run: str,
        incarnation: int,
        subtask: Subtask,
        parallelism: int,
        inputs: tuple[str, ...],
        edges: tuple[OutputEdge, ...],
        timers: Timers,
        logger: LoggerAdapter[Any],
        chance: Callable[[], Random],
        ask_snapshot: Callable[[], None],
    ) -> None:
        self.run = run
        self.incarnation = incarnation
        self.subtask = subtask
        self.parallelism = parallelism
        self.keyGroups = groups_of(subtask.index, parallelism)
        self.inputs = inputs
        self.outputs = tuple(edge.target for edge in edges)
        self.partitions = ()
        #: steps that are to be repeated after the present one
        self.steps_left = 0
        self.sender = None
        self.key = None
        #: whether `key` is the current key, because None is a key too
        self.has_key = False
        self.keys = None
        self.now = 0.0
        self.logger = logger
        #: {metric: sum of increments since the worker last read and cleared the metrics}
        self.metrics: dict[str, float] = {}
        #: counts the calls of hooks
        self.hooks = HookCounter()
        #: the keyed state, set by `snapshot.subtask.assembly`
        self.states: KeyedStates
        #: name of the running hook that must not send, or ""
        self._silent_hook = ""
        #: nodes that refuse messages, because they are members of an ended component
        self._closed_outputs: tuple[str, ...] = ()
        self._edges = {edge.target: edge for edge in edges}
        #: edges for a message without a named receiver
        self._open_edges = edges
        self._timers = timers
        self._make_chance = self._chance = chance
        self._random: Random | None = None
        self._ask_snapshot = ask_snapshot

    @property
    def random(self) -> Random:  # type: ignore[override]  # made on demand: 2.5 KB in each snapshot
        if self._random is None:
            self._random = self._chance()
        return self._random

    def random_state(self) -> Any:
        """Return the state for `restore_random`, or None if the node never used `random`."""
        return None if self._random is None else self._random.getstate()

    def restore_random(self, state: Any) -> None:
        """Restore the random generator of the snapshot."""
        if state is not None:
            self.random.setstate(state)

    def seed_random(self, seed: str) -> None:
        """Begin the random numbers anew: of a subtask that takes over from several, or of a step."""

        def seeded() -> Random:
            chance = self._make_chance()
            chance.seed(seed)
            return chance

        self._chance = seeded
        if self._random is not None:
            self._random.seed(seed)  # not a new one, because the node may keep this one

    def send_directly(self, codec: Codec, shapes: Shapes) -> None:
        """Replace `send` by a function that is written out for the edges, and again for each new shape of messages.

        Parameters
        ----------
        codec : Codec
            The codec of the edges' channel senders.
        shapes : Shapes
            The shapes of the subtask's messages.
        """

        def write() -> None:
            if not self._closed_outputs:
                edges = tuple(self._edges.values())
                otherwise = keyed_send(edges, codec, SubtaskContext.send)
                self._replace_send(written_send(edges, shapes, otherwise) or otherwise)

        shapes.on_learnt.append(write)
        write()

    def _replace_send(self, send: Callable[..., None]) -> None:
        """Make `send` a method of this context's own class, because an attribute of the context takes twice as long."""
        self.__class__ = type("SubtaskContext", (SubtaskContext,), {"send": send})

    def drop_messages(self) -> None:
        """Drop messages until `accept_messages`, because `open` of a subtask that has ended may send as ever."""
        self.__dict__["send"] = self.__dict__["sendAll"] = _drop

    def accept_messages(self) -> None:
        """Accept messages again. The senders refuse those of a subtask that has ended."""
        del self.__dict__["send"], self.__dict__["sendAll"]

    def silence(self, hook: str) -> None:
        """Refuse messages while `hook` runs. Refuse also a `send` method that another hook has kept."""
        self._silent_hook = hook
        for edge in self._edges.values():
            edge.forbid(f"{hook} must not send")

    @contextmanager
    def silenced(self, hook: str) -> Iterator[None]:
        """Refuse messages while `hook` runs, and accept them again when it has returned."""
        self.silence(hook)
        try:
            yield
        finally:
            self.unsilence()

    def unsilence(self) -> None:
        """Accept messages again, because the silent hook has returned."""
        self._silent_hook = ""
        for edge in self._edges.values():
            edge.forbid("")
        self.close_outputs(self._closed_outputs)

    def close_outputs(self, nodes: tuple[str, ...]) -> None:
        """Refuse messages to the members of an ended component. A message without a named receiver skips them."""
        self._closed_outputs = nodes
        self._open_edges = tuple(edge for target, edge in self._edges.items() if target not in nodes)
        for name in nodes:
            if name not in self._edges:
                continue  # only the edge for failed messages leads there, and the node cannot send along it
            self._edges[name].forbid(f"the cycle with {name!r} has ended; onEnd may send outward only")
        if nodes:
            self._replace_send(SubtaskContext.send)  # because the written-out function does not check closed outputs

    def send(self, message: Any, to: str | Subtask | None = None) -> None:
        if self._silent_hook:
            raise NodeError(f"{self.subtask}: {self._silent_hook} must not send")
        if to is None:
            for edge in self._open_edges:
                edge.emit(message)
        elif isinstance(to, Subtask):
            self._edge(to.node).emit_to(message, to.index)
        else:
            self._edge(to).emit(message)

    def sendAll(self, messages: Iterable[Any], to: str | Subtask | None = None) -> None:
        # Only a list or a tuple is safe, because another iterable may yield the same object again with new contents.
        if self._silent_hook or isinstance(to, Subtask) or not isinstance(messages, list | tuple):
            super().sendAll(messages, to)
            return
        edges = self._open_edges if to is None else (self._edge(to),)
        width = max((len(edge.ends) for edge in edges), default=1)
        if len(messages) < _TOGETHER_MIN * width:
            super().sendAll(messages, to)
            return
        rest = iter(messages)
        while some := list(islice(rest, AT_ONCE_MAX * width)):
            for edge in edges:
                edge.emit_all(some)

    def _edge(self, target: str) -> OutputEdge:
        edge = self._edges.get(target)
        if edge is None:
            raise NodeError(f"{self.subtask}: there is no edge to {target!r}; there are edges to {list(self._edges)}")
        return edge

    def requestSnapshot(self) -> None:
        self._ask_snapshot()

    def registerTimer(self, at: float) -> None:
        self._timers.register(self._time("registerTimer", at), self.key if self.has_key else NO_KEY)

    def deleteTimer(self, at: float) -> None:
        self._timers.delete(self._time("deleteTimer", at), self.key if self.has_key else NO_KEY)

    def _time(self, call: str, at: Any) -> float:
        try:
            return checked_seconds(at)
        except (TypeError, ValueError) as error:
            raise NodeError(f"{self.subtask}: {call}: {error}") from error

    def moment(self) -> tuple[int, int]:
        """Return a value that differs between any two calls of hooks."""
        return self.hooks.calls, length_hint(self.hooks.rest)

    def getValueState(self, name: str, *, ttl: float | None = None) -> ValueState:
        return self.states.ask(StateKind.VALUE, name, ttl)  # type: ignore[no-any-return]

    def getListState(self, name: str, *, ttl: float | None = None) -> ListState:
        return self.states.ask(StateKind.LIST, name, ttl)  # type: ignore[no-any-return]

    def getMapState(self, name: str, *, ttl: float | None = None) -> MapState:
        return self.states.ask(StateKind.MAP, name, ttl)  # type: ignore[no-any-return]

    def getReducingState(self, name: str, plus: Plus, *, ttl: float | None = None) -> ReducingState:
        return self.states.ask(StateKind.REDUCING, name, ttl, plus)  # type: ignore[no-any-return]

    def increment(self, metric: str, by: float = 1) -> None:
        if type(metric) is not str or (type(by) is not int and type(by) is not float):
            by = self._plain(metric, by)
        before = self.metrics.get(metric)
        total = by + (self._first(metric) if before is None else before)
        self.metrics[metric] = total if -_WHOLE_MAX < total < _WHOLE_MAX else float(total)

    def _first(self, metric: str) -> int:
        """Return the value of a counter without increments. Refuse a name that no page and no report can show."""
        if not metric.strip() or _NOT_IN_A_NAME.search(metric):
            why = "has at least one character that is no space, no control character and no half of a surrogate pair"
            raise NodeError(f"{self.subtask}: increment: {shown(metric)} is no name of a metric: a name {why}")
        return 0

    def _plain(self, metric: object, by: Any) -> float:
        """Convert a number to a Python number, because only Python numbers are sent to the coordinator."""
        if type(metric) is not str:
            raise NodeError(f"{self.subtask}: increment: the name of a metric is a str, not {shown(metric)}")
        try:
            return index(by) if hasattr(by, "__index__") else float(by)
        except (TypeError, ValueError, OverflowError) as error:
            raise NodeError(f"{self.subtask}: increment of {metric!r} by {shown(by)}, which is no number") from error
