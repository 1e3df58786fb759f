"""Client of a run's live page and its JSON interface. Every failure is an OSError whose text suggests a remedy.

Requests go only to the given address, without redirects and proxies, because no other host may receive the token.
"""

from __future__ import annotations

import difflib
import json
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

#: seconds for one answer, which is enough because the page answers from memory
ANSWER_SECONDS_MAX = 5.0

#: bytes of an answer that are read; a document of 1000 edges, 100 snapshots and ten minutes of points is far smaller
ANSWER_BYTES_MAX = 32 * 1024 * 1024

_HINT_ADDRESS = "give the address that was printed when the run was submitted, with its token if it has one"


class PageClient:
    """Send requests to a live page.

    Parameters
    ----------
    address : str
        ``http://HOST:PORT``, optionally with ``/runs/NAME`` and ``?token=...``, as printed when the run was submitted.

    Raises
    ------
    ValueError
        if `address` is not the address of a page.
    """

    def __init__(self, address: str) -> None:
        place = urlsplit(address if "://" in address else f"http://{address}")
        if place.scheme not in ("http", "https") or not place.hostname:
            raise ValueError(f"{address!r} is no address of a page, as http://127.0.0.1:4640/runs/bank is")
        self._class = HTTPSConnection if place.scheme == "https" else HTTPConnection
        self._host, self._port = place.hostname, place.port
        self.address = f"{place.scheme}://{place.netloc}"
        folder, _, name = place.path.partition("/runs/")
        #: name of the run in the address, or None
        self.run = unquote(name) or None
        self._folder = folder.rstrip("/")
        token = parse_qs(place.query).get("token")
        self._headers = {"Authorization": f"Bearer {token[0]}"} if token else {}

    def find_run(self, name: str | None) -> str:
        """Return `name`, or else the run in the address, or else the active run, or else the newest ended run.

        Raises
        ------
        OSError
            if the page does not show that run or does not answer, or if several runs are active and none is named.
        """
        runs = self._ask("GET", "/api/runs")["runs"]
        names = [each["name"] for each in runs]
        wanted = name or self.run
        if wanted is not None:
            if wanted in names:
                return wanted
            near = difflib.get_close_matches(wanted, names, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names) or 'none'}"
            raise FileNotFoundError(f"the page at {self.address} shows no run {wanted!r}: {hint}")
        if not names:
            raise FileNotFoundError(f"the page at {self.address} shows no run yet")
        active = [each["name"] for each in runs if each["isActive"]]
        if len(active) > 1:
            raise FileNotFoundError(f"{self.address} has the runs {', '.join(active)}: name one with --run")
        return str(active[0] if active else names[-1])

    def document(self, run: str) -> dict[str, Any]:
        """Return the page's whole document of a run."""
        document: dict[str, Any] = self._ask("GET", f"/api/runs/{quote(run, safe='')}")
        return document

    def request_snapshot(self, run: str) -> bool:
        """Request a snapshot and return at once. Return False while an earlier request still waits."""
        return self._ask("POST", f"/api/runs/{quote(run, safe='')}/snapshot") is not None

    def _ask(self, method: str, path: str) -> Any:
        """Send a request and return the JSON of the answer. Return None when the same command already waits."""
        connection = self._class(self._host, self._port, timeout=ANSWER_SECONDS_MAX)
        try:
            connection.request(method, self._folder + path, headers={**self._headers, "X-Cutline-Request": "top"})
            answer = connection.getresponse()
            body = answer.read(ANSWER_BYTES_MAX)
        except (OSError, HTTPException) as error:
            raise _no_page(self.address, error) from error
        finally:
            connection.close()
        if answer.status == HTTPStatus.CONFLICT and method == "POST":
            return None
        if answer.status == HTTPStatus.UNAUTHORIZED:
            raise PermissionError(f"the page at {self.address} wants its token: {_HINT_ADDRESS}")
        if answer.status not in (HTTPStatus.OK, HTTPStatus.ACCEPTED):
            said = body[:200].decode(errors="replace").strip()
            raise ConnectionError(f"{self.address}{path} answers {answer.status}, {said!r}: {_HINT_ADDRESS}")
        try:
            return json.loads(body)
        except ValueError as error:
            raise ConnectionError(f"{self.address} answers, but is no live page of a run: {_HINT_ADDRESS}") from error


def _no_page(address: str, error: Exception) -> ConnectionError:
    what = str(error) or type(error).__name__
    found = ConnectionError(f"there is no live page at {address} ({what})")
    found.add_note(f"hint: it is there while a run is on, unless page=False; {_HINT_ADDRESS}")
    return found
