"""The same small job, killed and recovered, on every kind of Spark but the local one; what else differs between them.

One script a Spark, because a process has one SparkContext and a start costs seconds. How the job's module reaches the
executors differs too: by value, as a zip, and as a class of ``__main__``.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from benchmarks.session import SPARK_SETTINGS
from tests.leaks import LeakCheck
from tests.programs import run_script
from tests.source_files import PACKAGES, ROOT, USERS_FOLDER, python_files

#: Executors share the machine with two drivers: a small heap each.
_SETTINGS = SPARK_SETTINGS | {"spark.executor.memory": "512m"}

#: How a script begins. `{where}` is the session's builder, `{settings}` a dict.
_PRELUDE = """
import logging, os, sys, tempfile, time
sys.path.insert(0, {root!r})
from pyspark.sql import SparkSession

builder = SparkSession.builder.{where}
for key, value in {settings}.items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()
from cutline import BarrierRuntime
from cutline.snapshot.errors import RunFailed
from cutline import FileSystemBackend

logging.basicConfig(level=logging.INFO)
logging.getLogger("py4j").setLevel(logging.ERROR)
logging.getLogger("cutline").setLevel(logging.DEBUG)
folder = tempfile.mkdtemp()
runtime = BarrierRuntime(spark, backend=FileSystemBackend(folder), snapshotInterval=0.2)
"""

#: Ends a worker, and then a whole executor if there are any, in the middle of the job; the result must be right.
_KILL_WORKER = """
run = runtime.submit(counting_graph("counting", {count}, folder))
wait_for_snapshots(run, 2)
killed_at = kill_worker(run)
print(f"SIGKILL of a worker process: first new message after {{first_message_after(killed_at, folder):.2f}} s")
wait_for_snapshots(run, 1)
"""

_KILL_EXECUTOR = """
executor, killed_at = ancestor(run.status["workers"][0], "java"), time.monotonic()
os.kill(executor, 9)
print(f"SIGKILL of an executor's JVM: first new message after {{first_message_after(killed_at, folder):.2f}} s")
"""

_CHECK = """
check_result(run, {count})
assert run.status["restarts"], "no fault was seen"
print("the result is right")
"""

_LOCAL_CLUSTER = """
import cloudpickle
from tests.spark import counting
cloudpickle.register_pickle_by_value(counting)
from tests.spark.counting import *

# Too few slots: refused at once, with the numbers.
try:
    BarrierRuntime(spark, backend=FileSystemBackend(folder), workers=9).submit(counting_graph("wide", 1, folder))
except RunFailed as error:
    print("refused:", error)

# What Spark's own page shows, and what cancelling there means.
run = runtime.submit(counting_graph("cancelled", 10**9, folder))
wait_for_snapshots(run, 1)
tracker = spark.sparkContext.statusTracker()
[job] = tracker.getActiveJobsIds()
[group] = [name for name in (run._supervisor.group,) if job in tracker.getJobIdsForGroup(name)]
print("group:", group)
spark.sparkContext.cancelJobGroup(group)
assert isinstance(run.exception() or wait_for_failure(run), RunFailed)
print("cancelled:", run.exception())
# A lost connection may be seen before Spark's word for it; what must not be is a second job.
assert list(tracker.getJobIdsForGroup(group)) == [job], "a cancelled job was submitted again"
"""

#: The secret, as bytes, hex, base64 or a literal, is in no file that was written and in nothing that was said.
_SECRET = """
import base64, ray
from pathlib import Path
from cutline.barrier_runtime.launch import WorkerLaunch
secret = WorkerLaunch.decode(run._supervisor._make_launch("", 0)).secret
forms = [secret, secret.hex().encode(), base64.b64encode(secret), repr(secret)[2:-1].encode()]
said = repr((run.status, run.recentProgress, run.exception(), run.snapshots(), run._supervisor.stage_failures)).encode()
assert not any(form in said for form in forms), "the secret is in status or error"
logs = Path(ray._private.worker._global_node.get_session_dir_path(), "logs")
places = [Path(folder), logs, Path(os.environ["SPARK_HOME"], "work")]
files = [path for place in places for path in place.rglob("*") if path.is_file()]
assert any(b"deploying" in path.read_bytes() for path in files), "the workers' logs are elsewhere"
told = [str(path) for path in files if any(form in path.read_bytes() for form in forms)]
assert not told, f"the secret is in {{told}}"
Path(os.environ["SPARK_HOME"], "secret").write_bytes(secret)
print(f"searched {{len(files)}} files")
"""

_STANDALONE = """
from cutline import Graph
from cutline.testing import ListSink, ListSource
early = Graph("early").add("a", ListSource(1)).add("b", ListSink()).connect("a", "b")
try:
    runtime.submit(early).awaitTermination(60)
except RunFailed as error:
    print("refused:", error)

spark.sparkContext.addPyFile({archive!r})
from counting_job import *
"""

_CONNECT = """
# Ray starts its processes by fork, beside the threads of Connect's gRPC. With some versions of it children abort.
import subprocess
ends = [subprocess.run(["true"], preexec_fn=os.getpid).returncode for _ in range(800)]
assert not any(ends), f"{{sum(map(bool, ends))}} of {{len(ends)}} processes did not start"

