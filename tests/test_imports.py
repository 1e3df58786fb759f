"""Imports point one way, and the core stays free of I/O (DESIGN 3)."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import NamedTuple, get_args

import pytest

from cutline.snapshot.plan.modes import Mode
from tests.source_files import PACKAGES, USERS_FOLDER, name_of, nodes, python_files
from tests.structure import circles, folders, imports

#: What each package may know of the others.
_MAY_IMPORT = {
    "snapshot": ("snapshot",),
    "snapshot.testing": ("snapshot.testing", "snapshot"),
    "channels": ("channels", "snapshot"),
    "state_backends": ("state_backends", "snapshot"),
    "barrier_runtime": ("barrier_runtime", "channels", "state_backends", "snapshot"),
    "demos": ("demos", "cutline", "barrier_runtime", "channels", "state_backends", "snapshot.testing", "snapshot"),
    # Tests may import benchmarks, because both submit the same jobs.
    "benchmarks": (
        *("benchmarks", "cutline", "barrier_runtime", "channels", "state_backends"),
        *("snapshot.testing", "snapshot"),
    ),
}
_OURS = (*_MAY_IMPORT, USERS_FOLDER, "tests")

#: Engines and screens: the business of barrier_runtime.
_ENGINES = ("pyspark", "ray", "py4j", "typer", "rich", "starlette", "uvicorn", "prometheus_client")

#: What a machine without I/O has no use for. Computation (MessagePack, Arrow, checksums) is no I/O.
_IO = (
    *("asyncio", "concurrent", "fcntl", "glob", "http", "logging", "mmap", "multiprocessing", "os", "pathlib", "queue"),
    *("random", "secrets", "select", "selectors", "shutil", "signal", "socket", "socketserver", "ssl", "subprocess"),
    *("sys", "syslog", "tempfile", "threading", "time", "urllib", "uuid"),
    *("obstore", "tenacity", "boto3", "fsspec", "requests"),
)

#: Types of objects that are made outside and handed in, and a property of an object; the modules around them stay out.
_ALLOWED = ("random.Random", "logging.LoggerAdapter", "sys.getrefcount", "sys.getsizeof", "uuid.UUID")


class Import(NamedTuple):
    """One imported module, or one name of it, and the line."""

    module: str
    line: int

    @property
    def top(self) -> str:
        """The package as it is listed: a folder of `cutline`, its testing part, or another distribution."""
        first, _, rest = self.module.partition(".")
        if first != USERS_FOLDER:
            return first
        if rest.startswith(("testing", "snapshot.testing")):
            return "snapshot.testing"
        return rest.partition(".")[0] if rest.startswith(PACKAGES) else USERS_FOLDER


@cache
def _imports(path: Path) -> list[Import]:
    """All imports of a file: at the top, inside functions, and for types only."""
    found = []
    for node in nodes(path):
        if isinstance(node, ast.Import):
            found += [Import(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name_of(path)}:{node.lineno}: a relative import: write the package's name"
            found += [Import(f"{node.module}.{alias.name}", node.lineno) for alias in node.names]
    return found


def _files_of(package: str) -> list[Path]:
    """The files of a listed package; those of the testing part are no part of the core."""
    inner = python_files("snapshot/testing")
    if package == "snapshot.testing":
        return inner
    return [path for path in python_files(package) if path not in inner]


def _offences(package: str, banned: tuple[str, ...]) -> list[str]:
    return [
        f"{name_of(path)}:{found.line} imports {found.module}"
        for path in _files_of(package)
        for found in _imports(path)
        if found.top in banned and not (found.top in _IO and found.module in _ALLOWED)
    ]


@pytest.mark.parametrize("package", _MAY_IMPORT)
def test_packages_point_one_way(package: str) -> None:
    """A package imports only those below it; channels and state_backends do not know each other."""
    banned = tuple(name for name in _OURS if name not in _MAY_IMPORT[package])
    assert not _offences(package, banned)


def test_the_core_has_no_io() -> None:
    """The protocol runs without sockets, files, threads, clocks, chance, environment and logs; its simulator too."""
    assert not _offences("snapshot", _IO)
    assert not _offences("snapshot.testing", _IO)


def test_the_core_makes_no_chance_of_its_own() -> None:
    """`Random()` without a seed asks the system; the core is given its chance, or a seed for it."""
    offences = [
        f"{name_of(path)}:{node.lineno}"
        for path in python_files("snapshot")
        for node in nodes(path)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Random"
        if not node.args
    ]
    assert not offences


@pytest.mark.parametrize(
    "room",
    [
        *("plan", "channel", "subtask", "worker", "coordinator", "stored", "keyed"),
        *("columns", "operators", "drawing", "naming"),
    ],
)
def test_machines_import_no_mode(room: str) -> None:
    """A mode knows the machines, and they do not know it, so that a mode is one room and one row."""
    assert not [
        f"{name_of(path)}:{found.line} imports {found.module}"
        for path in python_files(f"snapshot/{room}")
        for found in _imports(path)
        if found.module.startswith(("cutline.snapshot.modes", "cutline.snapshot.assembly"))
    ]


@pytest.mark.parametrize("room", ["worker", "coordinator"])
def test_machines_name_no_mode(room: str) -> None:
    """The machines of both sides ask the row of a mode for facts, and never which mode it is."""
    names = (*(mode.__name__ for mode in get_args(Mode)), "CutRule", "row_of", "is_alone")
    assert not [
        f"{name_of(path)}:{node.lineno} names {name}"
        for path in python_files(f"snapshot/{room}")
        for node in nodes(path)
        if isinstance(node, ast.Name | ast.Attribute)
        if (name := node.id if isinstance(node, ast.Name) else node.attr) in names
    ]


@pytest.mark.parametrize("package", ["snapshot", "snapshot.testing", "channels", "state_backends"])
def test_engines_stay_in_the_runtime(package: str) -> None:
    """Spark, Ray and the command line are known to barrier_runtime alone."""
    assert not _offences(package, _ENGINES)


@pytest.mark.parametrize("package", _MAY_IMPORT)
def test_ray_has_one_user(package: str) -> None:
    """The gateway alone uses Ray, because each call may start another Ray, or block when Ray has died."""
    users = ("barrier_runtime/driver/ray_gateway.py", "barrier_runtime/driver/ray_messages.py")
    assert not [each for each in _offences(package, ("ray",)) if not each.startswith(users)]


def test_no_import_circles() -> None:
    """Neither files nor folders import each other in a circle, type-only imports included.

    Between folders, methods named ``_repr_…`` may, because they load a picture only when it is shown.
    """
    assert circles(imports()) == []
    assert circles(folders(imports(in_reprs=False))) == []
