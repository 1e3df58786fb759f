"""Plain HTTP requests with exactly the headers that a test wants to send."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from http.client import HTTPConnection
from typing import Any, NamedTuple
from urllib.parse import urlsplit

#: Seconds that an answer may take on a crowded machine.
_DEADLINE_S = 30.0


class Answer(NamedTuple):
    """What came back."""

    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def json(self) -> Any:
        """The body, parsed."""
        return json.loads(self.text)


def ask(address: str, path: str, *, method: str = "GET", **headers: str) -> Answer:
    """Ask the server of `address`; underscores in names of headers are hyphens."""
    place = urlsplit(address)
    connection = HTTPConnection(place.hostname or "", place.port, timeout=_DEADLINE_S)
    try:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, headers=named)
        response = connection.getresponse()
        found = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, found, response.read().decode())
    finally:
        connection.close()


def events(address: str, path: str) -> Iterator[dict[str, Any] | None]:
    """The documents of a stream as they come, until the server ends it; None: it says that nothing follows."""
    place = urlsplit(address)
    connection = HTTPConnection(place.hostname or "", place.port, timeout=_DEADLINE_S)
    try:
        connection.request("GET", path)
        for line in connection.getresponse():
            if line.startswith(b"data: "):
                yield json.loads(line[6:])
            elif line == b"event: end\n":
                yield None
    finally:
        connection.close()
