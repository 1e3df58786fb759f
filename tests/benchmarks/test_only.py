"""``--only`` runs just the configurations that match, and an error names the keys and values that exist."""

from __future__ import annotations

import json
import re
import shlex

import pytest

from benchmarks import channel, keyed_batches, keyed_messages, scale
from benchmarks.__main__ import load, main, parser
from benchmarks.run_size import Cases, NothingMatchesError, RunSize, select
from tests.source_files import ROOT

CASES: dict[str, Cases] = {
    "keyed-messages": keyed_messages.configurations(RunSize()),
    "keyed-batches": keyed_batches.configurations(RunSize()),
    "scale": scale.configurations(RunSize()),
}


def test_all_conditions_must_match() -> None:
    """Each configuration with all values is kept, in its order. Benchmarks without such a configuration are dropped."""
    found = select(CASES, ["parallelism=2", "snapshot_interval_s=1.0", "payload=messages"])
    assert found == {
        "keyed-messages": {keyed_messages.Case(2, 1.0): CASES["keyed-messages"][keyed_messages.Case(2, 1.0)]}
    }
    two = select(CASES, ["parallelism=2"])
    assert list(two) == list(CASES) and list(two["scale"]) == [4]
    assert list(two["keyed-messages"]) == [
        *(keyed_messages.Case(2, interval) for interval in (None, 1.0, 0.1)),
        keyed_messages.Case(2, None, is_single=True),
    ]


def test_no_condition_keeps_everything() -> None:
    """Without ``--only`` every configuration runs."""
    assert select(CASES, []) == CASES


@pytest.mark.parametrize(
    ("condition", "matches"),
    [
        ("snapshot_interval_s=null", [None] * 4),
        ("snapshot_interval_s=1", [1.0, 1.0]),
        ("snapshot_interval_s=1.0", [1.0, 1.0]),
        ("sent=one by one", [None, None]),
        ("quick=false", [None, 1.0, 0.1, None] * 2),
    ],
)
def test_values_are_those_of_the_json_line(condition: str, matches: list[float | None]) -> None:
    """Numbers are compared as numbers. Text, null, true and false are compared as JSON writes them, without quotes."""
    found = select({"keyed-messages": CASES["keyed-messages"]}, [condition])
    assert [case.interval for case in found["keyed-messages"]] == matches


def test_an_error_names_what_exists() -> None:
    """An unknown key is answered with the keys, an unknown value with the values, a combination with all of them."""
    messages = {"keyed-messages": CASES["keyed-messages"]}
    with pytest.raises(
        NothingMatchesError, match="key 'colour' of 'colour=red'; there are: parallelism, snapshot_inte"
    ):
        select(messages, ["colour=red"])
    with pytest.raises(
        NothingMatchesError, match=r"no configuration has 'parallelism=3'; parallelism is one of: 1, 2$"
    ):
        select(messages, ["parallelism=3"])
    with pytest.raises(NothingMatchesError, match=r"snapshot_interval_s is one of: null, 1\.0, 0\.1$"):
        select(messages, ["snapshot_interval_s=off"])
    with pytest.raises(NothingMatchesError, match=r"is one of: 1, 2$"):
        select(messages, ["parallelism=true"])
    with pytest.raises(NothingMatchesError) as error:
        select(messages, ["snapshot_interval_s=0.1", "sent=one by one"])
    assert "no configuration has snapshot_interval_s=0.1 and sent=one by one; there are:" in str(error.value)
    assert "\n  parallelism=1 snapshot_interval_s=null payload=messages sent=one by one keys=10000" in str(error.value)


def test_the_command_measures_only_what_matches(capsys: pytest.CaptureFixture[str]) -> None:
    """The command prints the results of matching configurations only. Two sides of a channel need no Spark."""
    main(["channel", "--json", "--quick", "--seconds", "0.05", "--only", "payload=arrow", "rows_per_batch=1024"])
    [line] = capsys.readouterr().out.splitlines()
    [expected] = [found for found in channel.configurations(RunSize()).values() if found["rows_per_batch"] == 1024]
    assert json.loads(line)["configuration"] == {**expected, "seconds": 0.05, "quick": True}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["channel", "--only", "pattern=circle"], "pattern is one of: stream, ping_pong"),
        (["channel", "--only", "color=red"], "there are: payload, rows_per_batch, pattern, seconds, quick"),
        (
            ["--only", "pattern=stream", "channel"],
            "'channel' is not KEY=VALUE; names of benchmarks stand before --only",
        ),
        (["chanel"], "there is no benchmark 'chanel'; there are: channel, message-floor, hops, keyed-messages"),
        (["channel", "--seconds", "0"], "0 is not above 0"),
        (["channel", "--repeats", "0"], "0 is not above 0"),
    ],
)
def test_the_command_refuses(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong argument ends the command before anything is measured, and the message names what exists."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def _rows(page: str) -> list[tuple[list[str], list[str]]]:
    """Return the headings and the cells of each row of a page's tables."""
    headings: list[str] = []
    rows = []
    for line in (ROOT / "docs" / page).read_text().splitlines():
        if line.startswith("| "):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if cells[0] == "measured":
                headings = cells
            else:
                rows.append((headings, cells))
    return rows


@pytest.mark.parametrize("page", ["SPEED.md", "SPEED_HISTORY.md"])
def test_commands_of_the_speed_pages_run(page: str) -> None:
    """Each row of a table names a command whose conditions match configurations of its benchmark."""
    rows = _rows(page)
    assert rows
    for _, cells in rows:
        options = parser().parse_args(shlex.split(cells[-1].strip("`")))
        [name] = options.names
        assert select({name: load(name).configurations(RunSize())}, options.only), cells


def test_the_speed_page_has_one_figure_a_cell() -> None:
    """No cell of SPEED has two figures, but descriptions and commands."""
    crowded = [
        cell
        for headings, cells in _rows("SPEED.md")
        for heading, cell in zip(headings, cells, strict=True)
        if heading not in ("measured", "beside", "command") and len(re.findall(r"\d[\d.]*", cell)) > 1
    ]
    assert crowded == []


def test_help_explains(capsys: pytest.CaptureFixture[str]) -> None:
    """``--help`` names every benchmark and shows how configurations are selected."""
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert "--only KEY=VALUE" in text and "keyed-batches   a keyed aggregate over Arrow batches" in text
    assert "python -m benchmarks keyed-messages --only parallelism=2 snapshot_interval_s=1.0" in text
