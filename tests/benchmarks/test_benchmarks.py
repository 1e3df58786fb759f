"""Each benchmark works: a quick run gives results of the promised form, and the results say that they are quick.

Benchmarks check themselves what they compute. Tests do not judge how fast anything was.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from types import ModuleType
from typing import Any

import pytest

from benchmarks import (
    keyed_batches,
    keyed_messages,
    keyed_state,
    message_floor,
    modes,
    page,
    peers,
    recovery,
    scale,
    simulation,
    snapshot,
    store_outage,
)
from benchmarks.interleaved_windows import shares_of_neighbours
from benchmarks.keyed_rows import require_equal, sums_of_bursts
from benchmarks.live import Live
from benchmarks.result import Metric, Result, metric, metric_of_samples, paired_ratio, table_of
from benchmarks.run_size import RunSize, select
from benchmarks.snapshot_trigger_source import InterleavedWindows
from tests.source_files import ROOT

SIZE = RunSize(seconds=0.2, repeats=1, quick=True)
#: Seconds that a benchmark may take on a crowded machine.
_DEADLINE_S = 110.0

_FIELDS = ("benchmark", "configuration", "metrics", "ratios", "machine", "versions")
_METRIC = ("median", "min", "max", "p50", "p99", "unit", "runs")


def assert_schema(line: str, seconds: float = SIZE.seconds) -> dict[str, Any]:
    """Check that a JSON line has exactly the promised fields, with finite numbers in them."""
    found: dict[str, Any] = json.loads(line)
    assert tuple(found) == _FIELDS
    for name, figure in found["metrics"].items():
        assert tuple(figure) == _METRIC, name
        assert figure["min"] <= figure["median"] <= figure["max"] and figure["p50"] <= figure["p99"], name
        assert figure["runs"] >= 1 and isinstance(figure["unit"], str), name
    assert all(math.isfinite(ratio) and ratio >= 0 for ratio in found["ratios"].values())
    assert found["configuration"]["quick"] is True and found["configuration"]["seconds"] == seconds
    assert found["machine"]["cores"] >= 1 and found["versions"]["cutline"]
    return found


def _no_place() -> Live:
    raise AssertionError("this needs neither Spark nor Ray")


def _measured(benchmark: ModuleType, live: Live | None = None) -> list[dict[str, Any]]:
    """Measure all cases of a quick run. Check that each configuration announced has one result, in this order."""
    cases = benchmark.configurations(SIZE)
    results: list[Result] = list(benchmark.measure(cases, SIZE, _no_place if live is None else lambda: live))
    assert [result.configuration for result in results] == list(cases.values())
    assert table_of(results).row_count == len(results)
    return [assert_schema(result.json()) for result in results]


def test_command_line_and_channel() -> None:
    """``python -m benchmarks`` prints only JSON lines on standard output. A channel needs no Spark."""
    command = [sys.executable, "-m", "benchmarks", "channel", "--json", "--quick", "--seconds", "0.1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=_DEADLINE_S)
    assert done.returncode == 0, done.stderr
    found = [assert_schema(line, 0.1) for line in done.stdout.splitlines()]
    kinds = [(each["configuration"]["payload"], each["configuration"]["rows_per_batch"]) for each in found]
    assert kinds == [("messages", None), ("arrow", 1024), ("arrow", 8192), ("arrow", 65_536), ("messages", None)]
    assert all("bare_socket" in each["ratios"] for each in found)
    assert {"messages_per_s", "bytes_per_s"} <= found[0]["metrics"].keys()
    assert {"rows_per_s", "bytes_per_s"} <= found[1]["metrics"].keys()
    assert "round_trip_us" in found[-1]["metrics"]
    assert "channel, round 1 of 1: payload=arrow rows_per_batch=8192 pattern=stream" in done.stderr


def test_simulation() -> None:
    """The simulator's speed, and a snapshot of a large graph, which takes one marker a channel."""
    ring, small = _measured(simulation)
    assert {"events_per_s", "steps_per_s"} == ring["metrics"].keys()
    channels, markers = small["configuration"]["channels"], small["metrics"]["markers"]["median"]
    assert (channels, markers) == (1_000, 1_000 * small["metrics"]["snapshots"]["median"])


def test_message_floor() -> None:
    """The steps of a message, each alone, and their sum."""
    [found] = _measured(message_floor)
    steps = ("share", "encode", "decode", "handle")
    parts = sum(found["metrics"][f"{name}_ns"]["median"] for name in steps)
    assert found["metrics"]["sum_ns"]["median"] == pytest.approx(parts)


