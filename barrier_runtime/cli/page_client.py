"""Asks a run's live page, by its JSON interface. Every failure is an OSError whose text says what to do.

Goes to the given address only: no redirection is followed and no proxy is used, so nobody else sees the token.
"""

from __future__ import annotations

import difflib
import json
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

#: Seconds for one answer: the page answers from memory.
ANSWER_SECONDS_MAX = 5.0

#: Bytes of an answer; a document of a thousand edges, a hundred snapshots and ten minutes of points is far smaller.
ANSWER_BYTES_MAX = 32 * 1024 * 1024

_HINT_ADDRESS = "give the address that was printed when the run was submitted, with its token if it has one"


class PageClient:
    """One page, and the run that its address names.

    Parameters
    ----------
    address : str
        ``http://HOST:PORT``, with ``/runs/NAME`` and ``?token=...`` or without; as it was printed at submit.

    Raises
    ------
    ValueError
        if it is no such address.
    """

    def __init__(self, address: str) -> None:
        place = urlsplit(address if "://" in address else f"http://{address}")
        if place.scheme not in ("http", "https") or not place.hostname:
            raise ValueError(f"{address!r} is no address of a page, as http://127.0.0.1:4640/runs/bank is")
        self._class = HTTPSConnection if place.scheme == "https" else HTTPConnection
        self._host, self._port = place.hostname, place.port
        self.address = f"{place.scheme}://{place.netloc}"
        folder, _, name = place.path.partition("/runs/")
        #: the run that the address names, if it does
        self.run = unquote(name) or None
        self._folder = folder.rstrip("/")
        token = parse_qs(place.query).get("token")
        self._headers = {"Authorization": f"Bearer {token[0]}"} if token else {}

    def find_run(self, name: str | None) -> str:
        """The run that is meant: `name`, or what the address names, or the one that is on.

        Raises
        ------
        OSError
            if there is none, or more than one, or the page does not answer.
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
        """All that the page knows of a run."""
        document: dict[str, Any] = self._ask("GET", f"/api/runs/{quote(run, safe='')}")
        return document

    def request_snapshot(self, run: str) -> bool:
        """Have a snapshot taken; returns at once. False: one that was ordered before is still being taken."""
        return self._ask("POST", f"/api/runs/{quote(run, safe='')}/snapshot") is not None

    def _ask(self, method: str, path: str) -> Any:
        """The answer's JSON; None where it is that this is being done already."""
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
