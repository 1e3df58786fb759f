"""The structure of the project in numbers: ``python -m tests.structure`` prints them for the tree it stands in.

Counts files and lines by room, the places that name a mode, files with a single importer, import circles between files
and between folders, and the sizes of classes. Imports are read from the source, those inside functions and those for
types included.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.source_files import (
    PACKAGES,
    ROOT,
    USERS_FOLDER,
    fields,
    is_record,
    name_of,
    nodes,
    parse,
    public_methods,
    python_files,
)

#: Lines below which a file with a single importer is likely a part of that importer.
SMALL_FILE_LINES = 40

Edges = dict[str, dict[str, None]]


def modules() -> dict[str, Path]:
    """Return all modules of the packages: {dotted name: file}."""
    return {module_of(path): path for package in (USERS_FOLDER, *PACKAGES) for path in python_files(package)}


def module_of(path: Path) -> str:
    """Return the dotted name by which a file of the packages is imported."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    inside = parts[:-1] if parts[-1] == "__init__" else parts
    return ".".join(inside if inside[0] == USERS_FOLDER else (USERS_FOLDER, *inside))


def imports(*, in_reprs: bool = True) -> Edges:
    """Return which module imports which: {module: {imported module}}.

    Parameters
    ----------
    in_reprs : bool
        Count imports inside functions whose name begins with ``_repr_``, which load a picture when it is shown.
    """
    known = modules()
    return {
        name: dict.fromkeys(found for found in _imported(parse(path), known, in_reprs) if found != name)
        for name, path in known.items()
    }


def _imported(tree: ast.AST, known: dict[str, Path], in_reprs: bool) -> Iterator[str]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("_repr_") and not in_reprs:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                if inner in known:
                    yield inner
                elif node.module in known:
                    yield node.module
        yield from _imported(node, known, in_reprs)


def folders(edges: Edges) -> Edges:
    """Return the same between folders; each file of a package's own level stands alone, as a room of its own."""
    found: Edges = {}
    for name, targets in edges.items():
        rooms = (_room(target) for target in targets)
        found.setdefault(_room(name), {}).update((room, None) for room in rooms if room != _room(name))
    return found


def _room(name: str) -> str:
    """The folder of a module, as a dotted name; of ``snapshot.testing`` too, whose files are its public interface."""
    parts = name.split(".")
    if parts[1:3] == ["snapshot", "testing"]:
        return ".".join(parts[:4])
    return ".".join(parts[:3])


