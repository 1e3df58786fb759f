"""What became of each mutant: kept in a file, and counted by package."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.mutants.equivalents import Equivalents
from tests.mutants.mutations import Mutant
from tests.mutants.trial import Outcome, Verdict
from tests.source_files import ROOT

#: share of the mutants that are not equivalent, of which tests must kill this much
WANTED = 0.95

_COUNT_AGAINST = (Verdict.SURVIVED, Verdict.NOT_COVERED)


class Results:
    """Outcomes by mutant. Those of a file that has changed since are forgotten."""

    def __init__(self, kept: Path) -> None:
        self._kept = kept
        self._outcomes: dict[str, Outcome] = {}
        self._equivalents = Equivalents()
        if kept.exists():
            for line in kept.read_text().splitlines():
                entry = json.loads(line)
                self._outcomes[entry["key"]] = Outcome(Verdict(entry["verdict"]), entry["why"])

    def is_settled(self, mutant: Mutant) -> bool:
        """Return whether a kept outcome says that a test kills it, or that the type checker refuses it."""
        outcome = self._outcomes.get(_key(mutant))
        return outcome is not None and outcome.verdict in (Verdict.KILLED, Verdict.REFUSED)

    def is_known(self, mutant: Mutant) -> bool:
        """Whether an outcome is kept."""
        return _key(mutant) in self._outcomes

    def reason(self, mutant: Mutant) -> str | None:
        """Why the mutant is equivalent, or None."""
        return self._equivalents.reason(mutant)

    def add(self, mutant: Mutant, outcome: Outcome) -> None:
        """Keep an outcome."""
        self._outcomes[_key(mutant)] = outcome
        entry = {"key": _key(mutant), "verdict": outcome.verdict, "why": outcome.why, "diff": mutant.diff()}
        with self._kept.open("a") as file:
            file.write(json.dumps(entry) + "\n")

    def report(self, mutants: Iterable[Mutant]) -> tuple[str, float]:
        """Return survivors as diffs and a table by package, and the share that is killed."""
        counts: dict[str, Counter[str]] = {}
        survivors = []
        for mutant, kind, why in self._known(mutants):
            for package in (mutant.package, "all"):
                counts.setdefault(package, Counter())[kind] += 1
            if kind in _COUNT_AGAINST:
                survivors.append(f"{kind} ({why})\n{mutant.diff()}\n")
        shares = {package: _share(count) for package, count in counts.items()}
        heads = (*Verdict, "equivalent")
        rows = [f"{'package':16}{''.join(f'{head:>12}' for head in heads)}{'share':>9}"]
        for package in sorted(counts, key=lambda name: (name == "all", name)):
            numbers = "".join(f"{counts[package][head]:12}" for head in heads)
            rows.append(f"{package:16}{numbers}{shares[package]:9.1%}")
        return "\n".join((*survivors, *rows)), shares.get("all", 1.0)

    def _known(self, mutants: Iterable[Mutant]) -> Iterator[tuple[Mutant, str, str]]:
        for mutant in mutants:
            if (reason := self.reason(mutant)) is not None:
                yield mutant, "equivalent", reason
            elif (outcome := self._outcomes.get(_key(mutant))) is not None:
                yield mutant, outcome.verdict, outcome.why


def _share(count: Counter[str]) -> float:
    return count[Verdict.KILLED] / max(1, sum(count[verdict] for verdict in (Verdict.KILLED, *_COUNT_AGAINST)))


def _key(mutant: Mutant) -> str:
    digest = hashlib.sha256((ROOT / mutant.file).read_bytes()).hexdigest()[:12]
    return f"{mutant.file}:{digest}:{mutant.number}"
