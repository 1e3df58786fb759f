"""Fixtures of live runs, as in tests/system, and of the S3 server of tests/state_backends."""

from __future__ import annotations

from tests.state_backends import conftest as backends
from tests.system import conftest as system

live = system.live
s3_endpoint = backends.s3_endpoint
