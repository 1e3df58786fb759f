"""Client of a run's live page and its JSON interface. Every failure is an OSError whose text suggests a remedy.

Requests go only to the given address, without redirects and proxies, because no other host may receive the token.
"""

from __future__ import annotations

import contextlib
import difflib
import json
from collections.abc import Generator, Iterator, Mapping
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, NoReturn, TypeAlias
from urllib.parse import parse_qs, quote, unquote, urlencode, urlsplit

from cutline.barrier_runtime.page.commands import Kind, State

#: seconds for one answer, which is enough because the page answers from memory
ANSWER_SECONDS_MAX = 5.0

#: bytes of an answer that are read; a document of 1000 edges, 100 snapshots and ten minutes of points is far smaller
ANSWER_BYTES_MAX = 32 * 1024 * 1024

#: seconds between two lines of a stream: several times the page's five, because a busy driver is late
STREAM_SECONDS_MAX = 30.0

#: the page's document of a run, or the record of a command in the document
Document: TypeAlias = dict[str, Any]

#: environment variable with the token of the page, which need not stand on a command line that others see
TOKEN_VARIABLE = "CUTLINE_PAGE_TOKEN"

_HINT_ADDRESS = (
    "give the address that was printed when the run was submitted, with its token if it has one, "
    f"or the token in ${TOKEN_VARIABLE}"
)


class _Refused(ConnectionError):
    """The page answers with a status that is no success."""


class PageClient:
    """Send requests to a live page.

    Parameters
    ----------
    address : str
        ``http://HOST:PORT``, optionally with ``/runs/NAME`` and ``?token=...``, as printed when the run was submitted.
    token : str or None
        Token that is sent where the address has none.

    Raises
    ------
    ValueError
        if `address` is not the address of a page.
    """

    def __init__(self, address: str, token: str | None = None) -> None:
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
        token = parse_qs(place.query).get("token", [token])[0]
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    def find_run(self, name: str | None) -> str:
        """Return `name`, or else the run in the address, or else the active run, or else the newest ended run.

        Raises
        ------
        OSError
            if the page does not show that run or does not answer, or if several runs are active and none is named.
        """
        answer = self._ask("GET", "/api/runs")
        if not isinstance(answer, dict) or "runs" not in answer:
            raise self._foreign()
        runs = answer["runs"]
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

    def send(self, run: str, kind: Kind, arguments: Mapping[str, str]) -> int | None:
        """Send a command and return its number at once. Return None while the same command still waits."""
        place = f"/api/runs/{quote(run, safe='')}/{kind.value}"
        answer = self._ask("POST", f"{place}?{urlencode(arguments)}" if arguments else place)
        return None if answer is None else int(answer["command"])

    def carry_out(self, run: str, kind: Kind, arguments: Mapping[str, str]) -> Iterator[tuple[Document, Document]]:
        """Send a command. Yield each new document of the run with the record of the command, until the command is done.

        Raises
        ------
        OSError
            if the run has ended, the same command still waits, or the page does not answer.
        """
        with contextlib.closing(self._documents(run)) as documents:
            # Before the command is sent, because the page may close when the run ends.
            first = next(documents, None)
            if first is None:
                raise self._foreign()
            if not first["isActive"]:
                raise _ended(run, first)
            number = self.send(run, kind, arguments)
            if number is None:
                raise BlockingIOError(f"run {run!r}: the same command still waits; try again when it is done")
            for document in documents:
                command = next((each for each in document["commands"] if each["number"] == number), None)
                if command is not None:
                    yield document, command
                    if command["state"] != State.WAITING.value:
                        return
            raise ConnectionError(f"run {run!r} ended before the command was done; its store has the outcome")

    def _documents(self, run: str) -> Generator[Document]:
        """Yield the whole document of a run, then each newer one with its changes, until the run ends."""
        path = f"/api/runs/{quote(run, safe='')}/events"
        connection = self._class(self._host, self._port, timeout=STREAM_SECONDS_MAX)
        try:
            connection.request("GET", self._folder + path, headers=self._headers)
            answer = connection.getresponse()
            if answer.status != HTTPStatus.OK:
                self._refuse(answer.status, answer.read(ANSWER_BYTES_MAX), path)
            while line := answer.readline(ANSWER_BYTES_MAX):
                if line.startswith(b"data: "):
                    yield json.loads(line[len(b"data: ") :])
        except (OSError, HTTPException) as error:
            raise error if isinstance(error, PermissionError | _Refused) else _no_page(self.address, error) from error
        finally:
            connection.close()

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
        if answer.status not in (HTTPStatus.OK, HTTPStatus.ACCEPTED):
            self._refuse(answer.status, body, path)
        try:
            return json.loads(body)
        except ValueError as error:
            raise self._foreign() from error

    def _foreign(self) -> OSError:
        return ConnectionError(f"{self.address} answers, but is no live page of a run: {_HINT_ADDRESS}")

    def _refuse(self, status: int, body: bytes, path: str) -> NoReturn:
        if status == HTTPStatus.UNAUTHORIZED:
            raise PermissionError(f"the page at {self.address} wants its token: {_HINT_ADDRESS}")
        text = body[:200].decode(errors="replace").strip()
        raise _Refused(f"{self.address}{path} answers {status}, {text!r}: {_HINT_ADDRESS}")


def _ended(run: str, document: Document) -> OSError:
    error = OSError(f"run {run!r} is over: {document['outcome'] or 'ended'}")
    error.add_note("hint: give the place of its snapshots instead of an address; cutline restore goes on with a run")
    return error


def _no_page(address: str, error: Exception) -> ConnectionError:
    what = str(error) or type(error).__name__
    found = ConnectionError(f"there is no live page at {address} ({what})")
    found.add_note(f"hint: it is there while a run is on, unless page=False; {_HINT_ADDRESS}")
    return found