def circles(edges: Edges) -> list[list[str]]:
    """Return the strongly connected components of more than one member, each sorted (Tarjan 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for target in edges.get(name, ()):
            if target not in index:
                visit(target)
                low[name] = min(low[name], low[target])
            elif target in stack:
                low[name] = min(low[name], index[target])
        if low[name] == index[name]:
            at = stack.index(name)
            component, stack[at:] = stack[at:], []
            if len(component) > 1:
                found.append(sorted(component))

    for name in edges:
        if name not in index:
            visit(name)
    return sorted(found)


def single_importers(edges: Edges) -> dict[str, str]:
    """Return the modules that one other module imports, and that module."""
    importers: dict[str, list[str]] = {}
    for name, targets in edges.items():
        for target in targets:
            importers.setdefault(target, []).append(name)
    return {target: names[0] for target, names in sorted(importers.items()) if len(names) == 1}


#: rooms of the machines, which name no mode
_MACHINES = ("snapshot/subtask", "snapshot/worker", "snapshot/coordinator")

#: file with the modes as users write them
_MODES = "snapshot/plan/modes.py"


def mode_names() -> list[str]:
    """Return the names of the classes of modes."""
    classes = (each for each in nodes(ROOT / _MODES) if isinstance(each, ast.ClassDef))
    return [
        each.name for each in classes if any(isinstance(base, ast.Name) and base.id == "Mode" for base in each.bases)
    ]


def lines_naming(path: Path, names: Iterable[str]) -> set[int]:
    """Return the lines of a file that name one of these classes in code, or import a room of modes."""
    wanted = set(names)
    found: set[int] = set()
    for node in nodes(path):
        is_named = (
            (isinstance(node, ast.Name) and node.id in wanted)
            or (isinstance(node, ast.Attribute) and node.attr in wanted)
            or (isinstance(node, ast.alias) and node.name in wanted)
            or (isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{USERS_FOLDER}.snapshot.modes"))
        )
        if is_named:
            found.add(node.lineno)  # type: ignore[attr-defined]  # these four kinds have a line
    return found


def rooms_of(package: str) -> dict[str, list[Path]]:
    """Return the files of a package by room: its folders, of `snapshot/modes` and `snapshot/testing` a level deeper."""
    found: dict[str, list[Path]] = {}
    for path in python_files(package):
        folders_of = path.relative_to(ROOT).parts[:-1]
        depth = 3 if folders_of[1:2] in (("modes",), ("testing",)) else 2
        found.setdefault("/".join(folders_of[:depth]) + "/", []).append(path)
    return found


def _print_rooms() -> None:
    for package in PACKAGES:
        for room, files in sorted(rooms_of(package).items()):
            print(f"{room:36} {len(files):4} files {_lines(files):6} lines")


def _print_modes() -> None:
    names = mode_names()
    machines = [path for room in _MACHINES for path in python_files(room)]
    named = {name_of(path): len(lines_naming(path, names)) for path in machines}
    print(f"\nlines of the machines that name a mode: {sum(named.values())}")
    for name, count in named.items():
        if count:
            print(f"  {name} {count}")
    print(f"product files outside snapshot/modes/, {_MODES} and {USERS_FOLDER}/ that name the class of a mode")
    others = [
        path
        for path in python_files(*PACKAGES)
        if not name_of(path).startswith(("snapshot/modes/", "demos/")) and name_of(path) != _MODES
    ]
    for mode in names:
        files = [name_of(path) for path in others if lines_naming(path, [mode]) - lines_naming(path, ())]
        print(f"  {mode} {len(files)}: {', '.join(files)}")


def _lines(paths: Iterable[Path]) -> int:
    return sum(len(path.read_text().splitlines()) for path in paths)


def main() -> None:
    """Print all numbers."""
    for package in (USERS_FOLDER, *PACKAGES, "benchmarks", "tests"):
        files = list(python_files(package))
        print(f"{package:16} {len(files):4} files {_lines(files):6} lines")
    print()
    _print_rooms()
    _print_modes()
    known, edges = modules(), imports()
    single = single_importers(edges)
    small = [name for name in single if _lines([known[name]]) < SMALL_FILE_LINES]
    short = [name for name in known if _lines([known[name]]) < SMALL_FILE_LINES]
    print(f"\nfiles of the packages: {len(known)}, lines: {_lines(known.values())}")
    print(f"files under {SMALL_FILE_LINES} lines: {len(short)}")
    print(f"files with one importer: {len(single)}, of which under {SMALL_FILE_LINES} lines: {len(small)}")
    for name in small:
        print(f"  {name} <- {single[name]}")
    plain = imports(in_reprs=False)
    for what, graph in (("files", plain), ("folders", folders(plain))):
        print(f"\nimport circles between {what}: {len(circles(graph))}")
        for circle in circles(graph):
            print("  " + ", ".join(circle))
    print("\nlargest classes: public methods, fields")
    for path in known.values():
        for cls in ast.walk(parse(path)):
            if isinstance(cls, ast.ClassDef) and not is_record(cls):
                size = len(public_methods(cls)), len(fields(cls))
                if size[0] > 15 or size[1] > 12:
                    print(f"  {name_of(path)}:{cls.name} {size[0]}, {size[1]}")


if __name__ == "__main__":
    main()
