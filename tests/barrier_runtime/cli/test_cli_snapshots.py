"""`cutline runs` and `cutline snapshots`: what they find in a store, tell apart, offer, and say of what is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cutline import FileSystemBackend
from cutline.barrier_runtime.cli import main, state_difference
from cutline.barrier_runtime.cli.state_difference import changes
from cutline.barrier_runtime.cli.stored import KEY_VARIABLE
from cutline.snapshot.plan.topology import Partitioning
from cutline.snapshot.stored.contribution import parts_of, record_of
from cutline.snapshot.stored.history import Base, Claim
from cutline.snapshot.stored.node_state import NodeState
from cutline.snapshot.stored.run_store import RunStore
from cutline.snapshot.stored.signed import SIGNING_KEY_BYTES_MIN, with_signing_key
from cutline.snapshot.stored.topology_record import record_of_topology
from tests.barrier_runtime.invoking import invoke
from tests.snapshot import sample

FIRST, SECOND, THIRD = range(sample.SNAPSHOT_ID, sample.SNAPSHOT_ID + 3)

#: The state of P in each of three snapshots.
STATES = (
    {"balance": 1, "seen": [1, 2], "note": "a\x1b[31m"},
    {"balance": 2, "seen": [1, 2, 3], "open": (1, "x")},
    {"balance": 2, "seen": [1, 2, 3], "open": (1, "x")},
)


class Account:
    """What only pickle can hold."""

    def __init__(self, balance: int) -> None:
        self.balance = balance


def body(value: object, now: float) -> Any:
    """A state part's body; the clock of a state has always gone on."""
    return NodeState(value, None, [], now, [], False, False, [], {}).encode(sample.CODEC)


def write(folder: Path, run: str, *states: object, key: bytes | None = None, **other: Any) -> None:
    """Store a run with one snapshot for each state of P; the others are the sample's."""
    store = RunStore(with_signing_key(FileSystemBackend(folder), key), run)
    for number in range(1, sample.INCARNATION + 1):
        store.take_claim(Claim(number, "owner", f"life {number}"))
    store.write_base(Base(sample.INCARNATION, None))
    for snapshot_id, state in enumerate(states, FIRST):
        taken = [replace(each, snapshot_id=snapshot_id) for each in sample.taken()]
        taken[0] = replace(taken[0], state=body(state, float(snapshot_id)))
        parts = [[part.inline() for part in parts_of(each, run, sample.INCARNATION)] for each in taken]
        records = [record_of(each, sample.INCARNATION, of) for each, of in zip(taken, parts, strict=True)]
        at = {"timestamp": 1.5 + snapshot_id - FIRST, "run": run, "pinned": snapshot_id == FIRST, **other}
        assert store.write_manifest(replace(sample.manifest(tuple(records), snapshot_id), **at))


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """A store with two runs: the bank with three snapshots, and another with one."""
    write(tmp_path / "store", "bank", *STATES)
    write(tmp_path / "store", "other", STATES[0])
    return tmp_path / "store"


@pytest.fixture
def started_afresh(stored: Path) -> Path:
    """The same store after a fresh start of the bank, which has published nothing yet."""
    store = RunStore(FileSystemBackend(stored), "bank")
    store.take_claim(Claim(sample.INCARNATION + 1, "owner", "fresh"))
    store.write_base(Base(sample.INCARNATION + 1, None))
    return stored


def test_a_pinned_snapshot_is_found_after_a_fresh_start(started_afresh: Path) -> None:
    """It is listed, shown and proved by its id; the newest of the history is none of before."""
    listed = json.loads(invoke("snapshots", "list", started_afresh, "--run", "bank", "--json").output)
    assert [(each["id"], each["pinned"]) for each in listed] == [(FIRST, True)]
    assert f"snapshot {FIRST}" in invoke("snapshots", "show", started_afresh, FIRST, "--run", "bank").output
    assert "1 snapshots that can be restored" in invoke("snapshots", "verify", started_afresh, "--run", "bank").output
    run = next(each for each in json.loads(invoke("runs", started_afresh, "--json").output) if each["run"] == "bank")
    assert (run["snapshots"], run["newest"], run["pinned"], run["final"]) == (1, None, 1, False)
    refused = invoke("snapshots", "show", started_afresh, "--run", "bank")
    assert refused.exit_code == 2 and str(FIRST) in refused.output


