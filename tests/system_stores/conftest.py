"""Fixtures of live runs, as in tests/system, and of the S3 server of tests/state_backends."""

from __future__ import annotations

import pytest

from cutline import ObjectStoreBackend
from tests.state_backends import conftest as backends
from tests.system import conftest as system

live = system.live
s3_server = backends.s3_endpoint


@pytest.fixture(scope="session")
def s3_endpoint(s3_server: str) -> str:
    """The server's URL. The client is used once: it keeps its threads' descriptors for the life of the process."""
    backend = ObjectStoreBackend(f"s3://{backends.BUCKET}/first-use", endpoint=s3_server, **backends.OPTIONS)
    assert not backend.exists("nothing")
    return s3_server
