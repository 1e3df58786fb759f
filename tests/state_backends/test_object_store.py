"""The object-store backend over the S3 protocol, against a real server on loopback."""

from __future__ import annotations

import http.server
import os
import pickle
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

import obstore
import pytest

from cutline import BarrierRuntime, Graph, ObjectStoreBackend, StateBackend
from cutline.snapshot.stored.backend import StoreRefused
from cutline.snapshot.stored.history import Base, Claim
from cutline.snapshot.stored.layout import run_folder
from cutline.snapshot.stored.part import rows_part, state_part
from cutline.snapshot.stored.part_files import PartFiles
from cutline.snapshot.stored.run_store import RunStore, runs
from cutline.snapshot.stored.signed import SignedBackend
from cutline.state_backends import object_store
from cutline.state_backends.verify import verify_run
from tests.snapshot import sample
from tests.snapshot.stored.test_run_store import written
from tests.state_backends.conformance import FOR_ALL, FOR_SHARED, LARGE, written_alone
from tests.state_backends.conftest import BUCKET, OPTIONS


@pytest.mark.parametrize("check", FOR_ALL + FOR_SHARED)
def test_conformance(check: Callable[[StateBackend], None], s3_backend: ObjectStoreBackend) -> None:
    """It keeps the contract of all backends."""
    check(s3_backend)


@pytest.mark.parametrize("url", ["/path", "file:///x", "memory:///", "http://host/x", "s3://key:secret@bucket/x"])
def test_stores_without_a_durable_conditional_put_are_refused(url: str) -> None:
    """Only schemes that are known to have one are taken, and no credentials in the URL."""
    with pytest.raises(ValueError, match="s3://bucket/prefix"):
        ObjectStoreBackend(url)


def test_pickled_after_use(s3_backend: ObjectStoreBackend) -> None:
    """A worker's copy reaches the same place with the same credentials."""
    s3_backend.put_if_absent("a", [b"x"])
    assert pickle.loads(pickle.dumps(s3_backend)).get("a") == b"x"


def test_a_run_in_a_bucket(s3_backend: ObjectStoreBackend) -> None:
    """The whole way: claim, base, parts in objects of their own, manifest, verification, deletion."""
    s3_backend.inline_bytes_max = 0
    store = RunStore(s3_backend, sample.RUN)
    assert [store.take_claim(Claim(number, "o", f"{number}")) for number in range(1, 8)] == [True] * 7
    assert store.write_base(Base(7, None))
    written(store)
    findings = verify_run(s3_backend, sample.RUN)
    assert (findings.problems, findings.history) == ((), (sample.SNAPSHOT_ID,))
    assert store.read_snapshots(sample.CODEC)[0].node("P").state == {"balance": 1}
    store.delete_snapshot(sample.SNAPSHOT_ID, keep=[], claim=9)
    assert (store.manifests(), runs(s3_backend)) == ((), [sample.RUN])


_CALLS: dict[str, Callable[[StateBackend], object]] = {
    "put_if_absent": lambda backend: backend.put_if_absent("a", [b"x"]),
    "get": lambda backend: backend.get("a"),
    "exists": lambda backend: backend.exists("a"),
    "get a range": lambda backend: backend.get("a", 1, 2),
    "files": lambda backend: backend.files("run"),
    "delete one": lambda backend: backend.delete("a"),
    "delete several": lambda backend: backend.delete("a", "b"),
    "probe": lambda backend: backend.probe("run", "token"),
}


@pytest.mark.parametrize("call", _CALLS)
def test_a_missing_bucket_is_known_at_once(call: str, s3_endpoint: str) -> None:
    """A wrong bucket is an error that says so, never an empty store, and is not tried again until the deadline."""
    backend = ObjectStoreBackend("s3://no-such-bucket/x", endpoint=s3_endpoint, **OPTIONS)
    began = time.monotonic()
    with pytest.raises(
        StoreRefused,
        match=r"s3://no-such-bucket/x: there is no such bucket; create it, or correct the name .*NoSuchBucket",
    ):
        _CALLS[call](backend)
    assert time.monotonic() - began < 2.0


