"""Mutants of a module's rules: one rule is taken away, and a test of the module has to fail.

The scenarios are the tests of one test module, called as plain functions. They take no fixtures.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterator
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple

import pytest


class Mutant(NamedTuple):
    """One rule taken away: a piece of the source of a function or method is replaced."""

    rule: str
    #: class or module that holds the function
    owner: type | ModuleType
    function: str
    old: str
    new: str

    def apply(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Replace the function until the test ends."""
        found: Any = getattr(self.owner, self.function)
        if isinstance(found, property):
            found = found.fget
        plain = textwrap.dedent(inspect.getsource(found))
        assert self.old in plain, f"{self.rule}: {self.old!r} is not in {self.function} any more"
        module = inspect.getmodule(self.owner)
        assert module is not None
        # The module's own globals, because tests replace names in them.
        made: dict[str, Any] = {}
        exec("from __future__ import annotations\n" + plain.replace(self.old, self.new), vars(module), made)
        monkeypatch.setattr(self.owner, self.function, made[self.function])


def scenarios(module: ModuleType) -> Iterator[Callable[[], object]]:
    """Yield all tests of a module, with each of their parameters."""
    for name, function in vars(module).items():
        if not name.startswith("test_"):
            continue
        marks = [mark for mark in getattr(function, "pytestmark", []) if mark.name == "parametrize"]
        if not marks:
            yield function
        for mark in marks:
            for values in mark.args[1]:
                yield partial(function, *(values if isinstance(values, tuple) else (values,)))


def require_all_pass(module: ModuleType, count_min: int) -> None:
    """Run all tests of `module` without a mutant, so that a test that fails with a mutant fails because of it."""
    found = list(scenarios(module))
    assert len(found) >= count_min
    for scenario in found:
        scenario()


def require_teeth(mutant: Mutant, module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail unless a test of `module` fails without the rule."""
    mutant.apply(monkeypatch)
    for scenario in scenarios(module):
        try:
            scenario()
        except (Exception, pytest.fail.Exception):  # noqa: BLE001  # whatever it is, a test sees the difference
            return
    pytest.fail(f"no test fails without the rule that {mutant.rule}")
