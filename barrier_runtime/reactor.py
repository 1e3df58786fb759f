"""A selectors loop for one thread: what to do when something is readable, and how other threads wake it."""

from __future__ import annotations

import contextlib
import selectors
import socket
from collections.abc import Callable
from typing import Protocol


class Watched(Protocol):
    """Something that can be waited for."""

    def fileno(self) -> int:
        """Its descriptor; negative once closed."""


class Writer(Watched, Protocol):
    """Something that also may have to wait until it can write."""

    @property
    def wants_write(self) -> bool:
        """Something waits to be written."""


class Reactor:
    """Calls back when descriptors are ready. All methods but `wake` belong to the loop's thread."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        self._selector.register(self._wake_in, selectors.EVENT_READ, lambda: self._wake_in.recv(4096))
        #: {descriptor: the writer that is watched there}
        self._writers: dict[int, Writer] = {}

    def add(self, watched: Watched, act: Callable[[], object]) -> None:
        """Call `act` whenever `watched` is readable."""
        self._selector.register(watched, selectors.EVENT_READ, act)

    def add_writer(self, writer: Writer, act: Callable[[], object]) -> None:
        """Call `act` whenever `writer` is readable, or writable while it wants to write."""
        self.add(writer, act)
        self._writers[writer.fileno()] = writer

    def remove(self, watched: Watched) -> None:
        """Watch it no longer. To be called before it is closed; nothing happens if it is not watched."""
        descriptor = watched.fileno()
        if descriptor >= 0 and descriptor in self._selector.get_map():
            self._selector.unregister(watched)
            self._writers.pop(descriptor, None)

    def wait(self, seconds: float) -> None:
        """Sleep until something is ready, `wake` is called, or the time is over; then call back."""
        self._watch_writers()
        for key, _ in self._selector.select(seconds):
            if self._selector.get_map().get(key.fd) is key:  # else an earlier call back has removed it
                key.data()

    def wake(self) -> None:
        """Make `wait` return. May be called on any thread, also when the loop has ended."""
        # It has been woken often enough, or nobody is left to be woken.
        with contextlib.suppress(OSError):
            self._wake_out.send(b"\0")

    def close(self) -> None:
        """Give everything back; what was watched is not closed."""
        self._selector.close()
        self._wake_in.close()
        self._wake_out.close()

    def _watch_writers(self) -> None:
        """Ask for writability exactly while something waits for it: a writable socket is always ready."""
        for descriptor, writer in self._writers.items():
            wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if writer.wants_write else 0)
            key = self._selector.get_key(descriptor)
            if key.events != wanted:
                self._selector.modify(key.fileobj, wanted, key.data)
