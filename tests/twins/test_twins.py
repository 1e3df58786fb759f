"""A refactoring changes no digest: equal seeds take the steps and store the bytes that they did.

The stored digests have counts of what the runs had, so that no label is void.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from cutline import Graph
from cutline.testing import ListSink, ListSource, Simulator
from tests.twins import digest as digest_module
from tests.twins.__main__ import main
from tests.twins.digest import WatchedFiles, differences, measure, read_digests, write_digests
from tests.twins.runs import RUNS, Counts, TwinRun, measured

STORED = read_digests()


#: Seeds of each label: those of the fast tests, and the others.
_FIRST = [(label, seed) for label, run in RUNS.items() for seed in range(run.first_seeds)]
_MORE = [(label, seed) for label, run in RUNS.items() for seed in range(run.first_seeds, run.seeds)]


def _check(label: str, seed: int) -> None:
    """Demand that a seed has its stored digest."""
    found = differences(STORED.get(label, {}).get(seed), measured(label, seed))
    hint = (
        "A refactoring changes no digest. Who changes a digest on purpose runs `python -m tests.twins --write`, "
        "and says why in the commit."
    )
    assert not found, "\n".join([f"{label}, seed {seed}:", *found, hint])


@pytest.mark.parametrize(("label", "seed"), _FIRST)
def test_first_seeds(label: str, seed: int) -> None:
    """The first seeds of each label take the steps and store the bytes that they did."""
    _check(label, seed)


@pytest.mark.parametrize(("label", "seed"), _MORE)
def test_more_seeds(label: str, seed: int) -> None:
    """The other seeds of each label do, too. They are for the full run."""
    _check(label, seed)


@pytest.mark.parametrize("label", RUNS)
def test_no_label_is_void(label: str) -> None:
    """Each seed is stored, none raises, and what a label is for occurred. Other tests compare the stored counts."""
    digests = STORED.get(label, {})
    assert list(digests) == list(range(RUNS[label].seeds))
    counts: Counter[str] = Counter()
    for digest in digests.values():
        counts.update(digest.counts)
    assert not counts["raised"]
    assert [name for name in RUNS[label].shows if not counts[name]] == []
    assert len({(digest.schedule, str(digest.counts)) for digest in digests.values()}) > len(digests) / 2


def test_each_stored_label_has_a_run() -> None:
    """A digest that nothing computes proves nothing."""
    assert list(STORED) == sorted(RUNS)


# ---------------------------------------------------------------- the digest itself


def _small(seed: int, steps: Sequence[int] = (120, 10_000)) -> Counts:
    """Run simulations on one store, one after another."""
    files: dict[str, bytes] = {}
    for most in steps:
        graph = Graph("small").add("source", ListSource(*range(8))).add("out", ListSink()).connect("source", "out")
        Simulator(graph, seed, files=files, snapshotInterval=0.1, retainedSnapshots=1, maxSteps=most).run()
    return {"runs": len(steps)}


def test_a_digest_is_of_the_seed_alone() -> None:
    """Equal seeds have equal digests. Other seeds differ in each part."""
    one, again, other = (measure(_small, seed, ["runs"]) for seed in (1, 1, 2))
    assert one.digest == again.digest and differences(one.digest, again) == []
    assert one.digest.counts["runs"] == 2 and one.digest.counts["snapshots"] > 0 and one.digest.counts["deletes"] > 0
    assert one.digest.schedule != other.digest.schedule
    assert one.digest.files != other.digest.files
    assert one.digest.output != other.digest.output


def test_runs_that_share_a_store_are_digested_together() -> None:
    """The second run restores what the first one has put."""
    alone, both = measure(partial(_small, steps=[120]), 1), measure(_small, 1)
    assert both.steps[: len(alone.steps)] == alone.steps and len(both.steps) > len(alone.steps)
    assert both.changes[: len(alone.changes)] == alone.changes and len(both.changes) > len(alone.changes)
    assert both.digest.counts["restores"] > alone.digest.counts["restores"]


def test_a_module_may_move(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stored bytes have the names of classes, and not those of modules."""
    before = measure(_small, 1)
    monkeypatch.setattr(ListSink, "__module__", "elsewhere")
    assert measure(_small, 1).digest == before.digest


