"""The screens of `cutline top`, whole: what stands where, and in which colour."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console

from cutline.barrier_runtime.cli.top_view import top_view
from cutline.barrier_runtime.page.run_view import RunView
from tests.barrier_runtime.cli.test_cli_top import _VIOLATED, busy_report, drawn
from tests.page.reports import pipeline, totals_mode

_WIDE_SCREEN = """\
orders  running  2 min, incarnation 1, 2 workers
in 12.3k/s   out 0.2/s   snapshots 1, aborted 1

node                     ended  in/s  out/s  busy
clicks                     0/4     0      0   15%  ━╸
payments                   0/4     0      0   30%  ━━━
sessions                   0/4     0      0   45%  ━━━━╸
rank_iteration             0/4     0      0   60%  ━━━━━━
alerts_with_a_long_name    0/4     0      0   75%  ━━━━━━━╸
ledger                     0/1     0      0   90%  ━━━━━━━━━

edge                                       messages/s  bytes/s  messages  queued  back-pressure
clicks -> sessions                                  0      0 B     1,000       5             0%
payments -> sessions                                0      0 B     2,000     405            62%  ━━━━━━
sessions -> rank_iteration                          0      0 B     3,000     805            73%  ━━━━━━━
rank_iteration -> sessions                          0      0 B     4,000   1,205             0%
rank_iteration -> rank_iteration                    0      0 B     5,000   1,605            46%  ━━━━╸
rank_iteration -> alerts_with_a_long_name           0      0 B     6,000   2,005            86%  ━━━━━━━━╸
alerts_with_a_long_name -> ledger                   0      0 B     7,000   2,405             2%
clicks -> ledger                                    0      0 B     8,000   2,805            31%  ━━━

snapshot  state       age   took  trigger  align  capture  upload  publish       size  in flight  slowest
3         pending    97 s  42 ms                                            120.6 KiB         37  4 of 21
2         aborted    98 s  42 ms                                            120.6 KiB         37  its deadline \
has passed
1         published  99 s  42 ms     2 ms  12 ms     4 ms   18 ms     6 ms  120.6 KiB         37  sessions[2], pinned