@pytest.fixture
def damaged(stored: Path) -> Path:
    """The same store with one bit of the bank's second manifest flipped."""
    path = next(stored.glob(f"bank/snapshots/*{SECOND}.manifest"))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    return stored


def as_json(*arguments: object, exit_code: int = 0) -> Any:
    """What a command prints with --json."""
    result = invoke(*arguments, "--json")
    assert result.exit_code == exit_code, result.output
    return json.loads(result.output)


# ---------------------------------------------------------------- what there is


def test_runs_are_listed(stored: Path) -> None:
    """One line for each run, and the same in JSON."""
    table = invoke("runs", stored).output
    assert "bank" in table and "other" in table
    bank, other = as_json("runs", stored)
    assert (bank["run"], bank["snapshots"], bank["newest"], bank["pinned"]) == ("bank", 3, THIRD, 1)
    assert (other["run"], other["problems"]) == ("other", [])
    listed = as_json("snapshots", "list", stored, "--run", "bank")
    assert bank["size_bytes"] == sum(each["size_bytes"] for each in listed)


def test_snapshots_are_listed(stored: Path) -> None:
    """The list has one line for each snapshot, and its JSON the same."""
    table = invoke("snapshots", "list", stored).output
    assert all(str(each) in table for each in (FIRST, SECOND, THIRD, "pinned"))
    records = as_json("snapshots", "list", stored)
    expected = [("bank", FIRST), ("bank", SECOND), ("bank", THIRD), ("other", FIRST)]
    assert [(each["run"], each["id"]) for each in records] == expected
    assert [each["in_flight"] for each in records] == [7] * 4


def test_a_snapshot_is_shown(stored: Path) -> None:
    """States and channels are shown without opening any of them; by default of the newest."""
    result = invoke("snapshots", "show", stored, "--run", "bank")
    assert "P[0] -> Q[0]" in result.output and str(THIRD) in result.output
    record = as_json("snapshots", "show", stored, FIRST, "--run", "bank")
    assert [each["subtask"] for each in record["subtasks"]] == ["P[0]", "Q[0]"]
    assert {(each["sent"], each["processed"], each["in_flight"]) for each in record["channels"]} == {
        (8, 2, 6),
        (2, 1, 1),
    }


def test_a_sound_store_verifies(stored: Path) -> None:
    """Verification of what was written finds nothing."""
    result = invoke("snapshots", "verify", stored)
    assert result.exit_code == 0
    assert "every byte is as it was written" in result.output


# ---------------------------------------------------------------- what changed


def test_states_are_compared_value_by_value(stored: Path) -> None:
    """What changed in a state is told by its place; a state whose clock only went on is equal."""
    record = as_json("snapshots", "diff", stored, "bank", FIRST, SECOND)
    p, q = record["subtasks"]
    assert (p["comparison"], q["comparison"]) == ("changed", "equal")
    assert [(each["path"], each["before"], each["after"]) for each in p["changes"]] == [
        ("state['balance']", "1", "2"),
        ("state['seen'][2]", None, "3"),
        ("state['note']", repr("a\x1b[31m"), None),
        ("state['open']", None, "(1, 'x')"),
    ]
    assert (record["graph"], record["seconds"]) == ([], 1.0)
    described = invoke("snapshots", "diff", stored, "bank", FIRST, SECOND).output
    assert (
        "state['balance']: 1 -> 2" in described and "1 of 2 states are equal" in described and "\x1b" not in described
    )
    assert [each["comparison"] for each in as_json("snapshots", "diff", stored, "bank", SECOND, THIRD)["subtasks"]] == [
        *("equal", "equal")
    ]


