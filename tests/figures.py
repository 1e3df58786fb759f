"""What a run of tests did, and what is kept of that: seconds by file, and the work of each tier.

`seconds.json` deals files to processes, and puts the longest first. `work.json` is a ratchet: a tier whose work has
grown by more than a fifth fails. The work of live tests is their seconds, which may grow by a half, because machines
differ. The option `--keep` writes both.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.source_files import ROOT
from tests.tiers import Tier, has_tests
from tests.work import Work

#: seconds of a file of which none are kept
UNKNOWN_S = 0.5

_SECONDS = ROOT / "tests" / "seconds.json"
_WORK = ROOT / "tests" / "work.json"

#: Kept seconds stay until the new ones differ by more than this share and by more than 0.1 s: diffs are small.
_SECONDS_SHARE = 0.3
_SECONDS_LEAST = 0.1

_COUNTS = ("items", "examples", "steps", "processes", "syncs")

#: {tier: {what is kept of its work: by which share it may grow}}
_SHARES: dict[Tier, dict[str, float]] = {
    Tier.UNIT: dict.fromkeys(_COUNTS, 0.2),
    Tier.FULL: dict.fromkeys(_COUNTS, 0.2),
    Tier.LIVE: {"seconds": 0.5},
}
_SHARE_TEXTS = {0.2: "a fifth", 0.5: "a half"}

_SLOWEST = 10


class Figures:
    """Work and seconds of each tier, and seconds of each test."""

    def __init__(self) -> None:
        self.work: dict[Tier, Work] = defaultdict(Work)
        #: {tier: {file: seconds}}
        self.seconds: dict[Tier, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        #: {test: seconds}
        self.tests: dict[str, float] = defaultdict(float)
        self.failed: list[str] = []
        #: tests that were selected to run
        self.selected = 0

    def write(self, path: Path) -> None:
        """Write all to a file."""
        work = {tier: asdict(work) for tier, work in self.work.items()}
        path.write_text(json.dumps({**vars(self), "work": work}))

    def add(self, path: Path) -> None:
        """Add what another process has written."""
        read: dict[str, Any] = json.loads(path.read_text())
        for tier, work in read["work"].items():
            self.work[Tier(tier)].add(Work(**work))
        for tier, files in read["seconds"].items():
            self.seconds[Tier(tier)] |= files
        self.tests |= read["tests"]
        self.failed += read["failed"]
        self.selected += read["selected"]

    def lines(self) -> Iterator[str]:
        """Yield a table of the tiers, and the slowest tests."""
        yield "tier " + "".join(f"{name:>11}" for name in ("seconds", *_COUNTS))
        for tier, work in sorted(self.work.items()):
            counts = (f"{getattr(work, name):>11,}" for name in _COUNTS)
            yield f"{tier:<5}{sum(self.seconds[tier].values()):>11,.1f}" + "".join(counts)
        yield "slowest tests, unit tests in seconds of processor:"
        for test in sorted(self.tests, key=self.tests.__getitem__, reverse=True)[:_SLOWEST]:
            yield f"{self.tests[test]:>8.2f} s  {test}"

    def grown(self, tier: Tier) -> list[str]:
        """Return one sentence for each part of a tier's work that has grown by more than its share."""
        kept, work = _read(_WORK).get(tier, {}), self._work_to_keep(tier)
        return [
            f"{tier} tests: {name} grew from {kept[name]:,} to {work[name]:,}, more than {_SHARE_TEXTS[share]}. "
            "Make them fewer, or accept them with ARGS=--keep"
            for name, share in _SHARES[tier].items()
            if work[name] > kept.get(name, float("inf")) * (1 + share)
        ]

    def _work_to_keep(self, tier: Tier) -> dict[str, float]:
        work = asdict(self.work[tier]) | {"seconds": round(sum(self.seconds[tier].values()))}
        return {name: work[name] for name in _SHARES[tier]}

    def keep_work(self, tier: Tier) -> None:
        """Write the work of a tier that ran as a whole."""
        work = _read(_WORK)
        work[tier] = self._work_to_keep(tier)
        _write(_WORK, work)

    def keep_seconds(self, tier: Tier) -> None:
        """Write the seconds of files that have changed much. Forget files without tests of the tier."""
        seconds = _read(_SECONDS)
        kept = seconds.get(tier, {})
        for file, measured in self.seconds[tier].items():
            change = abs(measured - kept.get(file, 0.0))
            if file not in kept or change > max(_SECONDS_LEAST, _SECONDS_SHARE * kept[file]):
                kept[file] = round(measured, 2)
        seconds[tier] = {file: kept[file] for file in sorted(kept) if has_tests(file, tier) and (ROOT / file).exists()}
        _write(_SECONDS, seconds)


def kept_seconds(tier: Tier) -> dict[str, float]:
    """Return {file: seconds} of a tier, as kept."""
    return _read(_SECONDS).get(tier, {})


def _read(path: Path) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = json.loads(path.read_text()) if path.exists() else {}
    return found


def _write(path: Path, figures: dict[str, dict[str, float]]) -> None:
    path.write_text(json.dumps(figures, indent=1, sort_keys=True) + "\n")
