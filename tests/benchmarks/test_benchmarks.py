"""Each benchmark works: a quick look at it gives results of the promised form, and they say that they are quick.

What they compute they check themselves; how fast it was is no matter of tests.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from benchmarks import keyed_batches, keyed_messages, message_floor, page, recovery, scale, simulation, snapshot
from benchmarks.asking import Stretches
from benchmarks.effort import Effort
from benchmarks.keyed_rows import require_equal, sums_of_bursts
from benchmarks.result import Metric, Result, metric, metric_of_samples, paired_ratio
from benchmarks.session import Place
from benchmarks.stretches import shares_of_neighbours
from benchmarks.table import table_of
from tests.source_files import ROOT
from tests.system.live import Live

EFFORT = Effort(seconds=0.3, repeats=1, quick=True)
#: Seconds that one benchmark may take on a crowded machine.
_DEADLINE_S = 110.0

_FIELDS = ("benchmark", "configuration", "metrics", "ratios", "machine", "versions")
_METRIC = ("median", "min", "max", "p50", "p99", "unit", "runs")


def assert_schema(line: str) -> dict[str, Any]:
    """A JSON line has exactly the promised fields, with finite numbers in them."""
    found: dict[str, Any] = json.loads(line)
    assert tuple(found) == _FIELDS
    for name, figure in found["metrics"].items():
        assert tuple(figure) == _METRIC, name
        assert figure["min"] <= figure["median"] <= figure["max"] and figure["p50"] <= figure["p99"], name
        assert figure["runs"] >= 1 and isinstance(figure["unit"], str), name
    assert all(math.isfinite(ratio) and ratio >= 0 for ratio in found["ratios"].values())
    assert found["configuration"]["quick"] is True and found["configuration"]["seconds"] == EFFORT.seconds
    assert found["machine"]["cores"] >= 1 and found["versions"]["cutline"]
    return found


def _looked_at(measure: Callable[[Effort, Place], Any], live: Live) -> list[dict[str, Any]]:
    results: list[Result] = list(measure(EFFORT, lambda: live))
    assert table_of(results).row_count == len(results)
    return [assert_schema(result.json()) for result in results]


def test_command_line_and_channel() -> None:
    """``python -m benchmarks`` prints nothing but JSON lines on standard output, and needs no Spark for a channel."""
    command = [sys.executable, "-m", "benchmarks", "channel", "--json", "--quick", "--seconds", str(EFFORT.seconds)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=_DEADLINE_S)
    assert done.returncode == 0, done.stderr
    found = [assert_schema(line) for line in done.stdout.splitlines()]
    kinds = [(each["configuration"]["payload"], each["configuration"]["rows_per_batch"]) for each in found]
    assert kinds == [("messages", None), ("arrow", 1024), ("arrow", 8192), ("arrow", 65_536), ("messages", None)]
    assert all("bare_socket" in each["ratios"] for each in found)
    assert {"messages_per_s", "bytes_per_s"} <= found[0]["metrics"].keys()
    assert {"rows_per_s", "bytes_per_s"} <= found[1]["metrics"].keys()
    assert "round_trip_us" in found[-1]["metrics"]


def _no_place() -> Live:
    raise AssertionError("this needs neither Spark nor Ray")


def test_simulation() -> None:
    """The simulator's speed, and what a snapshot of a large graph takes: one marker a channel."""
    ring, small = [assert_schema(result.json()) for result in simulation.measure(EFFORT, _no_place)]
    assert {"events_per_s", "steps_per_s"} == ring["metrics"].keys()
    channels, markers = small["configuration"]["channels"], small["metrics"]["markers"]["median"]
    assert (channels, markers) == (1_000, 1_000 * small["metrics"]["snapshots"]["median"])


def test_message_floor() -> None:
    """The steps of a message, each alone, and their sum."""
    [found] = [assert_schema(result.json()) for result in message_floor.measure(EFFORT, _no_place)]
    steps = ("share", "encode", "decode", "handle")
    parts = sum(found["metrics"][f"{name}_ns"]["median"] for name in steps)
    assert found["metrics"]["sum_ns"]["median"] == pytest.approx(parts)


@pytest.mark.spark
@pytest.mark.ray
def test_keyed_messages(live: Live) -> None:
    """Messages with snapshots off, seldom and often, beside a bare loop; the last ones sent one by one."""
    found = _looked_at(keyed_messages.measure, live)
    assert [each["configuration"]["snapshot_interval_s"] for each in found] == [None, 1.0, 0.1, None]
    assert [each["configuration"]["sent"] for each in found] == ["in lists"] * 3 + ["one by one"]
    assert all("records_per_s" in each["metrics"] for each in found)
    assert all("without_snapshots" in each["ratios"] for each in found[1:3])