def _of_keyed_state(**conditions: str) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Results of a quick run of keyed-state, by case and access."""
    cases = select({"": keyed_state.configurations(SIZE)}, [f"{name}={value}" for name, value in conditions.items()])
    found = [assert_schema(result.json()) for result in keyed_state.measure(cases[""], SIZE, _no_place)]
    return {(each["configuration"]["case"], each["configuration"]["access"]): each for each in found}


def test_keyed_state_on_the_heap() -> None:
    """Rates beside a dict, cuts and restores, of rows and of sums."""
    found = _of_keyed_state(tier="heap")
    assert found["rows", "key"]["ratios"].keys() == {"bare_dict"}
    assert {"pause_ms", "loop_stop_ms", "restored_rows_per_s"} <= found["rows", None]["metrics"].keys()
    assert found["rows", None]["ratios"].keys() == {"bytes_changed", "bytes_changed_300", "bare_dict", "bare_write"}
    assert "updates_per_s" in found["columns", "bulk"]["metrics"]
    assert 1.0 < found["five_times", None]["ratios"]["bytes_changed"] < 2.0


@pytest.mark.parametrize("case", ["rows", "beyond_cache"])
def test_keyed_state_on_rocksdb(case: str) -> None:
    """Rates beside a plain RocksDB."""
    found = _of_keyed_state(tier="rocksdb", case=case)
    assert all(each["ratios"].keys() == {"bare_rocksdb"} for (_, access), each in found.items() if access is not None)
    assert all("bytes_changed_300" in each["ratios"] for (_, access), each in found.items() if access is None)


def test_keyed_state_larger_than_memory() -> None:
    """A process is killed while it stores snapshots, and the next one finds every row of the last snapshot."""
    [found] = _of_keyed_state(case="larger_than_memory").values()
    assert {"pause_ms", "updates_per_s", "restored_rows_per_s", "memory_bytes"} <= found["metrics"].keys()


@pytest.mark.spark
@pytest.mark.ray
def test_keyed_messages(live: Live) -> None:
    """Messages with snapshots off and often, beside a plain loop, and messages sent one by one."""
    off, often, single = _measured(keyed_messages, live)
    assert [each["configuration"]["snapshot_interval_s"] for each in (off, often, single)] == [None, 0.1, None]
    assert [each["configuration"]["sent"] for each in (off, often, single)] == ["in lists", "in lists", "one by one"]
    assert all("records_per_s" in each["metrics"] for each in (off, often, single))
    assert off["ratios"].keys() == {"bare_loop"}
    assert often["ratios"].keys() == {"bare_loop", "without_snapshots"}
    assert single["ratios"].keys() == {"bare_loop", "in_lists"}


@pytest.mark.spark
@pytest.mark.ray
def test_peers_on_cutline(live: Live) -> None:
    """Each way of sending computes the sums of a plain loop, and sends one result a record. No Bytewax runs."""
    for case in (peers.Case(1, "one"), peers.Case(1, "list"), peers.Case(2, "hook")):
        timed = peers.run_case(live, case, SIZE.seconds)
        assert len(timed.rounds) == case.parallelism and peers.rate_of(timed) > 0


@pytest.mark.spark
@pytest.mark.ray
def test_keyed_batches(live: Live) -> None:
    """Batches of two sizes in one and in two steps, beside DuckDB and Polars, and the cost of snapshots in one run."""
    two_steps, one_step = _measured(keyed_batches, live)
    assert [each["configuration"]["rows_per_batch"] for each in (two_steps, one_step)] == [65_536, 8_192]
    assert two_steps["ratios"].keys() == {"duckdb", "polars", "without_snapshots"}
    assert one_step["ratios"].keys() == {"duckdb", "polars"}
    assert all("rows_per_s" in each["metrics"] for each in (two_steps, one_step))


@pytest.mark.spark
@pytest.mark.ray
def test_snapshot(live: Live) -> None:
    """Small states idle and under back-pressure, and a state stored in its own file, beside a plain write."""
    found = _measured(snapshot, live)
    assert [each["configuration"]["load"] for each in found] == ["idle", "back_pressure", "load"]
    assert all({"duration_ms", "pause_ms"} <= each["metrics"].keys() for each in found)
    assert "bare_write" in found[-1]["ratios"] and "bytes_per_s" in found[-1]["metrics"]


@pytest.mark.spark
@pytest.mark.ray
def test_recovery(live: Live) -> None:
    """Each fault, with the steps of its recovery, which add up to the seconds of the recovery."""
    found = _measured(recovery, live)
    faults = [each["configuration"]["fault"] for each in found]
    assert faults == ["exception", "worker_kill", "task_kill", "coordinator_kill"]
    for each in found[:-1]:
        steps = sum(each["metrics"][f"{step}_s"]["median"] for step in recovery.STEPS)
        assert steps == pytest.approx(each["metrics"]["seconds"]["median"], abs=0.05)


@pytest.mark.spark
@pytest.mark.ray
def test_modes(live: Live) -> None:
    """Each mode counts words, is killed, and resumes, beside markers."""
    others = _modes_beside_markers(live, "store=null")
    names = [each["configuration"]["mode"] for each in others]
    assert names == ["inputLogging", "deltas", "persistentState", "channelLogs"]
    assert all("markers" in each["ratios"] for each in others)
    assert "replayed_records_per_s" in others[0]["metrics"] and "full_replay" in others[-1]["ratios"]


@pytest.mark.spark
@pytest.mark.ray
def test_modes_with_a_store(live: Live) -> None:
    """Both clocks count words in PostgreSQL, are killed, and resume, beside markers."""
    others = _modes_beside_markers(live, "store=postgresql")
    assert [each["configuration"]["mode"] for each in others] == ["monoidClocks", "monoidClocks-negotiated"]
    assert all("markers" in each["ratios"] and "store_operations_per_s" in each["metrics"] for each in others)


def _modes_beside_markers(live: Live, store: str) -> list[dict[str, Any]]:
    cases = select({"": modes.configurations(SIZE)}, ["job=wordcount", store])[""]
    markers, *others = [assert_schema(result.json()) for result in modes.measure(cases, SIZE, lambda: live)]
    assert markers["configuration"]["mode"] == "markers" and not markers["ratios"]
    return others


@pytest.mark.spark
@pytest.mark.ray
def test_store_outage(live: Live) -> None:
    """Input goes on without its store, and no key is written twice for a snapshot."""
    cases = select({"": store_outage.configurations(SIZE)}, ["mode=monoidClocks", "failure=stopped"])[""]
    [found] = [assert_schema(result.json()) for result in store_outage.measure(cases, SIZE, lambda: live)]
    assert found["metrics"]["records_per_s_meanwhile"]["median"] > 0
    assert 0 < found["metrics"]["writes_per_key_and_snapshot"]["max"] <= 1


@pytest.mark.spark
@pytest.mark.ray
def test_scale(live: Live) -> None:
    """As many markers as channels, which are the square of half of the subtasks."""
    found = _measured(scale, live)
    for each in found:
        channels = (each["configuration"]["subtasks"] // 2) ** 2
        assert each["configuration"]["channels"] == channels == each["metrics"]["markers"]["median"]
    assert "duration_per_channel" in found[-1]["ratios"]


@pytest.mark.spark
@pytest.mark.ray
def test_page(live: Live) -> None:
    """64 subtasks without a page, and with a page that is read."""
    off, read = _measured(page, live)
    assert (off["configuration"]["viewer"], read["configuration"]["viewer"]) == ("off", "stream")
    assert "without_page" in read["ratios"] and read["metrics"]["documents"]["median"] >= 1


def test_metrics_of_runs_and_samples() -> None:
    """Medians are of runs, quantiles are of all samples, and ratios are of neighbours in time."""
    assert metric("s", [3.0, 1.0, 2.0]) == Metric(2.0, 1.0, 3.0, 2.0, 3.0, "s", 3)
    assert metric_of_samples("ms", [[1.0, 2.0, 90.0], [4.0]]) == Metric(3.0, 2.0, 4.0, 2.0, 90.0, "ms", 2)
    assert paired_ratio([1.0, 20.0, 3.0], [2.0, 20.0, 3.0]) == 1.0


def test_odd_windows_have_snapshots() -> None:
    """Odd windows have snapshots at the interval, at least one each. Odd windows are compared with even ones."""
    at, due = 0.0, []
    for _ in range(9):
        at = InterleavedWindows(2.0, 0.5).next_at(at)
        due.append(at)
    assert due == [2.25, 2.75, 3.25, 3.75, 6.25, 6.75, 7.25, 7.75, 10.25]
    for windows in (InterleavedWindows(7.5 / 17, 0.1), InterleavedWindows(7.5 / 17, 1.0)):  # no binary fractions
        at = 12_345.6
        for _ in range(1_000):
            before, at = at, windows.next_at(at)
            assert at > before and at // windows.seconds % 2 == 1
    assert [InterleavedWindows(2.0, 60.0).next_at(now) for now in (0.0, 3.0, 3.5)] == [3.0, 7.0, 7.0]
    assert shares_of_neighbours({4: 1, 5: 70, 6: 100, 7: 80, 8: 100, 9: 90, 10: 200, 11: 1}) == [0.8, 0.6]
    with pytest.raises(RuntimeError, match="too little was sent"):
        shares_of_neighbours({4: 1, 5: 70, 6: 100})


def test_a_wrong_result_fails() -> None:
    """A sum that is off by one is found, and its key is named."""
    expected = sums_of_bursts([300, 17])
    assert sums_of_bursts([317]) != expected
    key = next(iter(expected))
    with pytest.raises(RuntimeError, match=f"sums: 1 keys are wrong: '{key}'"):
        require_equal("sums", {**expected, key: expected[key] + 1}, expected)