def test_submit_names_a_mistyped_bucket_within_two_seconds(s3_endpoint: str) -> None:
    """Neither Spark nor Ray is touched: the session can take a data source, and nothing else."""
    session = SimpleNamespace(dataSource=SimpleNamespace(register=lambda source: None))
    runtime = BarrierRuntime(
        cast(Any, session), backend=ObjectStoreBackend("s3://buckt/x", endpoint=s3_endpoint, **OPTIONS)
    )
    began = time.monotonic()
    with pytest.raises(
        StoreRefused, match=r"s3://buckt/x: there is no such bucket; create it, or correct the name .*NoSuchBucket"
    ):
        runtime.submit(Graph("never built"), name="run")
    assert time.monotonic() - began < 2.0


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a put in pieces begin with few bytes. S3 refuses pieces of less than 5 MiB, except the last."""
    monkeypatch.setattr(object_store, "MULTIPART_BYTES_MIN", 4)
    monkeypatch.setattr(object_store, "PIECE_BYTES", 5 * 1024 * 1024)


@pytest.mark.usefixtures("small_pieces")
def test_a_large_file_of_one_writer_is_put_in_pieces(s3_backend: ObjectStoreBackend) -> None:
    """No request holds the whole, because S3 takes 5 GiB in one; the tag of such an object ends with their number."""
    written_alone(s3_backend)
    assert _pieces_of(s3_backend, "a/large") == 3


@pytest.mark.usefixtures("small_pieces")
def test_large_parts_of_a_snapshot_are_put_in_pieces(s3_backend: ObjectStoreBackend) -> None:
    """A node's state and a piece of its rows take this way, signed or not."""
    for store in (s3_backend, SignedBackend(s3_backend, b"k" * 32)):
        files = PartFiles(store, type(store).__name__)
        (state,) = files.put_parts([state_part(files.run, 6, 6_000_001, sample.P, [LARGE])])
        (rows,) = files.put_rows(
            [rows_part(files.run, 6, 6_000_001, sample.P, (1, 1), (0, 9), [LARGE], 1)], inline=False
        )
        for handle in (state, rows):
            assert _pieces_of(s3_backend, f"{run_folder(files.run)}/{handle.path}") == 3
            assert files.read_part(handle) == LARGE


@pytest.mark.usefixtures("small_pieces")
def test_a_write_that_excludes_others_is_one_request(s3_backend: ObjectStoreBackend) -> None:
    """A put in pieces has no condition, so claims and manifests never take it, whatever their size."""
    assert s3_backend.put_if_absent("a", [LARGE])
    assert _pieces_of(s3_backend, "a") == 1


def _pieces_of(backend: ObjectStoreBackend, path: str) -> int:
    tag = obstore.head(backend._connect(), path)["e_tag"]
    assert tag is not None
    return int(tag.strip('"').partition("-")[2] or 1)


FORKER = """
import os, pickle, sys
backend = pickle.loads(bytes.fromhex(sys.argv[1]))
backend.exists("a")
if os.fork() == 0:
    try:
        backend.exists("a")
    except OSError as error:
        print(error, flush=True)
    os._exit(0)
os.wait()
"""


def test_use_before_a_fork_is_refused_in_the_child(s3_backend: ObjectStoreBackend) -> None:
    """The client's threads do not survive a fork: the child says so instead of hanging."""
    command = [sys.executable, "-c", FORKER, pickle.dumps(s3_backend).hex()]
    assert "and then forked" in subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


# ---- servers that misbehave


