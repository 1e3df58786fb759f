"""Random sequences of calls of a store of aggregates, compared with a model of a few lines after each call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from hypothesis import HealthCheck, Phase, Verbosity, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky

from cutline.snapshot.testing.checking.verdict import CheckFailed
from cutline.snapshot.testing.store_trial import StoreTrial

Example = TypeVar("Example")

#: names of the keys of a sequence: `==` takes the first three for one
_NAMES = (1, 1.0, True, "1")

_CALLS_MAX = 12

#: {call: least id that is not refused, minus the committed id}
_AHEAD_MIN = {"write": 1, "rollBack": 0}

#: what an example checks, whichever rule a failure breaks
_SENTENCE = "A cell counts by its value where its id is at most the committed id, else by the value before."


class Call(NamedTuple):
    """One call: by which connection, by the claim or by the lower one, of which id, and which cells it writes."""

    deed: str
    connection: int
    is_lower: bool
    ahead: int  #: id minus the committed id
    items: dict[int, int]  #: {index of the key's name: value}


_calls = st.lists(
    st.builds(
        Call,
        st.sampled_from(("write", "write", "commit", "rollBack", "take", "close")),
        st.integers(0, 1),
        st.sampled_from((False, False, False, True)),
        st.integers(-1, 3),
        st.dictionaries(st.integers(0, len(_NAMES) - 1), st.integers(0, 9), max_size=len(_NAMES)),
    ),
    max_size=_CALLS_MAX,
)


class _Model:
    """What a store holds by its contract."""

    def __init__(self, committed: int) -> None:
        self.committed = committed
        self.cells: dict[int, tuple[int, int, int | None]] = {}

    def current(self, name: int) -> int | None:
        value, snapshot_id, previous = self.cells.get(name, (None, 0, None))
        return value if snapshot_id <= self.committed else previous

    def do(self, deed: str, snapshot_id: int, items: dict[int, int]) -> None:
        if deed == "write":
            self.cells |= {name: (value, snapshot_id, self.current(name)) for name, value in items.items()}
        elif deed == "commit":
            self.committed = max(self.committed, snapshot_id)
        elif deed == "rollBack":
            self._roll_back(snapshot_id)

    def _roll_back(self, snapshot_id: int) -> None:
        for name, (_, written_by, previous) in list(self.cells.items()):
            if written_by > snapshot_id:
                del self.cells[name]
                if previous is not None:
                    self.cells[name] = (previous, self.committed, None)


def check_sequences(trial: StoreTrial, examples: int) -> None:
    """Try sequences of calls, and report the shortest one that the store and the model answer differently.

    Raises
    ------
    CheckFailed
        with the sequence.
    """
    check_examples(_calls, partial(_attempt, trial), examples)


def check_examples(drawn: st.SearchStrategy[Example], check: Callable[[Example], None], examples: int) -> None:
    """Check `examples` of a strategy.

    Raises
    ------
    CheckFailed
        of the smallest example that was found.
    """
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
    @given(drawn)
    def attempt(example: Example) -> None:
        try:
            check(example)
        except CheckFailed as error:
            found.append(error)
            raise

    try:
        attempt()
    except (CheckFailed, Flaky):  # flaky: a store that forgets does not forget again
        raise found[-1] from None


def _attempt(trial: StoreTrial, calls: Sequence[Call]) -> None:
    """Make calls with keys that have no value yet."""
    trial.take(_SENTENCE)
    trial.commit()
    [row, _] = trial.fresh(1)[0]
    keys = [(row, name) for name in _NAMES]
    model = _Model(trial.committed)
    for number, call in enumerate(calls, 1):
        try:
            _make(trial, model, keys, call)
            trial.committed = model.committed
            trial.expect([model.current(name) for name in range(len(keys))], keys, _SENTENCE)
        except CheckFailed as error:
            made = "".join(f"\n  {each}" for each in calls[:number])
            raise CheckFailed(error.checker, f"{error.text}\nafter a commit, by one claim, of{made}") from None
    trial.take(_SENTENCE)


def _make(trial: StoreTrial, model: _Model, keys: Sequence[Any], call: Call) -> None:
    """Make one call of the store and of the model."""
    store = (trial.one, trial.other)[call.connection]
    claim = trial.lower_claim if call.is_lower else trial.claim
    snapshot_id = model.committed + call.ahead
    items = [(keys[name], value) for name, value in call.items.items()]
    calls: dict[str, Callable[[], object]] = {
        "close": store.close,
        "take": lambda: store.take(claim),
        "write": lambda: store.write(claim, snapshot_id, items),
        "commit": lambda: store.commit(claim, snapshot_id),
        "rollBack": lambda: store.rollBack(claim, snapshot_id),
    }
    if call.is_lower and call.deed != "close":
        trial.expect_fenced(calls[call.deed], call.deed, _SENTENCE)
    elif call.ahead < _AHEAD_MIN.get(call.deed, call.ahead):
        trial.expect_refused(calls[call.deed], call.deed, _SENTENCE)
    elif call.deed == "take":
        trial.take(_SENTENCE)
    else:
        calls[call.deed]()
        model.do(call.deed, snapshot_id, call.items)
