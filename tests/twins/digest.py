"""Digests of a simulated run: its schedule, what it has stored, and what it has put out.

The simulator repeats a seed byte for byte, in any process, with the same versions of Python and of the libraries. So
two versions of the code that give equal digests take equal steps and store equal bytes.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import pytest

from cutline.snapshot.plan.compiled_graph import CompiledGraph, build
from cutline.snapshot.testing import simulator
from cutline.snapshot.testing.history import History
from cutline.snapshot.testing.simulation.totals import SimulatedStore
from cutline.snapshot.testing.simulator import Simulator
from cutline.snapshot.testing.steps import Fault
from cutline.snapshot.trace_events import Kind

#: Where the digests are stored, by label and seed.
STORED: Final = Path(__file__).with_name("digests.json")

#: Counts of each run. A run may name more.
COUNTS: Final = ("steps", "events", "faults", "puts", "deletes", "snapshots", "restores", "aborted", "raised")

#: Hex digits of a digest, and steps of a schedule that share one digit of its trail.
_DIGITS, _STEPS = 12, 32

#: Digests of the runs of each label, by seed.
Digests = dict[str, dict[int, "Digest"]]


@dataclass(frozen=True, slots=True)
class Digest:
    """A digest of one run."""

    schedule: str  #: hash of all steps, in their order
    files: str  #: hash of all puts and deletes, in their order
    output: str  #: hash of the outcomes, committed rows and totals, or of the exception
    counts: dict[str, int]
    schedule_trail: str  #: a digit for the schedule up to each 32nd step, which shows where two schedules part
    files_trail: str  #: a digit for each put or delete


@dataclass(frozen=True, slots=True)
class FileChange:
    """One put or delete of a file."""

    verb: str
    path: str
    digest: str

    def __str__(self) -> str:
        return f"{self.verb} {self.path}"


class WatchedFiles(MutableMapping[str, bytes]):
    """Files of a simulated store. Each put and delete is noted.

    Parameters
    ----------
    files : dict
        ``{path: bytes}``, read and written.
    changes : list of FileChange
        Where changes are noted.
    """

    def __init__(self, files: dict[str, bytes], changes: list[FileChange]) -> None:
        self._files = files
        self.changes = changes

    def __getitem__(self, path: str) -> bytes:
        return self._files[path]

    def __setitem__(self, path: str, data: bytes) -> None:
        self.changes.append(FileChange("put", path, _hashed(data)))
        self._files[path] = data

    def __delitem__(self, path: str) -> None:
        del self._files[path]
        self.changes.append(FileChange("delete", path, ""))

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


@dataclass(slots=True)
class Watch:
    """All simulations of one run, and all changes of their stores."""

    simulators: list[Simulator] = field(default_factory=list)
    changes: list[FileChange] = field(default_factory=list)
    _stores: list[tuple[dict[str, bytes], WatchedFiles]] = field(default_factory=list)

    def files_of(self, files: dict[str, bytes]) -> WatchedFiles:
        """Return the watched files of a store. Simulations that share a store share its watched files."""
        for store, watched in self._stores:
            if store is files:
                return watched
        watched = WatchedFiles(files, self.changes)
        self._stores.append((files, watched))
        return watched

    @property
    def histories(self) -> list[History]:
        """Histories of the simulations, in the order in which these were made."""
        return [each.history for each in self.simulators]

    @property
    def steps(self) -> list[str]:
        """Steps of all simulations."""
        return [f"{n} {step!r}" for n, history in enumerate(self.histories) for step in history.schedule]

    def counts(self) -> Counter[str]:
        """Return what all simulations had: the counts of each run, situations, and lists in published snapshots."""
        found: Counter[str] = Counter()
        for history in self.histories:
            found.update(history.seen)
            found["steps"] += len(history.schedule)
            found["events"] += len(history.events)
            found["faults"] += sum(isinstance(step, Fault) for step in history.schedule)
            found["snapshots"] += len(history.snapshots) - len(history.adopted)
            found["restores"] += _restores(history)
            found["aborted"] += sum(event.kind is Kind.ABORTED for event in history.events)
            found.update(_lists(history))
        verbs = Counter(change.verb for change in self.changes)
        return found + Counter({"puts": verbs["put"], "deletes": verbs["delete"]})


def _restores(history: History) -> int:
    """Return the number of incarnations that began with a state of a snapshot, or with repeated steps if more did."""
    return max(sum(origin is not None for origin in history.origins.values()), history.seen["steps were repeated"])


def _lists(history: History) -> Iterator[str]:
    """Yield the name of each list that a record of a published snapshot has, and one for each composed cut."""
    yield from ("a composed cut" for snapshot in history.snapshots if snapshot.manifest.recovery is not None)
    for record in (record for snapshot in history.snapshots for record in snapshot.manifest.records):
        lists = {"rows": record.rows, "own": record.own, "steps": record.steps, "waves": record.waves}
        others = {"a base": record.base, "a version": record.version}
        yield from (f"a record with {name}" for name, found in (lists | others).items() if found)


def _without_modules(compiled: CompiledGraph) -> CompiledGraph:
    """Return a graph whose nodes have no names of modules, because manifests show these to readers."""
    topology = compiled.topology
    nodes = tuple(replace(node, class_name=node.class_name.rpartition(".")[2]) for node in topology.nodes)
    return replace(compiled, topology=replace(topology, nodes=nodes))


@contextmanager
def watching() -> Iterator[Watch]:
    """Watch every simulation that is made. What it stores names no module, so that a module may move."""
    watch = Watch()
    make = Simulator.__init__

    def making(self: Simulator, *arguments: Any, files: dict[str, bytes] | None = None, **settings: Any) -> None:
        make(self, *arguments, files=watch.files_of({} if files is None else files), **settings)  # type: ignore[arg-type]
        watch.simulators.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Simulator, "__init__", making)
        patch.setattr(simulator, "build", lambda *how: _without_modules(build(*how)))
        yield watch


@dataclass(frozen=True, slots=True)
class Measured:
    """The digest of a run, with the steps and changes of which it was made."""

    digest: Digest
    steps: list[str]
    changes: list[FileChange]


def measure(run: Callable[[int], Mapping[str, int]], seed: int, shows: Sequence[str] = ()) -> Measured:
    """Run a seed and digest it. An exception is a result, too.

    Parameters
    ----------
    run : callable
        Runs a seed. Returns counts of its own.
    seed : int
    shows : sequence of str
        Names of counts that the digest has beside `COUNTS`.
    """
    own: Mapping[str, int] = {}
    error = ""
    with watching() as watch:
        try:
            own = run(seed)
        except Exception as raised:  # noqa: BLE001  # whatever it is, it is the result of the seed
            error = f"{type(raised).__name__}: {raised}"
    counts, steps = watch.counts() | Counter(own) | Counter(raised=bool(error)), watch.steps
    changes = [f"{change} {change.digest}" for change in watch.changes]
    digest = Digest(
        schedule=_hashed_all(steps),
        files=_hashed_all(changes),
        output=_hashed_all([*(line for history in watch.histories for line in _output(history)), error]),
        counts={name: counts[name] for name in dict.fromkeys((*COUNTS, *shows))},
        schedule_trail=_trail(steps),
        files_trail="".join(_hashed(change.encode())[0] for change in changes),
    )
    return Measured(digest, steps, watch.changes)


def _output(history: History) -> Iterator[str]:
    """Yield what a simulation has put out: outcome and reason, committed rows by token, and totals that count."""
    yield f"{history.outcome} {history.reason} {history.now}"
    for sink, committed in history.committed.items():
        yield from (f"{sink} {token} {rows}" for token, rows in committed.items())
    for name, store in history.stores.items():
        committed_id = store.cells.committed if isinstance(store, SimulatedStore) else None
        yield f"{name} {committed_id} {sorted(store.totals().items(), key=repr)}"


def _hashed(data: bytes) -> str:
    return sha256(data).hexdigest()[:_DIGITS]


def _hashed_all(lines: Sequence[str]) -> str:
    return _hashed("\n".join(lines).encode())


def _trail(steps: Sequence[str]) -> str:
    """Return a digit for the schedule up to each 32nd step, and to its end."""
    found, hashed = [], sha256()
    for start in range(0, len(steps), _STEPS):
        hashed.update("\n".join(steps[start : start + _STEPS]).encode())
        found.append(hashed.hexdigest()[0])
    return "".join(found)


# ---------------------------------------------------------------- what differs


def differences(stored: Digest | None, measured: Measured) -> list[str]:
    """Return what is not as in the stored digest: with the first steps, and the first change of a file, if known."""
    if stored is None:
        return ["no digest is stored"]
    digest, found = measured.digest, []
    if digest.schedule != stored.schedule:
        place = _parting(stored.schedule_trail, digest.schedule_trail) * _STEPS
        steps = measured.steps[place : place + _STEPS]
        text = f"which are: {steps[0]} ... {steps[-1]}" if steps else "which it no longer has"
        found.append(f"the schedule differs, at the latest in the steps from number {place:,} on, {text}")
    if digest.files != stored.files:
        place = _parting(stored.files_trail, digest.files_trail)
        change = measured.changes[place] if place < len(measured.changes) else "which it no longer has"
        found.append(f"the stored files differ, at the latest in change number {place:,}: {change}")
    if digest.output != stored.output:
        found.append("the output differs: outcome, reason, committed rows, totals or exception")
    counts = dict.fromkeys((*stored.counts, *digest.counts))
    pairs = {name: (stored.counts.get(name, 0), digest.counts.get(name, 0)) for name in counts}
    found += [f"{name}: {now:,}, not {before:,}" for name, (before, now) in pairs.items() if now != before]
    return found or (["the trail differs"] if digest != stored else [])


def _parting(before: str, now: str) -> int:
    """Return the first place where two trails differ."""
    for place, (one, other) in enumerate(zip(before, now, strict=False)):
        if one != other:
            return place
    return min(len(before), len(now))


# ---------------------------------------------------------------- the stored digests


def read_digests() -> Digests:
    """Read the stored digests."""
    labels = json.loads(STORED.read_text()) if STORED.exists() else {}
    return {
        label: {int(seed): _read(stored["counts"], *parts) for seed, parts in stored["seeds"].items()}
        for label, stored in labels.items()
    }


def _read(names: list[str], hashes: list[str], counts: list[int], trails: list[str]) -> Digest:
    """Return the digest of one line."""
    schedule, files, output = hashes
    schedule_trail, files_trail = trails
    return Digest(schedule, files, output, dict(zip(names, counts, strict=True)), schedule_trail, files_trail)


def write_digests(digests: Digests) -> None:
    """Write digests, one a line, so that a difference of two versions shows label and seed."""
    STORED.write_text("{\n" + ",\n".join(_written(label, seeds) for label, seeds in sorted(digests.items())) + "\n}\n")


def _written(label: str, digests: Mapping[int, Digest]) -> str:
    """Return the lines of a label, of which the first has the names of its counts."""
    names = list(dict.fromkeys(name for digest in digests.values() for name in digest.counts))
    seeds = ",\n".join(
        f'    "{seed}": '
        + json.dumps(
            [
                [digest.schedule, digest.files, digest.output],
                [digest.counts[name] for name in names],
                [digest.schedule_trail, digest.files_trail],
            ]
        )
        for seed, digest in sorted(digests.items())
    )
    return f'  {json.dumps(label)}: {{"counts": {json.dumps(names)}, "seeds": {{\n{seeds}\n  }}}}'