class Careless(http.server.BaseHTTPRequestHandler):
    """Speaks just enough of the protocol. `script` says what each PUT gets; the last entry is repeated."""

    protocol_version = "HTTP/1.1"
    #: of "ok" (whether or not it exists), "conditional" (as it should be), "500", "stored, then 500", "409"
    script: list[str]
    objects: dict[str, bytes]
    #: code of refusals
    code = "SomeCode"
    #: statuses of the next answers, whatever is asked
    answers: list[int]

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self._refuses():
            return
        step = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if step == "409":
            self._answer(HTTPStatus.CONFLICT)
        elif step == "500":
            self._answer(HTTPStatus.INTERNAL_SERVER_ERROR)
        elif step == "conditional" and self.path in self.objects:
            self._answer(HTTPStatus.PRECONDITION_FAILED)
        else:
            self.objects[self.path] = body
            self._answer(HTTPStatus.INTERNAL_SERVER_ERROR if step == "stored, then 500" else HTTPStatus.OK)

    def do_GET(self) -> None:
        if self._refuses():
            return
        url = urlsplit(self.path)
        query = parse_qs(url.query)
        if "list-type" in query:
            self._answer(HTTPStatus.OK, self._listing(f"{url.path}/{query['prefix'][0]}"))
            return
        found = self.objects.get(self.path)
        self._answer(HTTPStatus.NOT_FOUND if found is None else HTTPStatus.OK, found or b"")

    do_HEAD = do_GET

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        if self._refuses():
            return
        keys = re.findall("<Key>([^<]+)", body)
        for key in keys:
            self.objects.pop(f"{urlsplit(self.path).path}/{key}", None)
        deleted = "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in keys)
        self._answer(HTTPStatus.OK, f"<DeleteResult>{deleted}</DeleteResult>".encode())

    def do_DELETE(self) -> None:
        self.objects.pop(self.path, None)
        self._answer(HTTPStatus.NO_CONTENT)

    def log_message(self, *args: object) -> None:
        """Say nothing."""

    def _refuses(self) -> bool:
        if not self.answers:
            return False
        status = HTTPStatus(self.answers.pop(0))
        self._answer(
            status, f"<Error><Code>{self.code}</Code><Message>the store's own words</Message></Error>".encode()
        )
        return True

    def _listing(self, prefix: str) -> bytes:
        entry = (
            "<Contents><Key>{}</Key><Size>1</Size><ETag>x</ETag>"
            "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
        )
        keys = [path.split("/", 2)[2] for path in self.objects if path.startswith(prefix)]
        entries = "".join(entry.format(key) for key in keys)
        text = f"<ListBucketResult><Name>b</Name><KeyCount>{len(keys)}</KeyCount>{entries}</ListBucketResult>"
        return text.encode()

    def _answer(self, status: HTTPStatus, body: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", '"x"')
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


@contextmanager
def served(
    script: list[str], deadline: float = 20, answers: list[int] | None = None, code: str = "SomeCode"
) -> Iterator[tuple[ObjectStoreBackend, dict[str, bytes]]]:
    """A backend on such a server, and what the server holds."""
    objects: dict[str, bytes] = {}
    handler = type(
        "Scripted",
        (Careless,),
        {"script": script, "objects": objects, "answers": [] if answers is None else answers, "code": code},
    )
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_port}"
        yield ObjectStoreBackend(f"s3://{BUCKET}/x", endpoint=url, deadline=deadline, **OPTIONS), objects
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=10)


def test_a_server_that_ignores_the_condition_is_refused() -> None:
    """A store that overwrites is found out before the first write that matters."""
    with served(["ok"]) as (backend, objects):
        with pytest.raises(OSError, match="overwrites on a conditional put"):
            backend.put_if_absent("claims/1", [b"mine"])
        assert not any("claims" in path for path in objects)


PROBE = ["conditional", "conditional"]


def test_errors_of_the_server_are_tried_again() -> None:
    """5xx and conflicts without a winner are no answer: the request is repeated until there is one."""
    with served([*PROBE, "500", "409", "500", "conditional"]) as (backend, objects):
        assert backend.put_if_absent("a", [b"mi", b"ne"])
        assert not backend.put_if_absent("a", [b"other"])
        assert objects[f"/{BUCKET}/x/a"] == b"mine"


def test_a_write_whose_answer_was_lost_is_won() -> None:
    """The server stored it and then failed: asking again finds the very same bytes, so the write was ours."""
    with served([*PROBE, "stored, then 500", "conditional"]) as (backend, _):
        assert backend.put_if_absent("a", [b"mine"])
        assert not backend.put_if_absent("a", [b"mine"]), "without a lost answer equal bytes are another's"