def test_what_is_not_opened_is_not_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pickled states are not opened, so that other bytes are no proof of change; large ones are compared as bytes,
    and very large ones only if that is asked for.
    """
    large = "x" * 300_000
    write(tmp_path, "pickles", Account(1), Account(2))
    write(tmp_path, "large", large, large + "y")
    for run, comparison, why in (("pickles", "unknown", "pickled"), ("large", "changed", "256.0 KiB")):
        p = as_json("snapshots", "diff", tmp_path, run, FIRST, SECOND)["subtasks"][0]
        assert p["comparison"] == comparison and why in p["why"]
    monkeypatch.setattr(state_difference, "READ_BYTES_MAX", len(large))
    for full, comparison in (((), "unknown"), (("--full",), "changed")):
        p = as_json("snapshots", "diff", tmp_path, "large", FIRST, SECOND, *full)["subtasks"][0]
        assert p["comparison"] == comparison


def test_another_graph_is_told(tmp_path: Path) -> None:
    """Nodes, edges and channels that came, went or changed; progress of edges by sums over their channels."""
    write(tmp_path, "bank", *STATES[:1])
    slow, fast = sample.TOPOLOGY.edges
    changed = replace(sample.TOPOLOGY, edges=(replace(slow, partitioning=Partitioning.BROADCAST), fast))
    store = RunStore(FileSystemBackend(tmp_path), "bank")
    store.write_manifest(replace(sample.manifest(snapshot_id=SECOND), topology=record_of_topology(changed)))
    record = as_json("snapshots", "diff", tmp_path, "bank", FIRST, SECOND)
    assert record["graph"] == ["edge P->Q: forward, unaligned -> broadcast, unaligned"]
    assert record["channels"][0]["after"] == {"sent": 8, "processed": 2, "in_flight": 6}
    described = invoke("snapshots", "diff", tmp_path, "bank", FIRST, SECOND, columns=80).output
    assert "P -> Q" in described and "6 -> 6" in described


@pytest.mark.parametrize(
    ("before", "after", "described"),
    [
        (1, 1, []),
        (float("nan"), float("nan"), []),
        (1, 1.0, ["|1|1.0"]),
        ([1, [2]], [1, [3], 4], ["[1][0]|2|3", "[2]|None|4"]),
        ({"a": None}, {"b": None}, ["['a']|None|None", "['b']|None|None"]),
        ((1,), [1], ["|(1,)|[1]"]),
    ],
)
def test_values_differ_in_places(before: object, after: object, described: list[str]) -> None:
    """Types count; dicts are compared by key and sequences by index; what is absent is no None."""
    assert [f"{path}|{old}|{new}" for path, old, new in changes(before, after)] == described


# ---------------------------------------------------------------- what is damaged


def test_damage_hides_nothing_else(damaged: Path) -> None:
    """The damaged snapshot is named, in words and as JSON, with exit code 1; all others are listed."""
    result = invoke("snapshots", "list", damaged)
    assert result.exit_code == 1
    assert f"snapshot {SECOND} of run bank cannot be read" in result.output
    assert str(FIRST) in result.output and str(THIRD) in result.output
    records = as_json("snapshots", "list", damaged, "--run", "bank", exit_code=1)
    assert [each["id"] for each in records if each["problem"] is None] == [FIRST, THIRD]
    assert "offset" in records[1]["problem"] and list(records[0]) == list(records[1])
    bank, other = as_json("runs", damaged, exit_code=1)
    assert (bank["snapshots"], len(bank["problems"]), other["problems"]) == (2, 1, [])


def test_damage_is_found_and_named(damaged: Path) -> None:
    """Verification says file and offset, in words and as JSON."""
    result = invoke("snapshots", "verify", damaged)
    assert result.exit_code == 1
    assert f"{SECOND}.manifest" in result.output and "offset" in result.output
    (found,) = as_json("snapshots", "verify", damaged, "--run", "bank", exit_code=1)
    assert f"{SECOND}.manifest" in found["problems"][0]


def test_a_damaged_claim_hides_one_run(stored: Path) -> None:
    """A run whose history cannot be read is named; the others are listed."""
    path = next(stored.glob("bank/bases/*"))
    path.write_bytes(path.read_bytes()[:-1])
    bank, other = as_json("runs", stored, exit_code=1)
    assert (bank["newest"], other["newest"]) == (None, FIRST)
    assert path.name in bank["problems"][0]


def test_an_error_says_what_can_be_read(
    damaged: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who asks for a damaged snapshot learns which ones are sound."""
    arguments = ["cutline", "snapshots", "show", str(damaged), str(SECOND), "--run", "bank"]
    monkeypatch.setattr("sys.argv", arguments)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    said = capsys.readouterr().err
    assert "error: " in said and f"{SECOND}.manifest" in said
    assert f"hint: of this run the snapshots {FIRST}, {THIRD} can be read" in said


