"""An S3 server on loopback, for all tests of backends."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import boto3  # type: ignore[import-untyped]
import pytest
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

from cutline import ObjectStoreBackend

BUCKET = "cutline-tests"
OPTIONS: dict[str, Any] = {
    "region": "us-east-1",
    "access_key_id": "an-id",
    "secret_access_key": "a-secret-key",
    "client_options": {"allow_http": True},
}


class _OneAtATime:
    """moto, one request after the other, because moto looks for an object and puts it in two steps."""

    def __init__(self) -> None:
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._lock = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        with self._lock:
            answer: Iterable[bytes] = self._moto(environ, start_response)
        return answer


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """The address of a server with one bucket."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = make_server("127.0.0.1", 0, _OneAtATime(), threaded=True)
    thread = threading.Thread(target=server.serve_forever, name="s3", daemon=True)
    thread.start()
    endpoint = f"http://127.0.0.1:{server.port}"
    client = boto3.client(
        "s3", endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="x"
    )
    client.create_bucket(Bucket=BUCKET)
    client.close()
    yield endpoint
    server.shutdown()
    thread.join()
    server.server_close()


_prefixes = itertools.count()


@pytest.fixture
def s3_backend(s3_endpoint: str) -> ObjectStoreBackend:
    """A backend below a prefix of its own."""
    return ObjectStoreBackend(f"s3://{BUCKET}/run {next(_prefixes)}/x", endpoint=s3_endpoint, **OPTIONS)
