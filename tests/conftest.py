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
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from benchmarks.session import SHORT_LIVED_JAVA, SPARK_SETTINGS
from tests import summary
from tests.figures import UNKNOWN_S, kept_seconds
from tests.leaks import LeakCheck
from tests.run_size import FACTOR, scaled
from tests.slots import MASTER
from tests.source_files import ROOT
from tests.tiers import Tier, shares_session, tier_of
from tests.work import GUARD

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: What Hypothesis tries by default; CUTLINE_EXAMPLES=10 makes it ten times as many, for a long night.
EXAMPLES = 100

#: Fixtures that start the Spark session and the Ray of a process.
_SESSION_FIXTURES = frozenset(("spark", "ray_instance"))

#: Fixtures that start a Spark, a Ray or a browser. A test that uses one is live.
_LIVE_FIXTURES = _SESSION_FIXTURES | {"standalone_master", "browser"}

_run_directory = pytest.StashKey[str]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of our plugins."""
    summary.add_options(parser)


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
        # When a raylet has died, Ray ends its driver without a word if the driver's parent is process 1, as after the
        # end of a shell (`ShutdownIfLocalRayletDisconnected` in raylet_ipc_client.cc). With a process that lives named
        # here, Ray does not ask for the parent. Ray's own workers get the raylet's.
        "RAY_RAYLET_PID": str(os.getpid()),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    _configure_hypothesis(config)
    GUARD.install()
    config.pluginmanager.register(GUARD)
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(summary.Summary(config))


def _configure_hypothesis(config: pytest.Config) -> None:
    # A seed of our own, so that it can be shown: a run without one cannot be repeated exactly.
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = str(random.SystemRandom().randrange(2**32))
    settings.register_profile(
        "cutline",
        max_examples=scaled(EXAMPLES),
        derandomize=FACTOR < 1,  # fixed examples: a short run fails again, or passes again
        deadline=None,  # a shared machine is slow at times
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("cutline")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test with its tier, and refuse live tests that are not listed. Give time to a larger search."""
    for item in items:
        tier = tier_of(item.nodeid)
        item.add_marker(tier.value)  # a plain text, because it travels between processes
        needs = _LIVE_FIXTURES.intersection(getattr(item, "fixturenames", ()))
        if tier is not Tier.LIVE and (needs or item.get_closest_marker("spark") or item.get_closest_marker("ray")):
            raise pytest.UsageError(f"{item.nodeid} is live: list it in LIVE of tests/tiers.py")
        if needs & _SESSION_FIXTURES and not shares_session(item.nodeid):
            raise pytest.UsageError(f"{item.nodeid} shares the session: it must not be in ALONE of tests/tiers.py")
        if FACTOR > 1:
            own = item.get_closest_marker("timeout")
            limit = own.args[0] if own else float(item.config.getini("timeout"))
            item.add_marker(pytest.mark.timeout(limit * FACTOR), append=False)
    if os.environ.get("PYTEST_XDIST_WORKER"):
        items.sort(key=_place_in_line)


def _place_in_line(item: pytest.Item) -> float:
    """Return the place of a test in the line for two processes: the session's tests, then those of the longest file."""
    if shares_session(item.nodeid):
        return float("-inf")
    return -_seconds(tier_of(item.nodeid)).get(item.nodeid.partition("::")[0], UNKNOWN_S)


@cache
def _seconds(tier: Tier) -> dict[str, float]:
    return kept_seconds(tier)


@cache
def _has_module_fixture(file: str) -> bool:
    """Return whether tests of a file share a fixture of their module."""
    return 'scope="module"' in (ROOT / file).read_text()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give the tests that share a Spark session and a Ray to one process. Deal all others to both."""
    from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped,unused-ignore]

    class SessionTogether(LoadScopeScheduling):  # type: ignore[misc,unused-ignore]
        def _split_scope(self, nodeid: str) -> str:
            if shares_session(nodeid):
                return "session"
            # Tests of one module fixture stay together, because some fixtures judge at their end what all tests had.
            file = nodeid.partition("::")[0]
            return file if _has_module_fixture(file) else nodeid

    return SessionTogether(config, log)


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
    """The one Spark session of this process."""
    from pyspark.sql import SparkSession

    directory = tmp_path_factory.mktemp("spark")
    builder = SparkSession.builder.master(MASTER).appName("cutline-tests")
    for key, value in SPARK_SETTINGS.items():
        builder = builder.config(key, value)
    session = (
        builder.config("spark.default.parallelism", "4")  # of DataFrames, whatever the slots
        .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
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