def test_one_other_byte_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The difference names the file, and says that nothing else differs."""
    before = measure(_small, 1)
    paths = [str(change) for change in before.changes]
    manifest = next(place for place, path in enumerate(paths) if path.endswith(".manifest"))
    put = WatchedFiles.__setitem__

    def putting(self: WatchedFiles, path: str, data: bytes) -> None:
        put(self, path, data)
        last = before.changes[manifest]
        if path == last.path:
            self.changes[-1] = replace(last, digest=last.digest[::-1])

    monkeypatch.setattr(WatchedFiles, "__setitem__", putting)
    [text] = differences(before.digest, measure(_small, 1))
    assert text == f"the stored files differ, at the latest in change number {manifest}: {paths[manifest]}"


def test_another_sequence_of_steps_is_found() -> None:
    """The difference names the steps near the first other step."""
    measured_run = measure(_small, 1)
    digest = measured_run.digest
    trail = "".join("0" if each != "0" else "1" for each in digest.schedule_trail)
    [text] = differences(
        replace(digest, schedule="0" * 12, schedule_trail=digest.schedule_trail[0] + trail[1:]), measured_run
    )
    assert text.startswith(
        f"the schedule differs, at the latest in the steps from number 32 on, which are: {measured_run.steps[32]}"
    )
    shorter = replace(digest, schedule="0" * 12, schedule_trail=digest.schedule_trail + "0")
    [text] = differences(shorter, measured_run)
    assert text.endswith("which it no longer has")


def test_an_exception_is_a_result() -> None:
    """Its type and text are digested, and its run is counted."""

    def fails(text: str, seed: int) -> Counts:
        _small(seed)
        raise ValueError(text)

    one, other = (measure(partial(fails, text), 1) for text in ("one", "other"))
    assert one.digest.counts["raised"] == 1 and one.digest.schedule == measure(_small, 1).digest.schedule
    assert differences(one.digest, other) == [
        "the output differs: outcome, reason, committed rows, totals or exception"
    ]
    [output, count] = differences(measure(_small, 1).digest, one)
    assert output.startswith("the output differs") and count == "raised: 1, not 0"
    assert differences(None, one) == ["no digest is stored"]


def test_stored_digests_are_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Digests are stored one a line, and come back as they were."""
    monkeypatch.setattr(digest_module, "STORED", tmp_path / "digests.json")
    assert read_digests() == {}
    digests = {label: {seed: measure(_small, seed).digest for seed in (0, 1)} for label in ("one, label", "other")}
    write_digests(digests)
    assert read_digests() == digests
    lines = (tmp_path / "digests.json").read_text().splitlines()
    assert len([line for line in lines if digests["other"][1].schedule in line]) == 2


def test_the_command_says_what_differs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 1 where something differs, 0 where nothing does. `--write` leaves other labels alone."""
    monkeypatch.setattr(digest_module, "STORED", tmp_path / "digests.json")
    monkeypatch.setitem(RUNS, "small", TwinRun(_small, seeds=2))
    monkeypatch.setitem(RUNS, "another", TwinRun(_small, seeds=1))
    assert main(["--only", "small"]) == 1
    assert "small: 2 of 2 seeds differ\n  seed 0:\n    no digest is stored\n" in capsys.readouterr().out
    assert main(["--only", "small", "--write"]) == 0
    assert main(["--only", "another", "--write"]) == 0
    assert {label: len(seeds) for label, seeds in read_digests().items()} == {"another": 1, "small": 2}
    capsys.readouterr()
    assert main(["--only", "small", "--only", "another"]) == 0
    assert "0 digests differ" in capsys.readouterr().out
    monkeypatch.setitem(RUNS, "small", TwinRun(lambda seed: _small(seed + 1), seeds=2))
    assert main(["--only", "small"]) == 1
    assert "  seed 0:\n    the schedule differs" in capsys.readouterr().out
