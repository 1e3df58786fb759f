"""The real disk: what the tests of whole backends cannot bring about."""

from __future__ import annotations

import os

from cutline.state_backends.disk import Disk


def test_a_hint_that_is_refused_is_no_error() -> None:
    """Only `sync` makes bytes durable, so a file system may refuse to begin earlier, as a pipe does."""
    reading, writing = os.pipe()
    try:
        Disk().begin_sync(writing, 0, 1)
    finally:
        os.close(reading)
        os.close(writing)
