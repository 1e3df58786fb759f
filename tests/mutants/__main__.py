"""`make mutants`: change the code in one place, and see whether a test fails that is not live.

    python -m tests.mutants [--seeds 1 2 3] [--count 300 | --all] [--fresh] [--changed] [FOLDER or FILE ...]

A sample of each seed is tried. Outcomes are kept in artifacts/mutants, so that a run which was interrupted goes on, and
so that after new tests only survivors are tried again. Ends with 1 when fewer than 95 % are killed.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import sys
import time
from functools import partial
from pathlib import Path

from tests.mutants.covering import covering_tests, import_lines
from tests.mutants.mutations import Mutant, files_to_mutate, mutants_of
from tests.mutants.results import WANTED, Results
from tests.mutants.tree import MUTATED, Tree, import_libraries
from tests.mutants.trial import Covering, try_mutant
from tests.near import changed_in_a_day
from tests.source_files import ROOT, parse, python_files

_KEPT = ROOT / "artifacts" / "mutants"


def main() -> int:
    """Try a sample, and print the survivors and the table."""
    chosen = _arguments()
    _KEPT.mkdir(parents=True, exist_ok=True)
    if chosen.fresh:
        (_KEPT / "results.jsonl").unlink(missing_ok=True)
    mutants = _sample(chosen)
    results = Results(_KEPT / "results.jsonl")
    tree = Tree()
    try:
        _try_all(tree, mutants, results)
    except KeyboardInterrupt:
        _show("interrupted: what is known follows; the next run goes on from here")
    finally:
        tree.remove()
    report, share = results.report(mutants)
    (_KEPT / "report.txt").write_text(report + "\n")
    _show(report)
    return 0 if share >= WANTED else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make mutants", description="Change code, and see whether a test fails.")
    parser.add_argument("places", nargs="*", default=MUTATED, help="folders to mutate (default: %(default)s)")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1], help="one sample a seed (default: 1)")
    parser.add_argument("--count", type=int, default=300, help="mutants of a sample (default: %(default)s)")
    parser.add_argument("--all", action="store_true", help="all mutants instead of a sample")
    parser.add_argument("--changed", action="store_true", help="only rooms in which a file changed in the last day")
    parser.add_argument("--fresh", action="store_true", help="forget the outcomes that are kept")
    return parser.parse_args()


def _sample(chosen: argparse.Namespace) -> list[Mutant]:
    files = [name for name in files_to_mutate(MUTATED) if name.startswith(tuple(chosen.places))]
    if chosen.changed:
        rooms = {str(Path(name).parent) for name in changed_in_a_day()}
        files = [name for name in files if str(Path(name).parent) in rooms]
    found = [mutant for file in files for mutant in mutants_of(file)]
    _show(f"{len(found):,} mutants in {len(files)} files")
    if chosen.all:
        return found
    chosen_by_seed = (sorted(found, key=partial(_rank, seed))[: chosen.count] for seed in chosen.seeds)
    return list({(mutant.file, mutant.number): mutant for sample in chosen_by_seed for mutant in sample}.values())


def _rank(seed: int, mutant: Mutant) -> bytes:
    """The place of a mutant in the order of a seed. A changed file changes the places of its own mutants only."""
    return hashlib.blake2b(f"{seed} {mutant.file} {mutant.number}".encode(), digest_size=8).digest()


def _try_all(tree: Tree, mutants: list[Mutant], results: Results) -> None:
    import_libraries()
    covering = Covering(covering_tests(tree, _KEPT / "coverage", _show), _importers(), import_lines(tree))
    todo = [mutant for mutant in mutants if results.reason(mutant) is None and not results.is_settled(mutant)]
    todo.sort(key=results.is_known)  # survivors of earlier runs come last
    begun_at = time.monotonic()
    for done, mutant in enumerate(todo, 1):
        outcome = try_mutant(tree, mutant, covering.of(mutant))
        results.add(mutant, outcome)
        place = f"{mutant.file}:{mutant.first}"
        _show(f"{done}/{len(todo)} {time.monotonic() - begun_at:.0f} s: {place} {outcome.verdict}: {outcome.why}")


def _importers() -> dict[str, set[str]]:
    """{file: files that import from it}."""
    found: dict[str, set[str]] = {}
    for path in python_files(*MUTATED):
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.ImportFrom) and node.module:
                name = node.module.replace(".", "/") + ".py"
                found.setdefault(name, set()).add(path.relative_to(ROOT).as_posix())
    return found


def _show(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
