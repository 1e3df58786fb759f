"""The command ``cutline top``: a live view of a run in the terminal, made from the document of the run's page."""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from types import TracebackType
from typing import Annotated, Any, Self

import typer
from rich.console import Console
from rich.live import Live

from cutline.barrier_runtime.cli.formatting import print_json, verdict_lines
from cutline.barrier_runtime.cli.live_run import (
    DEFAULT_ADDRESS,
    AddressArgument,
    LiveRunOption,
    find_run,
    open_page_client,
)
from cutline.barrier_runtime.cli.page_client import PageClient
from cutline.barrier_runtime.cli.top_view import top_view
from cutline.barrier_runtime.page.commands import Kind


class Keyboard:
    """Read keys at once and without echo while entered. Standard input must be a terminal. Ctrl-C keeps its effect."""

    def __init__(self) -> None:
        self._descriptor = sys.stdin.fileno()

    def __enter__(self) -> Self:
        self._before = termios.tcgetattr(self._descriptor)
        tty.setcbreak(self._descriptor)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        termios.tcsetattr(self._descriptor, termios.TCSADRAIN, self._before)

    def pressed(self, timeout: float) -> str | None:
        """Return the next key in lower case, or None after `timeout` seconds without a key.

        Raises
        ------
        EOFError
            if the terminal was closed.
        """
        if not select.select([self._descriptor], [], [], timeout)[0]:
            return None
        key = os.read(self._descriptor, 1)
        if not key:
            raise EOFError
        return key.decode(errors="replace").lower()


#: seconds between two polls, which is enough because workers report twice a second and rates cover two seconds
POLL_SECONDS = 1.0


def top(
    address: AddressArgument = DEFAULT_ADDRESS,
    run: LiveRunOption = None,
    once: Annotated[bool, typer.Option("--once", help="Print one view, and end.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the page's document as JSON, and end.")] = False,
) -> None:
    """Watch a run: its nodes, its edges with rates and back-pressure, its newest snapshots, restarts, invariants.

    Keys: s takes a snapshot, q quits. Without a terminal one view is printed. The exit code is 1 if, in the last
    view, the run had failed, or an invariant was violated or could not be judged.

    Example: `cutline top http://127.0.0.1:4640 --run bank`
    """
    client = open_page_client(address)
    name = find_run(client, run)
    console = Console()
    if as_json or once or not (console.is_terminal and sys.stdin.isatty()):
        document = client.document(name)
        if as_json:
            print_json(document)
        else:
            console.print(top_view(document, console.width, None))
    else:
        document = _Watch(client, name, console).until_quit()
    raise typer.Exit(1 if _is_bad(document) else 0)


class _Watch:
    def __init__(self, client: PageClient, name: str, console: Console) -> None:
        self._client = client
        self._name = name
        self._console = console
        self._document = client.document(name)
        self._lost_since: float | None = None
        self._note = ""

    def until_quit(self) -> dict[str, Any]:
        """Show the run until q or Ctrl-C is pressed, or the terminal is closed. Return the last document."""
        # The keyboard is entered outside of the screen, so that the previous screen is shown at the end.
        with Keyboard() as keyboard, Live(console=self._console, auto_refresh=False, screen=True) as live:
            try:
                while True:
                    live.update(self._view(), refresh=True)
                    key = keyboard.pressed(POLL_SECONDS)
                    if key == "q":
                        break
                    if key == "s":
                        self._request_snapshot()
                    self._poll()
            except EOFError:
                pass
        return self._document

    def _view(self) -> Any:
        note = self._note
        if self._lost_since is not None:
            note = f"connection lost {time.monotonic() - self._lost_since:.0f} s ago; {note}"
        return top_view(self._document, self._console.width, self._console.height, note)

    def _poll(self) -> None:
        if not self._document["isActive"]:
            return  # because an ended run does not change, and its page may be closed
        try:
            self._document = self._client.document(self._name)
        except OSError as error:
            if self._lost_since is None:
                self._lost_since, self._note = time.monotonic(), str(error)
            return
        if self._lost_since is not None:
            self._lost_since, self._note = None, ""

    def _request_snapshot(self) -> None:
        try:
            number = self._client.send(self._name, Kind.SNAPSHOT, {})
        except OSError as error:
            self._note = str(error)
            return
        self._note = "" if number is not None else "a snapshot that was requested before is still being taken"


def _is_bad(document: dict[str, Any]) -> bool:
    return document["outcome"] == "failed" or bool(verdict_lines(document["invariants"]))
