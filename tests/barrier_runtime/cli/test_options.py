"""The options of commands that start a graph: a mode with its settings, as text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import typer

from cutline.barrier_runtime.cli import options
from cutline.barrier_runtime.cli.options import complete_mode, mode_wish
from cutline.snapshot.plan.modes import MODES, Deltas, InputLogging, Mode, MonoidClocks


@dataclass(frozen=True)
class Shelved:
    """A mode that nobody has written yet."""

    folder: str
    count: int = 3
    copy: bool = False

    name: ClassVar[str] = "shelved"


@pytest.fixture
def shelved(monkeypatch: pytest.MonkeyPatch) -> None:
    """One more mode, with a setting that has no default."""
    monkeypatch.setitem(options._CLASSES, "shelved", Shelved)


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("markers", "markers"),
        ("inputLogging", InputLogging()),
        ("deltas", Deltas()),
        ("deltas:every=5", Deltas(every=5)),
        ("deltas:fullFactor=3,every=5", Deltas(every=5, fullFactor=3.0)),
        ("monoidClocks:clock=negotiated,memory=1000", MonoidClocks(1000, "negotiated")),
        ("shelved:folder=/a=b", Shelved("/a=b")),
        ("shelved:folder=x,copy=true,count=1", Shelved("x", 1, copy=True)),
        ("shelved:folder=,copy=False", Shelved("")),
    ],
)
def test_a_text_is_a_mode(shelved: None, text: str, mode: Any) -> None:
    """Each setting by its type; those that are left out have their defaults."""
    assert mode_wish(text) == mode


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("delta", r"mode 'delta' is unknown; there are 'markers', 'inputLogging', 'deltas'"),
        ("markers:every=2", "'every=2' is no setting, or is given twice; write markers"),
        ("inputLogging:", "'' is no setting, or is given twice; write inputLogging"),
        ("deltas:often=2", "'often=2' is no setting, or is given twice; write deltas:every=10,fullFactor=2.0"),
        ("deltas:every", "'every' is no setting, or is given twice; write deltas:every=10,fullFactor=2.0"),
        ("deltas:every=1,every=2", "'every=2' is no setting, or is given twice"),
        ("deltas:every=few", "every is a whole number, not 'few'"),
        ("deltas:fullFactor=", "fullFactor is a number, not ''"),
        ("monoidClocks:clock=sun", "MonoidClocks: clock is 'epochs' or 'negotiated', not 'sun'"),
        ("deltas:every=0", "Deltas: every is a whole number from 1 to 10,000, not 0"),
        ("shelved", "folder is not given; write shelved:folder=...,count=3,copy=False"),
        ("shelved:folder=x,copy=no", "copy is true or false, not 'no'"),
    ],
)
def test_a_wrong_text_is_refused(shelved: None, text: str, said: str) -> None:
    """With what would be right."""
    with pytest.raises(typer.BadParameter) as refused:
        mode_wish(text)
    assert str(refused.value).startswith(f"--mode {text}: ") and said in str(refused.value)


@pytest.mark.parametrize("mode", MODES)
def test_each_mode_can_be_chosen(mode: type[Mode]) -> None:
    """As the help writes it, also a mode that is new."""
    written = options._form(mode.name)
    assert written in options.MODE_OPTION.help
    assert type(mode_wish(written.replace("...", "/folder"))) is mode


def test_the_help_has_the_values_of_a_setting() -> None:
    """Where there are few, because nothing else says what one may write."""
    assert "monoidClocks:memory=268435456,clock=epochs (clock epochs or negotiated)" in options.MODE_OPTION.help


def test_modes_and_settings_are_completed(shelved: None) -> None:
    """Modes first, behind the colon the settings of the mode, behind the equals sign values of which there are few."""
    assert complete_mode("") == ["markers", *(each.name for each in MODES), "shelved"]
    assert complete_mode("de") == ["deltas"]
    assert complete_mode("deltas:") == ["deltas:every=", "deltas:fullFactor="]
    assert complete_mode("shelved:folder=x,co") == ["shelved:folder=x,count=", "shelved:folder=x,copy="]
    assert complete_mode("monoidClocks:memory=1,clock=") == [
        "monoidClocks:memory=1,clock=epochs", "monoidClocks:memory=1,clock=negotiated",
    ]  # fmt: skip
    assert complete_mode("monoidClocks:clock=n") == ["monoidClocks:clock=negotiated"]
    assert complete_mode("shelved:copy=t") == ["shelved:copy=true"]
    assert complete_mode("shelved:count=") == complete_mode("shelved:none=") == []
    assert complete_mode("markers:") == complete_mode("none:e") == []
