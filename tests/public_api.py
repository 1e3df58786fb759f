"""List what a user may call, a line a function with its arguments and defaults: ``python -m tests.public_api``.

The program writes `EXPECTED` anew. Say in docs/API.md what changed before you keep what it wrote, because programs of
users call these names.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.source_files import USERS_FOLDER

EXPECTED = Path(__file__).with_name("public_api.txt")

_MODULES = ("cutline", "cutline.testing")


def lines() -> list[str]:
    """All public functions, classes, methods, attributes and values, sorted in each module."""
    public = [(f"{module}.{name}", value) for module in _MODULES for name, value in sorted(_names(module).items())]
    classes = [value for _, value in public if inspect.isclass(value)]
    return [line for name, value in public for line in _lines(name, value, classes)]


def _names(module: str) -> dict[str, Any]:
    loaded = import_module(module)
    return {name: getattr(loaded, name) for name in loaded.__all__}


def _lines(name: str, value: Any, classes: Sequence[type]) -> Iterator[str]:
    if not callable(value):
        yield f"{name}: {type(value).__name__}"
    elif not inspect.isclass(value):
        yield f"{name}{_arguments(value)}"
    elif issubclass(value, Enum):
        yield from (f"{name}.{member.name} = {member.value!r}" for member in value)
    else:
        yield f"{name}{_arguments(value)}"
        for member, found in sorted(_members(value, classes).items()):
            if isinstance(found, property):
                yield f"{name}.{member}: property"
            elif isinstance(found, staticmethod | classmethod) or inspect.isfunction(found):
                yield f"{name}.{member}{_arguments(getattr(value, member))}"


def _members(of: type, classes: Sequence[type]) -> dict[str, Any]:
    """Attributes of a class, and of its bases that are not public. A name with an underscore is none of a user's."""
    found: dict[str, Any] = {}
    for each in reversed(of.__mro__):
        is_ours = each.__module__.partition(".")[0] == USERS_FOLDER
        if is_ours and (each is of or each not in classes):
            found |= {name: value for name, value in vars(each).items() if "_" not in name}
    return found


def _arguments(value: Any) -> str:
    """The arguments without their types, which the type checker compares, and Python's versions write differently."""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):  # a type alias, or a class without a signature of its own
        return ""
    untyped = [each.replace(annotation=each.empty) for each in signature.parameters.values()]
    return str(signature.replace(parameters=untyped, return_annotation=signature.empty))


if __name__ == "__main__":
    EXPECTED.write_text("\n".join(lines()) + "\n")
