"""Single keys from the terminal, without Enter."""

from __future__ import annotations

import os
import select
import sys
import termios
import tty
from types import TracebackType
from typing import Self


class Keyboard:
    """While entered, keys come at once and are not shown. Standard input must be a terminal. Ctrl-C stays as it is."""

    def __init__(self) -> None:
        self._descriptor = sys.stdin.fileno()

    def __enter__(self) -> Self:
        self._before = termios.tcgetattr(self._descriptor)
        tty.setcbreak(self._descriptor)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        termios.tcsetattr(self._descriptor, termios.TCSADRAIN, self._before)

    def pressed(self, timeout: float) -> str | None:
        """The next key, in lower case; None after `timeout` seconds without one.

        Raises
        ------
        EOFError
            if the terminal is gone.
        """
        if not select.select([self._descriptor], [], [], timeout)[0]:
            return None
        key = os.read(self._descriptor, 1)
        if not key:
            raise EOFError
        return key.decode(errors="replace").lower()