# ---------------------------------------------------------------- what is not there


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("show", "store", "--run", "nobody"), ("no run 'nobody'; there are bank, other", "cutline runs")),
        (("list", "store", "--run", "bnak"), ("did you mean 'bank'?",)),
        (("verify", "store", "--run", "bnak"), ("did you mean 'bank'?",)),
        (("show", "store"), ("holds the runs bank, other", "--run")),
        (
            ("show", "store", "5", "--run", "bank"),
            (f"no snapshot 5; there are {FIRST}, {SECOND}, {THIRD}", "lists all"),
        ),
        (("diff", "store", "bank", str(FIRST), "8"), ("no snapshot 8",)),
        (("list", "stor"), ("there is no such folder", "store?")),
        (("list", "store/bank"), ("the folder of one run",)),
        (("list", "empty"), ("holds no run",)),
    ],
)
def test_what_is_not_stored_is_said(
    stored: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], said: tuple[str, ...]
) -> None:
    """A wrong path, run or id is refused with what there is, or what was meant."""
    monkeypatch.chdir(stored.parent)
    (stored.parent / "empty").mkdir()
    result = invoke("snapshots", *arguments)
    assert result.exit_code == 2
    assert all(each in result.output for each in said), result.output


def test_a_wrong_path_is_said_with_a_key_too(stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hint is of the folder, which lies behind the signatures."""
    monkeypatch.chdir(stored.parent)
    monkeypatch.setenv(KEY_VARIABLE, "k" * SIGNING_KEY_BYTES_MIN)
    result = invoke("snapshots", "list", "stor")
    assert result.exit_code == 2 and "store?" in result.output, result.output


# ---------------------------------------------------------------- completion


@pytest.fixture
def complete(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[str]]:
    """What bash is offered for the last word of a line."""

    def completed(line: str) -> list[str]:
        words = line.split(" ")
        monkeypatch.setenv("_CUTLINE_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
        return str(invoke().output).split()

    return completed


def test_the_shell_completes_runs_and_ids(stored: Path, complete: Callable[[str], list[str]]) -> None:
    """Names of runs, and ids, newest first, of the store that the line names, wherever in the line it stands."""
    ids = [str(each) for each in (THIRD, SECOND, FIRST)]
    assert complete(f"cutline snapshots diff {stored} ") == ["bank", "other"]
    assert complete(f"cutline snapshots diff {stored} bank ") == ids
    assert complete(f"cutline snapshots diff {stored} bank {FIRST} {ids[0]}") == ids[:1]
    assert complete(f"cutline snapshots show {stored} --run b") == ["bank"]
    assert complete(f"cutline snapshots show {stored} --run other ") == [str(FIRST)]
    assert complete(f"cutline run jobs:graph --backend {stored} --name o") == ["other"]
    assert complete(f"cutline run jobs:graph --backend {stored} --name bank --restore-from ") == ids
    assert complete(f"cutline snapshots pin {stored} --run b") == ["bank"]
    assert complete(f"cutline snapshots delete {stored} --run bank {FIRST} {ids[0]}") == ids[:1]
    assert complete(f"cutline restore jobs:graph --backend {stored} --name bank --from ") == ids
    assert complete(f"cutline fork jobs:graph --backend {stored} --name new --run other --from ") == [str(FIRST)]


def test_ids_of_a_signed_run_are_completed_with_its_key(tmp_path: Path, complete: Callable[[str], list[str]]) -> None:
    """The file of the key stands in the line, or the line offers no ids."""
    key = tmp_path / "key"
    key.write_bytes(b"k" * SIGNING_KEY_BYTES_MIN)
    write(tmp_path / "store", "bank", STATES[0], key=key.read_bytes())
    line = f"cutline snapshots show {tmp_path}/store --run bank"
    assert complete(f"{line} --signing-key-file {key} ") == [str(FIRST)]
    assert complete(f"{line} ") == []


@pytest.mark.parametrize("place", ["nowhere", "s3://bucket/store", "file://host/store", "http://127.0.0.1:4640"])
def test_completion_is_silent_where_nothing_is_found(place: str, complete: Callable[[str], list[str]]) -> None:
    """A wrong place, or one beyond this machine, offers nothing."""
    assert complete(f"cutline snapshots diff {place} ") == []
    assert complete(f"cutline snapshots diff {place} bank ") == []
