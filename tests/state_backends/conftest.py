"""An S3 server on loopback, for all tests of backends."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator
from typing import Any

import boto3  # type: ignore[import-untyped]
import pytest
from moto.server import ThreadedMotoServer

from state_backends import ObjectStoreBackend

BUCKET = "cutline-tests"
OPTIONS: dict[str, Any] = {
    "region": "us-east-1",
    "access_key_id": "an-id",
    "secret_access_key": "a-secret-key",
    "client_options": {"allow_http": True},
}


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """The address of a server with one bucket."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    client = boto3.client(
        "s3", endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="x"
    )
    client.create_bucket(Bucket=BUCKET)
    client.close()
    yield endpoint
    server.stop()


_prefixes = itertools.count()


@pytest.fixture
def s3_backend(s3_endpoint: str) -> ObjectStoreBackend:
    """A backend below a prefix of its own."""
    return ObjectStoreBackend(f"s3://{BUCKET}/run {next(_prefixes)}/x", endpoint=s3_endpoint, **OPTIONS)