def test_another_winner_is_seen_behind_a_lost_answer() -> None:
    """The write failed, and before it is repeated another writer wins: that is a loss."""
    with served([*PROBE, "500", "conditional"]) as (backend, objects):
        objects[f"/{BUCKET}/x/a"] = b"other"
        assert not backend.put_if_absent("a", [b"mine"])


def test_a_store_that_only_fails_is_given_up() -> None:
    """After the deadline the error is an OSError that names the store; credentials are not in it."""
    with served([*PROBE, "500"], deadline=0.5) as (backend, _):
        with pytest.raises(OSError, match=f"s3://{BUCKET}/x") as failed:
            backend.put_if_absent("a", [b"mine"])
        assert "a-secret-key" not in str(failed.value)


@pytest.mark.parametrize("call", _CALLS)
def test_an_option_that_is_missing_is_known_at_once(call: str) -> None:
    """Plain HTTP without the client's leave is refused by the first try."""
    options = {name: value for name, value in OPTIONS.items() if name != "client_options"}
    backend = ObjectStoreBackend(f"s3://{BUCKET}/x", endpoint="http://127.0.0.1:9", **options)
    with pytest.raises(StoreRefused, match=rf"s3://{BUCKET}/x: .*builder error \(BadScheme\)"):
        _CALLS[call](backend)


@pytest.mark.parametrize("call", _CALLS)
def test_a_store_that_is_not_there_is_given_up(call: str, caplog: pytest.LogCaptureFixture) -> None:
    """A refused connection is tried again, is logged at once and only once, and is in the deadline's error."""
    with served(["conditional"], deadline=0.3) as (backend, _):
        pass
    for _ in range(2):
        with pytest.raises(OSError, match=rf"s3://{BUCKET}/x.*\(Connection refused\)"):
            _CALLS[call](backend)
    assert [record.message.endswith("(Connection refused); tried again for 0.3 s") for record in caplog.records] == [
        True
    ]


#: What a store answers, and whether another try may help.
_ANSWERS = {
    **dict.fromkeys((400, 401, 402, 403, 405, 410, 411, 413, 414, 501, 505), False),
    **dict.fromkeys((301, 307), False),
    **dict.fromkeys((408, 429, 500, 502, 503, 504), True),
}


@pytest.mark.parametrize("call", ["put_if_absent", "get", "files", "delete several", "probe"])
@pytest.mark.parametrize("status", _ANSWERS)
def test_what_no_second_try_can_mend_is_tried_once(status: int, call: str) -> None:
    """Every status: either the cause is raised at once, or the request is repeated until the store has recovered."""
    answers: list[int] = []
    with served(["conditional"], deadline=4, answers=answers) as (backend, objects):
        objects[f"/{BUCKET}/x/a"] = b"content"
        backend.put_if_absent("b", [b"x"])
        answers.append(status)
        if _ANSWERS[status]:
            _CALLS[call](backend)
            assert answers == []
            return
        with pytest.raises(StoreRefused, match=f"s3://{BUCKET}/x.*({status}|redirect)") as refused:
            _CALLS[call](backend)
        assert answers == []
        assert "the store's own words" in str(refused.value) or status < 400


@pytest.mark.parametrize("code", ["RequestTimeout", "SlowDown"])
def test_codes_that_pass_are_tried_again(code: str) -> None:
    """S3 answers 400, the status of a wrong request, when the client's bytes came too slowly."""
    answers: list[int] = []
    with served(["conditional"], deadline=4, answers=answers, code=code) as (backend, _):
        answers += [400, 400]
        assert backend.put_if_absent("a", [b"x"])
        assert answers == []


def test_each_outage_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """However many requests fail, an outage is one line. The next outage is the next line."""
    answers: list[int] = []
    with served(["conditional"], deadline=4, answers=answers) as (backend, _):
        for _ in range(2):
            answers += [500, 500, 500]
            backend.files("a")
    assert ["the store's own words" in record.message for record in caplog.records] == [True, True]


def test_obstore_is_imported_only_when_used() -> None:
    """A process that only forks others holds a backend without its client's threads."""
    script = (
        "import sys; from cutline import ObjectStoreBackend; ObjectStoreBackend('s3://b/x'); "
        "sys.exit('obstore' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], timeout=60, env=dict(os.environ)).returncode == 0
