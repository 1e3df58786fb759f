"""The option ``--mode MODE[:SETTING=VALUE,...]``: the modes of `snapshot.plan.modes` and their settings, as text.

Names no mode. The settings of a mode are the fields of its class, and the type of a field decides how a value is read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Any, Final, Literal, get_args, get_origin, get_type_hints

import typer

from cutline.snapshot.plan.modes import MARKERS, Mode, ModeWish, mode_of

_CLASSES: Final[dict[str, type[Mode]]] = {each.name: each for each in get_args(Mode)}

#: {type of a setting: (how a text is read, what the text must be)}; of any other type the text itself is the value
_READERS: Final[dict[Any, tuple[Callable[[str], Any], str]]] = {
    bool: (lambda text: {"true": True, "false": False}[text.lower()], "true or false"),
    int: (int, "a whole number"),
    float: (float, "a number"),
}


def complete_mode(incomplete: str) -> list[str]:
    """Return the modes that begin with `incomplete`; behind a colon, settings; behind an equals sign, values."""
    name, colon, rest = incomplete.partition(":")
    if not colon:
        return [each for each in (MARKERS, *_CLASSES) if each.startswith(name)]
    before, comma, last = rest.rpartition(",")
    setting, equals, value = last.partition("=")
    head = f"{name}:{before}{comma}"
    if not equals:
        return [f"{head}{each}=" for each in _defaults(name) if each.startswith(setting)]
    return [f"{head}{setting}={each}" for each in _choices(name, setting) if each.startswith(value)]


def mode_wish(text: str) -> ModeWish:
    """Return the mode that a user wishes.

    Raises
    ------
    typer.BadParameter
        if there is no such mode or setting, or a setting is missing or has a wrong value.
    """
    name, colon, rest = text.partition(":")
    try:
        if name not in _CLASSES:
            mode_of(name)
        given = _settings(name, rest.split(",") if colon else [])
        return _CLASSES[name](**given) if name in _CLASSES else MARKERS
    except ValueError as error:
        raise typer.BadParameter(f"--mode {text}: {error}") from None


def all_modes() -> dict[str, Mode]:
    """Return each mode with its defaults, and with each other value of a setting that has few, as they are written.

    A setting without a default has a placeholder.
    """
    found: dict[str, Mode] = {}
    for name, mode in _CLASSES.items():
        given: dict[str, Any] = {each: _PLACEHOLDER for each, default in _defaults(name).items() if default is MISSING}
        found[name] = mode(**given)
        for setting, default in _defaults(name).items():
            for text in _choices(name, setting):
                if (value := _value(name, setting, text)) != default:
                    found[f"{name}:{setting}={text}"] = mode(**given, **{setting: value})
    return found


def _settings(name: str, pairs: list[str]) -> dict[str, Any]:
    defaults, given = _defaults(name), dict[str, Any]()
    for pair in pairs:
        setting, equals, value = pair.partition("=")
        if not equals or setting not in defaults or setting in given:
            raise ValueError(f"{pair!r} is no setting, or is given twice; write {_form(name)}")
        given[setting] = _value(name, setting, value)
    missing = [each for each, default in defaults.items() if default is MISSING and each not in given]
    if missing:
        raise ValueError(f"{', '.join(missing)} is not given; write {_form(name)}")
    return given


def _value(name: str, setting: str, text: str) -> Any:
    read, expected = _READERS.get(get_type_hints(_CLASSES[name])[setting], (str, ""))
    try:
        return read(text)
    except (KeyError, ValueError):
        raise ValueError(f"{setting} is {expected}, not {text!r}") from None


def _defaults(name: str) -> dict[str, Any]:
    """Return {setting of a mode: its default, or MISSING}."""
    return {each.name: each.default for each in fields(_CLASSES[name])} if name in _CLASSES else {}


def _choices(name: str, setting: str) -> tuple[str, ...]:
    """Return the texts that a setting may have, or () if there are too many."""
    hint = get_type_hints(_CLASSES[name]).get(setting) if name in _CLASSES else None
    if hint is bool:
        return ("true", "false")
    return get_args(hint) if get_origin(hint) is Literal else ()


def _form(name: str) -> str:
    """Return how a mode is written with all its settings, as ``deltas:every=10,fullFactor=2.0``."""
    pairs = [f"{each}={'...' if default is MISSING else default}" for each, default in _defaults(name).items()]
    return f"{name}:{','.join(pairs)}" if pairs else name


def _help(name: str) -> str:
    """Return the form of a mode, with the choices of its settings."""
    choices = [f"{each} {' or '.join(_choices(name, each))}" for each in _defaults(name) if _choices(name, each)]
    return f"{_form(name)} ({', '.join(choices)})" if choices else _form(name)


#: value of a setting without a default, where nothing reads it: such settings are folders
_PLACEHOLDER: Final = "/folder"

#: the option of all commands that take a mode
MODE_OPTION: Final[Any] = typer.Option(
    metavar="MODE",
    help=f"What snapshots store: {', '.join(map(_help, (MARKERS, *_CLASSES)))}. Settings may be left out.",
    autocompletion=complete_mode,
)
