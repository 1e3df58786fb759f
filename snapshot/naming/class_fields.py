"""The kind and fields of a class, by which a stored object is checked against the class that the program has now.

A *print* is a text such as ``dataclass(amount, price)``. A pickle holds the print of each class of the program, because
a dataclass whose fields are others than those stored would fail, or be wrong, in the middle of the run.
"""

from __future__ import annotations

import copyreg
import dataclasses
from collections.abc import Callable, Mapping
from enum import Enum
from functools import partial
from typing import Any, Final

#: Kinds of classes, as prints begin.
DATACLASS: Final = "dataclass"
NAMED_TUPLE: Final = "named tuple"

#: Type of what stands for a default that a field does not have. A class that was sent has another such object.
_Missing: Final = type(dataclasses.MISSING)

#: The function of the class dict by which a dataclass with slots gives its state: a list, without names.
_NAMELESS_STATE: Final = "_dataclass_getstate"

_STATE_METHODS: Final = ("__getstate__", "__setstate__")


class AnotherClass(Exception):
    """The class of the program is of another kind, or has other fields, than the class of the stored object."""


def print_of(found: Any) -> str:
    """Return the print of a class or function."""
    if not isinstance(found, type):
        return "function"
    if issubclass(found, Enum):
        return "enum"
    if dataclasses.is_dataclass(found):
        return _print(DATACLASS, [field.name for field in dataclasses.fields(found)])
    if is_named_tuple(found):
        return _print(NAMED_TUPLE, found._fields)  # type: ignore[attr-defined]
    return "class"


def is_named_tuple(found: type) -> bool:
    """Return whether a class was made by `namedtuple` or `NamedTuple`, or is a subclass of one."""
    return issubclass(found, tuple) and hasattr(found, "_fields") and hasattr(found, "_field_defaults")


def is_pickled_by_fields(found: type) -> bool:
    """Return whether objects of a class are what their fields are: the class has no pickling of its own."""
    if any(getattr(found, name) is not getattr(object, name) for name in ("__reduce_ex__", "__reduce__")):
        return False
    if found in copyreg.dispatch_table or hasattr(found, "__getnewargs_ex__"):
        return False
    if is_named_tuple(found):
        return not hasattr(found, "__setstate__")
    return dataclasses.is_dataclass(found) and not hasattr(found, "__getnewargs__") and not has_own_state(found)


def has_own_state(found: type) -> bool:
    """Return whether a class reads or makes the state of its objects by methods of its own."""
    if has_nameless_state(found):
        return False
    return any(getattr(found, each, None) is not getattr(object, each, None) for each in _STATE_METHODS)


def reads_states(found: type) -> bool:
    """Return whether a class has a `__setstate__` of its own, which takes the state of whatever class was stored."""
    return hasattr(found, "__setstate__") and not has_nameless_state(found)


def has_nameless_state(found: type) -> bool:
    """Return whether a class is a dataclass with slots, whose own pickling writes values without names."""
    return getattr(getattr(found, "__getstate__", None), "__name__", "") == _NAMELESS_STATE


def maker_of(found: Any, stored: str) -> Callable[..., Any]:
    """Return what makes an object of a class from what was stored under a print. The state is set afterwards.

    Raises
    ------
    AnotherClass
        if the class has another print and no `__setstate__`, and the stored object does not have all that it needs.
    """
    now = print_of(found)
    if now == stored or (isinstance(found, type) and reads_states(found)):
        return partial(found.__new__, found)
    if isinstance(found, type) and now.startswith(DATACLASS) and stored.startswith(DATACLASS):
        return partial(_made, found, _added(found, fields_of(stored), now, stored))
    if isinstance(found, type) and now.startswith(NAMED_TUPLE) and stored.startswith(NAMED_TUPLE):
        names = fields_of(stored)
        _added(found, names, now, stored)
        return partial(_tuple_made, found, names)
    raise AnotherClass(f"was stored as {stored}, and is {now} now")


def check_kind(found: Any, stored: str) -> None:
    """Check the print of a class or function that was stored as itself, or whose objects have a state of their own.

    Raises
    ------
    AnotherClass
        if the kind is another. A class with a `__setstate__` may be of any kind.
    """
    if isinstance(found, type) and (stored == "function" or reads_states(found)):
        return
    now = print_of(found)
    if _kind(now) != _kind(stored):
        raise AnotherClass(f"was stored as {stored}, and is {now} now")


def _print(kind: str, names: Any) -> str:
    return f"{kind}({', '.join(names)})"


def _kind(text: str) -> str:
    return text.partition("(")[0]


def fields_of(text: str) -> list[str]:
    """Return the names of the fields of a print."""
    return text.partition("(")[2][:-1].split(", ") if not text.endswith("()") else []


def _added(found: type, stored: list[str], now: str, then: str) -> dict[str, Callable[[], Any]]:
    """Return the defaults of the fields that a class has now, and that its stored object has not."""
    defaults = _defaults(found)
    added = [name for name in fields_of(now) if name not in stored]
    without = [name for name in added if name not in defaults]
    dropped = [name for name in stored if name not in fields_of(now)]
    if without or dropped:
        raise AnotherClass(
            f"was stored as {then}, and is {now} now: "
            + "; ".join(
                [f"{name} has no default" for name in without] + [f"{name} would be dropped" for name in dropped]
            )
        )
    return {name: defaults[name] for name in added}


def _defaults(found: Any) -> Mapping[str, Callable[[], Any]]:
    if is_named_tuple(found):
        return {name: partial(_same, value) for name, value in found._field_defaults.items()}
    fields = dataclasses.fields(found)
    made: dict[str, Any] = {
        each.name: each.default_factory for each in fields if not isinstance(each.default_factory, _Missing)
    }
    fixed = {each.name: partial(_same, each.default) for each in fields if not isinstance(each.default, _Missing)}
    return {**made, **fixed}


def _same(value: Any) -> Any:
    return value


def _made(found: Any, defaults: Mapping[str, Callable[[], Any]]) -> Any:
    instance = found.__new__(found)
    for name, default in defaults.items():
        object.__setattr__(instance, name, default())
    return instance


def _tuple_made(found: Any, names: list[str], *values: Any) -> Any:
    return found(**dict(zip(names, values, strict=True)))
