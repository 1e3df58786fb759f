"""The peers benchmark reads, compares and refuses rightly. No test installs Bytewax, because a registry may be away."""

from __future__ import annotations

import ast
import json
import pickle
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from benchmarks import peers
from benchmarks.bytewax_peer import installed, read_run, run_peer
from benchmarks.emitting_loop import loop
from benchmarks.emitting_nodes import SENDS, Send
from benchmarks.keyed_rows import BURST_MESSAGES
from benchmarks.peers import Case, Round
from benchmarks.run_size import RunSize
from tests.source_files import ROOT

SIZE = RunSize(seconds=0.2, repeats=1, quick=True)


def test_configurations() -> None:
    """Every way of sending is measured on one core and on two. A quick run has both numbers of cores."""
    cases = peers.configurations(RunSize())
    found = [(each["parallelism"], each["send"]) for each in cases.values()]
    assert found == [(parallelism, send) for parallelism in (1, 2) for send in ("one", "list", "hook")]
    assert {case.parallelism for case in peers.configurations(SIZE)} == {1, 2}


def test_one_core_is_compared_with_one_core() -> None:
    """The ratio is the median over the rounds, each of which has its own rate of Bytewax."""
    configuration = peers.configurations(RunSize())[Case(1, "list")]
    rounds = [Round(ours, 1000.0, {1: peer}, 50.0) for ours, peer in ((400.0, 100.0), (900.0, 300.0), (400.0, 200.0))]
    result = peers.result_of(configuration, rounds)
    assert result.ratios == {"bytewax": 3.0, "bytewax_one_by_one": 8.0, "bare_loop": 0.4}
    metrics = {"records_per_s", "peer_records_per_s", "peer_one_by_one_records_per_s", "loop_records_per_s"}
    assert result.metrics.keys() == metrics
    assert result.metrics["records_per_s"].median == 400.0
    assert result.metrics["peer_records_per_s"].median == 200.0


def test_two_cores_are_compared_with_the_better() -> None:
    """Each round counts the faster of one and two cores of Bytewax, and the result states both."""
    configuration = peers.configurations(RunSize())[Case(2, "one")]
    rounds = [
        Round(600.0, 1200.0, {1: 100.0, 2: 200.0}, 60.0),
        Round(600.0, 1200.0, {1: 300.0, 2: 100.0}, 60.0),
        Round(600.0, 1200.0, {1: 100.0, 2: 150.0}, 60.0),
    ]
    result = peers.result_of(configuration, rounds)
    assert result.ratios == {"bytewax": 3.0, "bytewax_one_by_one": 10.0, "bare_loop": 0.5}
    assert result.metrics["peer_records_per_s"].median == 200.0
    assert result.metrics["peer_on_1_records_per_s"].median == 100.0
    assert result.metrics["peer_on_2_records_per_s"].median == 150.0


@pytest.mark.parametrize("send", SENDS)
def test_loop(send: Send) -> None:
    """The loop compares its own sums and counts whole bursts."""
    began_at, ended_at, records = loop(send, 0.02)
    assert ended_at >= began_at + 0.02
    assert records > 0 and records % BURST_MESSAGES == 0


def write_store(folder: Path, index: int, states: list[tuple[str, str, int, object]], frontier: int) -> None:
    """Write one partition of a recovery store, with the columns of Bytewax's own that are read."""
    (folder / "store").mkdir(exist_ok=True)
    with closing(sqlite3.connect(folder / "store" / f"part-{index}.sqlite3")) as store, store:
        store.execute("CREATE TABLE snaps (step_id, state_key, snap_epoch, ser_change)")
        store.execute("CREATE TABLE fronts (worker_index, worker_frontier)")
        rows = [(step, key, epoch, pickle.dumps(state)) for step, key, epoch, state in states]
        store.executemany("INSERT INTO snaps VALUES (?, ?, ?, ?)", rows)
        store.execute("INSERT INTO fronts VALUES (?, ?)", (index, frontier))


def test_the_newest_states_of_all_partitions_are_read(tmp_path: Path) -> None:
    """Time counts from the first source to the last sink. A key's newest sum wins, in whatever order rows lie."""
    first = [("peer.sums", "a", 3, 30), ("peer.sums", "a", 2, 20), ("peer.records", "part-0", 3, (100.0, 7))]
    write_store(tmp_path, 0, first, frontier=4)
    write_store(tmp_path, 1, [("peer.sums", "b", 1, 5), ("peer.records", "part-1", 3, (99.5, 3))], frontier=4)
    (tmp_path / "results-0.json").write_text(json.dumps([103.0, 2000]))
    (tmp_path / "results-1.json").write_text(json.dumps([102.0, 560]))
    found = read_run(tmp_path)
    assert (found.seconds, sorted(found.rounds), found.results) == (3.5, [3, 7], 2560)
    assert (found.sums, found.snapshots) == ({"a": 30, "b": 5}, 3)
    assert found.records_per_second == 10 * BURST_MESSAGES / 3.5


def test_a_run_without_snapshots_is_refused(tmp_path: Path) -> None:
    """A run of three seconds whose only snapshot is that of its end did not do the work that Cutline did."""
    write_store(tmp_path, 0, [("peer.records", "part-0", 1, (100.0, 7))], frontier=2)
    (tmp_path / "results-0.json").write_text(json.dumps([103.0, 7 * BURST_MESSAGES]))
    with pytest.raises(RuntimeError, match=r"bytewax stored 1 snapshots in 3\.0 s"):
        read_run(tmp_path)


def test_a_failed_process_shows_its_error(tmp_path: Path) -> None:
    """An interpreter without Bytewax fails at its first step, and its own words are in the error."""
    with pytest.raises(RuntimeError, match=r"bytewax ended with exit code 1: .*No module named"):
        run_peer(Path(sys.executable), tmp_path, 1, 0.1)


def test_an_absent_registry_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a registry the error says what is missing, and the unfinished environment does not count as made."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    environment = tmp_path / "environment"
    with pytest.raises(RuntimeError, match=r"bytewax 0\.21\.1 cannot be installed.* registry (.|\n)*bytewax==0"):
        installed(environment)
    assert environment.exists() and not (environment / "installed").exists()


def test_the_dataflow_needs_bytewax_only() -> None:
    """Its environment has neither Cutline nor this one's packages."""
    tree = ast.parse((ROOT / "benchmarks" / "bytewax_flow.py").read_text())
    modules = {each.module or "" for each in ast.walk(tree) if isinstance(each, ast.ImportFrom)}
    modules |= {name.name for each in ast.walk(tree) if isinstance(each, ast.Import) for name in each.names}
    packages = {module.partition(".")[0] for module in modules}
    assert "bytewax" in packages
    assert packages - {"bytewax"} <= sys.stdlib_module_names