@pytest.mark.spark
@pytest.mark.ray
def test_keyed_batches(live: Live) -> None:
    """Batches of two sizes, beside DuckDB and Polars; what snapshots take is found where the same is done without."""
    found = _looked_at(keyed_batches.measure, live)
    assert [each["configuration"]["rows_per_batch"] for each in found] == [65_536, 65_536, 8_192]
    assert ["without_snapshots" in each["ratios"] for each in found] == [False, True, False]
    assert all({"duckdb", "polars"} <= each["ratios"].keys() for each in found)
    assert all("rows_per_s" in each["metrics"] for each in found)


@pytest.mark.spark
@pytest.mark.ray
def test_snapshot(live: Live) -> None:
    """Small states idle and under back-pressure, and one that is stored apart, beside a bare write."""
    found = _looked_at(snapshot.measure, live)
    assert [each["configuration"]["load"] for each in found] == ["idle", "back_pressure", "load"]
    assert all({"duration_ms", "pause_ms"} <= each["metrics"].keys() for each in found)
    assert "bare_write" in found[-1]["ratios"] and "bytes_per_s" in found[-1]["metrics"]


@pytest.mark.spark
@pytest.mark.ray
def test_recovery(live: Live) -> None:
    """Every tier, each with the steps that its time goes to."""
    found = _looked_at(recovery.measure, live)
    faults = [each["configuration"]["fault"] for each in found]
    assert faults == ["exception", "worker_kill", "task_kill", "coordinator_kill"]
    for each in found[:-1]:
        steps = sum(each["metrics"][f"{step}_s"]["median"] for step in recovery.STEPS)
        assert steps == pytest.approx(each["metrics"]["seconds"]["median"], abs=0.05)


@pytest.mark.spark
@pytest.mark.ray
def test_scale(live: Live) -> None:
    """As many markers as channels, which are the square of half of the subtasks."""
    found = _looked_at(scale.measure, live)
    for each in found:
        channels = (each["configuration"]["subtasks"] // 2) ** 2
        assert each["configuration"]["channels"] == channels == each["metrics"]["markers"]["median"]
    assert "duration_per_channel" in found[-1]["ratios"]


@pytest.mark.spark
@pytest.mark.ray
def test_page(live: Live) -> None:
    """64 subtasks without a page, and with one that is read."""
    off, read = _looked_at(page.measure, live)
    assert (off["configuration"]["viewer"], read["configuration"]["viewer"]) == ("off", "stream")
    assert "without_page" in read["ratios"] and read["metrics"]["documents"]["median"] >= 1


def test_metrics_of_runs_and_samples() -> None:
    """The median is of runs, the quantiles are of all samples; ratios are of neighbours in time."""
    assert metric("s", [3.0, 1.0, 2.0]) == Metric(2.0, 1.0, 3.0, 2.0, 3.0, "s", 3)
    assert metric_of_samples("ms", [[1.0, 2.0, 90.0], [4.0]]) == Metric(3.0, 2.0, 4.0, 2.0, 90.0, "ms", 2)
    assert paired_ratio([1.0, 20.0, 3.0], [2.0, 20.0, 3.0]) == 1.0


def test_stretches_have_snapshots_in_turn() -> None:
    """In odd ones only, at the interval, one at least; each is compared with those before and after it."""
    at, due = 0.0, []
    for _ in range(9):
        at = Stretches(2.0, 0.5).next_at(at)
        due.append(at)
    assert due == [2.25, 2.75, 3.25, 3.75, 6.25, 6.75, 7.25, 7.75, 10.25]
    for stretches in (Stretches(18 / 31, 0.1), Stretches(18 / 31, 1.0)):  # which binary fractions are not
        at = 12_345.6
        for _ in range(1_000):
            before, at = at, stretches.next_at(at)
            assert at > before and at // stretches.seconds % 2 == 1
    assert [Stretches(2.0, 60.0).next_at(now) for now in (0.0, 3.0, 3.5)] == [3.0, 7.0, 7.0]
    assert shares_of_neighbours({4: 1, 5: 70, 6: 100, 7: 80, 8: 100, 9: 90, 10: 200, 11: 1}) == [0.8, 0.6]
    with pytest.raises(RuntimeError, match="too little was sent"):
        shares_of_neighbours({4: 1, 5: 70, 6: 100})


def test_a_wrong_result_fails() -> None:
    """A sum that is off by one is found, and named."""
    expected = sums_of_bursts([300, 17])
    assert sums_of_bursts([317]) != expected
    key = next(iter(expected))
    with pytest.raises(RuntimeError, match=f"sums: 1 keys are wrong: '{key}'"):
        require_equal("sums", {**expected, key: expected[key] + 1}, expected)
