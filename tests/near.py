"""Which tests are near the changed files: the tests of the files themselves, and tests that import them.

    python -m tests.near        prints the changed files, and the files of tests near them

A file is changed when it differs from the newest commit of the main line that the checkout has.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path

from tests.source_files import PACKAGES, ROOT, USERS_FOLDER, name_of, python_files

#: the module of an import, and the names on its line, which may be modules too
_IMPORT = re.compile(r"^\s*(?:from|import) ([\w.]+)(?: import ([\w, ]*))?", re.MULTILINE)

#: Tests that read all files of ours: near each change.
_READ_ALL = ("tests/test_glossary.py", "tests/test_imports.py", "tests/test_tidy.py", "tests/test_ways.py")

#: Names of the main line, the most certain first.
_MAIN = ("origin/HEAD", "origin/main", "main")


def changed_files() -> list[str]:
    """Return the files that differ from the main line, and those that git does not know yet."""
    base = next(filter(None, (_git("merge-base", "HEAD", name) for name in _MAIN)), "HEAD\n").strip()
    listed = _git("diff", "--name-only", base) + _git("ls-files", "--others", "--exclude-standard")
    return sorted(set(listed.split("\n")) - {""})


def near_tests(changed: list[str]) -> dict[str, int]:
    """Return {file of tests: distance}: 0 changed or mirrored, 1 imports a changed file, 2 imports an importer."""
    importers = _importers()
    found: dict[str, int] = {}
    nearest = {*_READ_ALL, *(file for each in changed for file in (each, _mirrored(each)))}
    direct = set().union(*(importers[file] for file in changed))
    for distance, files in enumerate((nearest, direct, set().union(*(importers[file] for file in direct)))):
        for file in sorted(files):
            if Path(file).name.startswith("test_") and (ROOT / file).exists():
                found.setdefault(file, distance)
    return found


def changed_in_a_day() -> list[str]:
    """Return the changed files, and those of all commits since yesterday."""
    return sorted({*changed_files(), *_git("log", "--since=1 day ago", "--name-only", "--pretty=").split("\n")} - {""})


def _mirrored(file: str) -> str:
    folder, _, name = file.rpartition("/")
    return f"tests/{folder}/test_{name}"


@cache
def _importers() -> defaultdict[str, set[str]]:
    """Return {file: files that import it}."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for path in python_files(*PACKAGES, "benchmarks", "tests"):
        for match in _IMPORT.finditer(path.read_text()):
            names = (f"{match[1]}.{name.strip()}" for name in (match[2] or "").split(","))
            for module in (match[1], *names):
                found[_file_of(module)].add(name_of(path))
    return found


def _file_of(module: str) -> str:
    """Return the file of a module of ours; a link of the users' package leads to the folder."""
    return module.removeprefix(f"{USERS_FOLDER}.").replace(".", "/") + ".py"


def _git(*arguments: str) -> str:
    """Return what git prints, or nothing where it fails."""
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False).stdout


def main() -> int:
    """Print the changed files, and the tests near them."""
    changed = changed_files()
    print(*changed, sep="\n")
    for file, distance in sorted(near_tests(changed).items(), key=lambda each: each[::-1]):
        print(f"  {distance} {file}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