from tests.spark import counting
unshipped = runtime.submit(counting.counting_graph("unshipped", 1, folder))
print("refused:", counting.wait_for_failure(unshipped))
assert unshipped.status["restarts"] == []

exec(open(counting.__file__).read())  # its classes are those of __main__

# Nobody can ask a Connect server for its slots: a deadline says that the stage did not start.
from cutline.barrier_runtime.driver import submission as driver
deadline, driver.GATHERING_SECONDS_MAX = driver.GATHERING_SECONDS_MAX, 3.0
wide = BarrierRuntime(spark, backend=FileSystemBackend(folder), workers=9).submit(counting_graph("wide", 1, folder))
print("refused:", wait_for_failure(wide))
driver.GATHERING_SECONDS_MAX = deadline

run = runtime.submit(counting_graph("cancelled", 10**9, folder))
wait_for_snapshots(run, 1)
spark.interruptTag(run._supervisor.group)
print("cancelled:", wait_for_failure(run))
run = runtime.submit(counting_graph("stopped", 10**9, folder))
wait_for_snapshots(run, 1)
run.stop(withSnapshot=True)
assert run.exception() is None
print("stopped:", run.status["reason"])
"""

_COUNT = 10_000


def _script(*parts: str, where: str, settings: dict[str, str]) -> str:
    values = {"root": str(ROOT), "where": where, "settings": settings, "count": _COUNT}
    return _PRELUDE.format(**values) + "".join(part.format(**values) for part in parts) + "spark.stop()\n"


@pytest.mark.spark
@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_local_cluster(local_cluster_environment: dict[str, str], leak_check: LeakCheck) -> None:
    """Modules by value; too few slots refused; cancelled on Spark's side; a worker and an executor killed.

    And nothing of it says the run's secret.
    """
    parts = (_LOCAL_CLUSTER, _KILL_WORKER, _KILL_EXECUTOR, _CHECK, _SECRET)
    script = _script(*parts, where='master("local-cluster[2,2,1024]")', settings=_SETTINGS)
    output = run_script(script, timeout_s=200, environment=local_cluster_environment)
    assert "refused: a stage of 9 workers needs 9 slots at one time; local-cluster[2,2,1024] has 4" in output
    assert "group: cutline-cancelled-" in output
    assert "cancelled: run 'cancelled': its Spark job was cancelled" in output
    assert "the result is right" in output
    secret = Path(local_cluster_environment["SPARK_HOME"], "secret").read_bytes()
    assert secret.hex() not in output
    assert repr(secret)[2:-1] not in output


@pytest.mark.spark
@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_standalone_cluster(standalone_master: str, tmp_path: Path, leak_check: LeakCheck) -> None:
    """Cutline and the job go as one zip to executors whose Python has the dependencies only; a worker is killed.

    Before that it is said what they lack. The job takes all slots, which is said too.
    """
    archive = _archive(tmp_path / "cutline.zip")
    parts = (_STANDALONE.replace("{archive!r}", repr(str(archive))), _KILL_WORKER, _CHECK)
    script = _script(*parts, where=f'master("{standalone_master}")', settings=_SETTINGS)
    output = run_script(script, timeout_s=200, environment={"PYSPARK_PYTHON": str(_bare_python(tmp_path / "bare"))})
    assert "refused: run 'early': the Python of the executors lacks the module 'cutline'" in output
    assert "the stage takes all 2 slots" in output
    assert "the result is right" in output


@pytest.mark.spark
@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_connect(leak_check: LeakCheck) -> None:
    """Classes of ``__main__``; a module that is not there; too few slots; interrupted; stopped; a worker killed."""
    parts = (_CONNECT, _KILL_WORKER, _CHECK)
    output = run_script(_script(*parts, where='remote("local[3]")', settings={}), timeout_s=200)
    assert "refused: run 'unshipped': the graph cannot be unpickled on the executors (ModuleNotFoundError: " in output
    assert "refused: run 'wide': none of 9 workers registered in 3 s. The stage starts when Spark has 9 free" in output
    assert "cancelled: run 'cancelled': its Spark job was cancelled" in output
    assert "stopped: stopped by the driver, after a snapshot" in output
    assert "the result is right" in output


def _archive(path: Path) -> Path:
    """What `addPyFile` takes: Cutline's packages, and the job as a top-level module."""
    with zipfile.ZipFile(path, "w") as archive:
        for source in python_files(*PACKAGES):
            archive.write(source, Path(USERS_FOLDER, source.relative_to(ROOT)))
        for source in python_files(USERS_FOLDER):
            archive.write(source, source.relative_to(ROOT))
        archive.write(ROOT / "tests" / "spark" / "counting.py", "counting_job.py")
    return path


def _bare_python(directory: Path) -> Path:
    """An interpreter that sees the installed packages, but no editable install: those are known to their own only."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True)
    paths = sysconfig.get_paths(vars={"base": str(directory), "platbase": str(directory)})
    Path(paths["purelib"], "dependencies.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return directory / "bin" / "python"
