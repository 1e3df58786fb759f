"""Check that an operation keeps the laws of a commutative monoid, without which an aggregate depends on chance."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from functools import reduce
from typing import Any, NamedTuple

from hypothesis import HealthCheck, Phase, Verbosity, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky

from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.drawing.labels import shortened
from cutline.snapshot.operators.monoid import Monoid, as_monoid, is_plain
from cutline.snapshot.testing.checkers import CheckFailed

#: names of the laws, the simplest first, as they are checked
_LAWS = ("plain", "encoding", "zero", "commutative", "associative", "accumulator")

#: input values of one state: sums are states as well as units
_VALUES_MAX = 3
#: characters of a value in the text of a failure
_CHARACTERS = 300


class _Broken(Exception):
    """Reports to Hypothesis that a law is broken."""


def checkMonoid(monoid: Any, values: st.SearchStrategy[Any] | Sequence[Any], *, examples: int = 100) -> None:
    """Check a monoid with generated values, and show the smallest counterexample.

    Checked are sums of zero to three values. States are plain values, so `plus` cannot change its arguments. `plus` is
    commutative and associative, `zero` is neutral, and a decoded state equals the encoded one: in the sense of `equal`,
    by default ``==``. An accumulator of the values has the same state.

    Parameters
    ----------
    monoid : Monoid, or object with zero and plus
        What is checked.
    values : Hypothesis strategy, or sequence
        Input values, from which `unit` makes states. Without a `unit` the values are states.
    examples : int
        Number of examples that are tried for each law.

    Raises
    ------
    CheckFailed
        if a law is broken. The text has the law, the values, and both sides.
    GraphError
        if the object is no monoid.
    """
    checked = as_monoid(monoid)
    drawn = values if isinstance(values, st.SearchStrategy) else st.sampled_from(values)
    # The simplest law that is broken explains the most, so the laws are searched one after another.
    for simplest in range(len(_LAWS)):
        failure = _search(checked, drawn, frozenset(_LAWS[: simplest + 1]), examples)
        if failure is not None:
            raise failure


def _search(monoid: Monoid, drawn: st.SearchStrategy[Any], names: Set[str], examples: int) -> CheckFailed | None:
    """Return the smallest counterexample found of the laws of these names, or None."""
    found: list[CheckFailed] = []

    @settings(
        max_examples=examples,
        database=None,
        deadline=None,
        derandomize=True,
        verbosity=Verbosity.quiet,
        report_multiple_bugs=False,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(st.tuples(*[st.lists(drawn, max_size=_VALUES_MAX)] * 3))
    def attempt(lists: tuple[list[Any], ...]) -> None:
        broken = next(_broken_laws(monoid, lists), None)
        if broken is not None and broken.checker in names:
            found.append(broken)
            raise _Broken

    try:
        attempt()
    except (_Broken, Flaky):  # flaky: the operation depends on chance, and an example has failed
        return found[-1]
    return None


def _broken_laws(monoid: Monoid, lists: tuple[list[Any], ...]) -> Iterator[CheckFailed]:
    """Yield a failure for each law that sums of three lists of values break."""
    for state in (monoid.zero(), *(monoid.unit(value) for values in lists for value in values)):
        yield from _not_plain(state)
    states = dict(zip("abc", [_sum(monoid, values) for values in lists], strict=True))
    for state in states.values():
        yield from _not_plain(state)
    for law in _laws(monoid, lists[0], **states):
        if not monoid.equal(law.left, law.right):
            of_values = [
                f"  {name} = {_text(states[name])}, of the values {_text(values)}"
                for name, values in zip(law.variables, lists, strict=False)
            ]
            sides = ((law.left_text, law.left), (law.right_text, law.right))
            results = [f"  {text} = {_text(side)}" for text, side in sides if text not in states]
            yield CheckFailed(law.name, "\n".join([f"{law.left_text} is not {law.right_text}", *of_values, *results]))


class _Law(NamedTuple):
    """Two texts of formulas of the variables, and what they give."""

    name: str
    variables: str
    left_text: str
    left: Any
    right_text: str
    right: Any


def _laws(monoid: Monoid, values: Sequence[Any], a: Any, b: Any, c: Any) -> Iterator[_Law]:
    plus, codec = monoid.plus, Codec()
    yield _Law("encoding", "a", "decode(encode(a))", codec.decode(codec.encode(a)), "a", a)
    yield _Law("zero", "a", "plus(zero(), a)", plus(monoid.zero(), a), "a", a)
    yield _Law("zero", "a", "plus(a, zero())", plus(a, monoid.zero()), "a", a)
    yield _Law("commutative", "ab", "plus(a, b)", plus(a, b), "plus(b, a)", plus(b, a))
    left, right = plus(plus(a, b), c), plus(a, plus(b, c))
    yield _Law("associative", "abc", "plus(plus(a, b), c)", left, "plus(a, plus(b, c))", right)
    if values:
        accumulator = monoid.accumulator()
        accumulator.addAll([None] * len(values), values)
        [accumulated] = accumulator.drain().values()
        yield _Law("accumulator", "a", "the state of accumulator()", accumulated, "a", a)


def _sum(monoid: Monoid, values: Sequence[Any]) -> Any:
    """Return the sum of values. Of one value it has no zero, so that a wrong zero is found."""
    return reduce(monoid.plus, map(monoid.unit, values)) if values else monoid.zero()


def _not_plain(state: Any) -> Iterator[CheckFailed]:
    if state is None or not is_plain(state):
        kinds = "bool, int, finite float, Fraction, str, bytes, and tuples of these and None"
        yield CheckFailed("plain", f"{_text(state)} of {type(state).__name__} is no state: states are {kinds}")


def _text(value: Any) -> str:
    return shortened(repr(value), _CHARACTERS)
