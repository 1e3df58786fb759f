"""A selectors loop for one thread: calls back for ready descriptors, and can be woken by other threads."""

from __future__ import annotations

import contextlib
import selectors
import socket
from collections.abc import Callable
from typing import Protocol


class Watched(Protocol):
    """An object with a descriptor that the reactor can wait for."""

    def fileno(self) -> int:
        """Return the descriptor, which is negative once closed."""


class Writer(Watched, Protocol):
    """A watched object that may also wait until its descriptor is writable."""

    @property
    def wants_write(self) -> bool:
        """True when data waits to be written."""


class Reactor:
    """Calls back when descriptors are ready. Call all methods but `wake` on the loop's thread."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        self._selector.register(self._wake_in, selectors.EVENT_READ, lambda: self._wake_in.recv(4096))
        #: {descriptor: its watched writer}
        self._writers: dict[int, Writer] = {}

    def add(self, watched: Watched, act: Callable[[], object]) -> None:
        """Call `act` whenever `watched` is readable."""
        self._selector.register(watched, selectors.EVENT_READ, act)

    def add_writer(self, writer: Writer, act: Callable[[], object]) -> None:
        """Call `act` whenever `writer` is readable, or writable while it wants to write."""
        self.add(writer, act)
        self._writers[writer.fileno()] = writer

    def remove(self, watched: Watched) -> None:
        """Stop watching an object. Call before closing the object. Ignore an object that is not watched."""
        descriptor = watched.fileno()
        if descriptor >= 0 and descriptor in self._selector.get_map():
            self._selector.unregister(watched)
            self._writers.pop(descriptor, None)

    def wait(self, seconds: float) -> None:
        """Sleep until a descriptor is ready, `wake` is called, or `seconds` have passed. Then call back."""
        self._watch_writers()
        for key, _ in self._selector.select(seconds):
            if self._selector.get_map().get(key.fd) is key:  # otherwise an earlier callback has removed the object
                key.data()

    def wake(self) -> None:
        """Make `wait` return. May be called on any thread, even after the loop has ended."""
        # An error is ignored, because the loop is woken already if the buffer is full, or has ended.
        with contextlib.suppress(OSError):
            self._wake_out.send(b"\0")

    def close(self) -> None:
        """Close the reactor's descriptors. Watched objects stay open."""
        self._selector.close()
        self._wake_in.close()
        self._wake_out.close()

    def _watch_writers(self) -> None:
        """Poll for writability only while data waits, because an idle socket is always writable."""
        for descriptor, writer in self._writers.items():
            wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if writer.wants_write else 0)
            key = self._selector.get_key(descriptor)
            if key.events != wanted:
                self._selector.modify(key.fileobj, wanted, key.data)
