"""What all tests share: one Spark session and one Ray instance for the whole run, seeds, and the leak check.

Sessions start when the first test asks for them. Everything they write goes to one temporary directory, which is
removed at the end of the run.
"""

from __future__ import annotations

import gc
import os
import random
import secrets
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from benchmarks.session import SHORT_LIVED_JAVA, SPARK_SETTINGS
from tests.leaks import LeakCheck
from tests.run_size import scaled
from tests.source_files import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: What Hypothesis tries by default; CUTLINE_EXAMPLES=10 makes it ten times as many, for a long night.
EXAMPLES = 100

#: Fixtures that start a Spark, a Ray or a browser. A test that uses one is live.
_LIVE_FIXTURES = frozenset(("spark", "ray_instance", "standalone_master", "browser"))

#: Where live tests are: folders, files, and single tests, by the beginning of their names.
_LIVE_PLACES = (
    *("tests/system/", "tests/system_security/", "tests/system_stores/", "tests/spark/"),
    *("tests/demos/", "tests/benchmarks/test_benchmarks.py", "tests/page/test_browser.py", "tests/test_wheel.py"),
    "tests/barrier_runtime/dataframes/test_dataframes.py",
    "tests/barrier_runtime/dataframes/test_snapshot_source.py",
    *("tests/stored_format/test_format_1_live.py", "tests/barrier_runtime/cli/test_cli.py::test_a_signal_stops"),
    "tests/barrier_runtime/cli/test_cli.py::test_a_run_is_changed",
    "tests/test_leaks.py::test_a_process_forked",
)

#: Programs that no quick test may start.
_LIVE_PROGRAMS = ("java", "spark-submit", "spark-class", "gcs_server", "raylet", "chrom", "uvicorn")

_run_directory = pytest.StashKey[str]()

#: the quick test that runs now, or None
_quick_test: str | None = None


def pytest_collection_finish() -> None:
    """Keep what was imported from the garbage collector, because each leak check collects twice, 0.3 s each."""
    gc.collect()
    gc.freeze()


def pytest_configure(config: pytest.Config) -> None:
    """Put the run's files in one place, and fix what child processes inherit before anything starts one."""
    # A process beside the first one gets a place beside its place: the paths of Unix sockets may not be longer.
    place = os.path.dirname(tempfile.gettempdir()) if hasattr(config, "workerinput") else None
    directory = tempfile.mkdtemp(prefix="cutline-tests-", dir=place)
    config.stash[_run_directory] = directory
    tempfile.tempdir = directory
    for number in (signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:  # in the background: programs that tests start would ignore it
            signal.signal(number, lambda *_: None)  # which they do not inherit
    os.environ |= {
        "TMPDIR": directory,
        "RAY_TMPDIR": directory,
        "RAY_AUTH_TOKEN": secrets.token_hex(32),  # else Ray writes one to the home directory
        "RAY_USAGE_STATS_ENABLED": "0",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    _configure_hypothesis(config)
    sys.addaudithook(_guard_quick_tests)


def _configure_hypothesis(config: pytest.Config) -> None:
    # A seed of our own, so that it can be shown: a run without one cannot be repeated exactly.
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = str(random.SystemRandom().randrange(2**32))
    settings.register_profile(
        "cutline",
        max_examples=scaled(EXAMPLES),
        deadline=None,  # a shared machine is slow at times
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("cutline")


def _is_live(name: str) -> bool:
    return name.startswith(_LIVE_PLACES)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the live tests, and refuse those that stand elsewhere."""
    for item in items:
        needs = _LIVE_FIXTURES.intersection(getattr(item, "fixturenames", ()))
        if _is_live(item.nodeid):
            item.add_marker("live")
        elif needs or item.get_closest_marker("spark") or item.get_closest_marker("ray"):
            raise pytest.UsageError(f"{item.nodeid} is live: move it, or list it in _LIVE_PLACES of tests/conftest.py")


@cache
def _has_module_fixture(file: str) -> bool:
    """Return whether tests of a file share a fixture of their module."""
    return 'scope="module"' in (ROOT / file).read_text()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give all live tests to one process, because one Spark session and one Ray serve all of them."""
    from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped,unused-ignore]

    class LiveTogether(LoadScopeScheduling):  # type: ignore[misc,unused-ignore]
        def _split_scope(self, nodeid: str) -> str:
            if _is_live(nodeid):
                return "live"
            # Tests of one module fixture stay together, because some fixtures judge at their end what all tests had.
            file = nodeid.partition("::")[0]
            return file if _has_module_fixture(file) else nodeid

    return LiveTogether(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Let the guard know whether the test that runs is a quick one."""
    global _quick_test
    _quick_test = None if item.get_closest_marker("live") else item.nodeid
    try:
        return (yield)
    finally:
        _quick_test = None


def _guard_quick_tests(event: str, arguments: tuple[Any, ...]) -> None:
    """Refuse that a quick test starts what only live tests may (an audit hook of the interpreter)."""
    if event == "subprocess.Popen" and _quick_test is not None:
        program = Path(os.fsdecode(arguments[0] or arguments[1][0]))
        is_the_tests_own = any(part.startswith("pytest-of-") for part in program.parts)  # a script in its tmp_path
        if program.name.startswith(_LIVE_PROGRAMS) and not is_the_tests_own:
            raise RuntimeError(f"{_quick_test} starts {program.name}: mark it with pytest.mark.live")


def pytest_report_header(config: pytest.Config) -> str:
    """Say how to repeat this run."""
    seed = config.option.hypothesis_seed
    return f"hypothesis seed: {seed} (repeat with --hypothesis-seed={seed}), examples: {settings().max_examples}"


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the run's files."""
    tempfile.tempdir = None
    shutil.rmtree(config.stash[_run_directory], ignore_errors=True)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one Spark session of this process: local, four slots."""
    from pyspark.sql import SparkSession

    directory = tmp_path_factory.mktemp("spark")
    builder = SparkSession.builder.master("local[4]").appName("cutline-tests")
    for key, value in SPARK_SETTINGS.items():
        builder = builder.config(key, value)
    session = (
        builder.config("spark.sql.warehouse.dir", str(directory / "warehouse"))
        .config("spark.local.dir", str(directory))
        .config("spark.driver.extraJavaOptions", f"{SHORT_LIVED_JAVA} -Djava.io.tmpdir={directory}")
        .getOrCreate()
    )
    yield session
    gateway = session.sparkContext._gateway
    assert gateway is not None
    session.stop()
    # stop() leaves the JVM to the end of the process; it ends when its standard input closes.
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(timeout=30)


@pytest.fixture(scope="session")
def ray_instance() -> Iterator[None]:
    """The one Ray of this process, started as a driver starts it."""
    from cutline.barrier_runtime.driver.ray_gateway import end_ray, ensure_ray

    ensure_ray(None)
    yield
    end_ray()


@pytest.fixture
def leak_check() -> Iterator[LeakCheck]:
    """Fail the test when something that it started outlives it (RELIABILITY, checker 10)."""
    check = LeakCheck()
    yield check
    leaks = check.wait()
    assert not leaks, "left behind:\n" + "\n".join(leaks)