invariant lost: 1 snapshots are not judged, last 2
invariant money is violated in 102 snapshots, last in 4
invariant always holds in snapshot 3
invariant later is not judged yet
and 1 invariants more
restarts 1, the last 100 s ago: worker 1 was lost: �[31mkilled
q quit   s take a snapshot
"""

_SMALL_SCREEN = """\
orders  running  2 min, incarnation 1, 2 workers
in 12.3k/s   out 0.2/s   snapshots 1, aborted 1

node                     ended  in/s  out/s  busy
ledger                     0/1     0      0   90%  ━━━━━━━━━
alerts_with_a_long_name    0/4     0      0   75%  ━━━━━━━╸
rank_iteration             0/4     0      0   60%  ━━━━━━
sessions                   0/4     0      0   45%  ━━━━╸
and 2 more

edge                               messages/s  queued  back-pressure
rank_iteration -> alerts_with_a_…           0   2,005            86%  ━━━━━━━━╸
sessions -> rank_iteration                  0     805            73%  ━━━━━━━
payments -> sessions                        0     405            62%  ━━━━━━
and 5 more

snapshot  state       age   took       size  in flight  slowest
3         pending    97 s  42 ms  120.6 KiB         37  4 of 21
2         aborted    98 s  42 ms  120.6 KiB         37  its deadline has passed
1         published  99 s  42 ms  120.6 KiB         37  sessions[2], pinned

no restarts
q quit   s take a snapshot
"""

_ENDED_SCREEN = """\
orders  failed  2 min, incarnation 1, 2 workers
in 12.3k/s   out 0.2/s   snapshots 1, aborted 1

node                     ended  in/s  out/s  busy
clicks                     0/4     0      0   15%  ━╸
payments                   0/4     0      0   30%  ━━━
sessions                   0/4     0      0   45%  ━━━━╸
rank_iteration             0/4     0      0   60%  ━━━━━━
alerts_with_a_long_name    0/4     0      0   75%  ━━━━━━━╸
ledger                     0/1     0      0   90%  ━━━━━━━━━

edge                               messages/s  queued  back-pressure
clicks -> sessions                          0       5             0%
payments -> sessions                        0     405            62%  ━━━━━━
sessions -> rank_iteration                  0     805            73%  ━━━━━━━
rank_iteration -> sessions                  0   1,205             0%
rank_iteration -> rank_iteration            0   1,605            46%  ━━━━╸
rank_iteration -> alerts_with_a_…           0   2,005            86%  ━━━━━━━━╸
alerts_with_a_long_name -> ledger           0   2,405             2%
clicks -> ledger                            0   2,805            31%  ━━━

snapshot  state       age   took       size  in flight  slowest
3         pending    97 s  42 ms  120.6 KiB         37  4 of 21
2         aborted    98 s  42 ms  120.6 KiB         37  its deadline has passed
1         published  99 s  42 ms  120.6 KiB         37  sessions[2], pinned

restarts 1, the last 100 s ago: worker 1 was lost: �[31mkilled
run orders failed: no
"""


def _verdict(holds: bool | None, unreadable: tuple[int, ...] = ()) -> dict[str, Any]:
    ids = {"violations": [], "violationCount": 0, "unreadable": list(unreadable), "unreadableCount": len(unreadable)}
    return {"holds": holds, "snapshot": 3, **ids}


def _document(**changes: Any) -> dict[str, Any]:
    """A run of two minutes, with five invariants, one for each thing that is said of one."""
    verdicts = {"always": _verdict(True), "later": _verdict(None), "lost": _verdict(True, (2,)), **_VIOLATED}
    view = RunView("orders", pipeline(), {})
    view.see(busy_report(1, invariants={**verdicts, "fifth": _verdict(True)}))
    times = {"startedAt": 1.8e9 - 60, "timestamp": 1.8e9 + 100}
    return {**view.document(), **times, "inPerSecond": 12_345.0, "outPerSecond": 0.25, **changes}


_QUIET: dict[str, Any] = {"restarts": [], "invariants": {}}
_FAILED = {"isActive": False, "outcome": "failed", "phase": "failed", "reason": "no", "invariants": {}}


@pytest.mark.parametrize(
    ("changes", "width", "height", "expected"),
    [({}, 160, 60, _WIDE_SCREEN), (_QUIET, 80, 24, _SMALL_SCREEN), (_FAILED, 80, None, _ENDED_SCREEN)],
)
def test_a_screen(changes: dict[str, Any], width: int, height: int | None, expected: str) -> None:
    """All rows where there is room, the busiest where there is little, and no keys without a terminal."""
    assert "".join(f"{line.rstrip()}\n" for line in drawn(_document(**changes), width, height)) == expected


def _styled(document: dict[str, Any], note: str = "") -> dict[str, str]:
    """{text: style} of all words that have a style."""
    console = Console(width=200, height=60, color_system="standard", force_terminal=True)
    segments = console.render(top_view(document, 200, 60, note))
    found = {segment.text.strip(): str(segment.style) for segment in segments if segment.style is not None}
    return {text: style for text, style in found.items() if text and style != "none"}


def _coloured(document: dict[str, Any], note: str = "") -> dict[str, str]:
    """{text: style} of all words that have a style, but those of headings."""
    return {text: style for text, style in _styled(document, note).items() if style != "bold"}


def test_headings_are_bold() -> None:
    """The headings of all three tables stand out from the rows."""
    found = _styled(_document())
    headings = ("node", "ended", "edge", "queued", "back-pressure", "snapshot", "in flight", "slowest")
    assert [found[heading] for heading in headings] == ["bold"] * len(headings)
    assert "sessions" not in found and "clicks -> sessions" not in found


def test_what_is_wrong_is_red() -> None:
    """Violations and bottlenecks are red, losses are yellow, what is good is green, the rest is dim."""
    found = _coloured(_document())
    wrong = (
        "invariant lost: 1 snapshots are not judged, last 2",
        "invariant money is violated in 102 snapshots, last in 4",
    )
    assert {text: found[text] for text in wrong} == dict.fromkeys(wrong, "bold red")
    assert (found["running"], found["invariant always holds in snapshot 3"]) == ("bold green", "green")
    assert [found[state] for state in ("published", "pending", "aborted")] == ["green", "cyan", "yellow"]
    assert [found[share] for share in ("60%", "75%", "86%", "90%")] == ["yellow", "yellow", "red", "red"]
    assert "15%" not in found and "46%" not in found, "a share below a half has no colour"
    for text in ("and 1 invariants more", "invariant later is not judged yet", "q quit   s take a snapshot"):
        assert found[text] == "dim"


def test_stores_have_a_line_each() -> None:
    """Stores with an error come first, in red. The head has the mode, and how far the snapshot is behind."""
    mode = totals_mode()
    away = {**mode["stores"]["ledger"], "error": "no route", "cellsLeft": 0}
    mode["stores"] |= {"sums": away, **{f"more{number}": away for number in range(4)}}
    found = _coloured(_document(mode=mode))
    assert found["store of sums: 1,234 keys wait (78.1 KiB), last error: no route"] == "bold red"
    assert found["and 2 stores more"] == "dim"
    text = drawn(_document(mode=totals_mode()), 120, 24)
    assert "store of ledger: 1,234 keys wait (78.1 KiB), 56 cells to write" in text and len(text) <= 24
    assert text[0].rstrip() == "orders  running  2 min, incarnation 1, mode monoidClocks, 1,234 items behind, 2 workers"
    negotiated = drawn(_document(mode={**mode, "itemsBehind": None}), 120, 24)
    assert "mode monoidClocks, 2 workers" in negotiated[0]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "log 2.0 KiB"),
        ({"versions": 1}, "log 2.0 KiB, versions 3.0 KiB"),
        ({"stepsLeft": 7}, "log 2.0 KiB, 7 steps to repeat"),
        ({"versions": 1, "stepsLeft": 7}, "log 2.0 KiB, versions 3.0 KiB, 7 steps to repeat"),
    ],
)
def test_a_mode_of_steps_is_in_the_head(changes: dict[str, int], said: str) -> None:
    """The size of the log, that of versions if there are any, and how many steps are still to be repeated."""
    mode = {"name": "inputLogging", "logBytes": 2048, "versions": 0, "versionBytes": 3072, "stepsLeft": 0, **changes}
    head = drawn(_document(mode=mode), 120, 24)[0].rstrip()
    assert head == f"orders  running  2 min, incarnation 1, mode inputLogging, {said}, 2 workers"


@pytest.mark.parametrize(("outcome", "style"), [("finished", "green"), ("failed", "red"), ("stopped", "yellow")])
def test_the_outcome_has_a_colour(outcome: str, style: str) -> None:
    """An ended run shows its outcome in the place of its phase, and nothing can be ordered any more."""
    found = _coloured(_document(isActive=False, phase="ended", outcome=outcome, reason=""))
    assert found[outcome] == f"bold {style}" and found["q quit"] == "dim"


@pytest.mark.parametrize(("state", "style"), [("waiting", "cyan"), ("done", "green"), ("failed", "bold red")])
def test_the_newest_command_is_shown(state: str, style: str) -> None:
    """A snapshot command, or a command that waits, is shown in the colour of its state. A note hides it."""
    commands = [
        {"kind": "snapshot", "state": "done", "text": "the first"},
        {"kind": "snapshot", "state": state, "text": "the second"},
        {"kind": "stop", "state": "done", "text": "a stop"},
    ]
    found = _coloured(_document(commands=commands))
    assert found["the second"] == style and "the first" not in found and "a stop" not in found
    noted = _coloured(_document(commands=commands), "the page is lost")
    assert noted["the page is lost"] == "bold red" and "the second" not in noted
