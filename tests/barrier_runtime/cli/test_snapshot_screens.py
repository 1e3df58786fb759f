"""What `cutline snapshots` prints, whole: each word and number at its place."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.barrier_runtime.cli.test_cli_snapshots import FIRST, SECOND, STATES, THIRD, write
from tests.barrier_runtime.invoking import invoke

_CHANNELS = """
edge    sent  processed  in flight
P -> Q    +0         +0     6 -> 6
Q -> P    +0         +0     1 -> 1
"""
_FORWARD = f"""\
run bank: snapshot {FIRST} -> {SECOND}, 1.00 s later
902 B -> 935 B, no rollback between them
graph: the same

subtask  before  after  state
P[0]      177 B  210 B  changed
                        state['balance']: 1 -> 2
                        state['seen'][2]: new, 3
                        state['note']: gone, was 'a\\x1b[31m'
                        state['open']: new, (1, 'x')
1 of 2 states are equal
{_CHANNELS}"""
_BACKWARD = f"""\
run bank: snapshot {SECOND} -> {FIRST}, 1.00 s earlier
935 B -> 902 B, no rollback between them
graph: the same

subtask  before  after  state
P[0]      210 B  177 B  changed
                        state['balance']: 2 -> 1
                        state['seen'][2]: gone, was 3
                        state['open']: gone, was (1, 'x')
                        state['note']: new, 'a\\x1b[31m'
1 of 2 states are equal
{_CHANNELS}"""
_EQUAL = f"""\
run bank: snapshot {SECOND} -> {THIRD}, 1.00 s later
935 B -> 935 B, no rollback between them
graph: the same

2 of 2 states are equal
{_CHANNELS}"""
_VERIFIED = """\
run bank: 11 files, 3 snapshots that can be restored
  every byte is as it was written
run other: 9 files, 1 snapshots that can be restored
  every byte is as it was written
"""
_RUNS = f"""\
run    snapshots   newest   age     size  pinned
bank           3  {THIRD}  AGE  2.7 KiB       1
done           1  {FIRST}  AGE    902 B          finished
other          1  {FIRST}  AGE    907 B       1
"""
_SHOWN = f"""\
<snapshot {FIRST} of run 'bank'>  of TIME, 902 B, pinned
subtask  state  ended
P[0]     177 B
Q[0]     176 B

channel       sent  processed  in flight
P[0] -> Q[0]     8          2          6
Q[0] -> P[0]     2          1          1
"""


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    write(tmp_path / "store", "bank", *STATES)
    write(tmp_path / "store", "other", STATES[0])
    return tmp_path / "store"


def printed(*arguments: object) -> str:
    """What a command prints, without the ends of lines, and without ages, which grow."""
    result = invoke(*arguments, columns=110)
    assert result.exit_code == 0, result.output
    lines = (
        re.sub(r"  +age", "   age", re.sub(r"\d{5,6} d\b", "AGE", line)).rstrip() for line in result.output.splitlines()
    )
    return "".join(f"{line}\n" for line in lines)


@pytest.mark.parametrize(
    ("before", "after", "expected"), [(FIRST, SECOND, _FORWARD), (SECOND, FIRST, _BACKWARD), (SECOND, THIRD, _EQUAL)]
)
def test_a_difference(stored: Path, before: int, after: int, expected: str) -> None:
    """Times go forward and back, what is new and what is gone change places, and equal states are only counted."""
    assert printed("snapshots", "diff", stored, "bank", before, after) == expected


def test_runs(stored: Path) -> None:
    """Rows: one for each run. A run is finished if its newest snapshot is the result."""
    write(stored, "done", STATES[0], final=True, pinned=False)
    assert printed("runs", stored) == _RUNS


def test_a_snapshot(stored: Path) -> None:
    """A row for each subtask, and a row for each channel."""
    shown = printed("snapshots", "show", stored, FIRST, "--run", "bank")
    assert re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "TIME", shown) == _SHOWN


def test_what_was_verified(stored: Path) -> None:
    """Files and snapshots are counted by run."""
    assert printed("snapshots", "verify", stored).strip() == _VERIFIED.strip()
