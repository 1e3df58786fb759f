"""Settings of the page that users pass to `BarrierRuntime`: its address and its token."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

#: default port, above Spark's 4040 and the ports after 4040, which the pages of Spark sessions take
PORT_DEFAULT = 4640

_PORT_MAX = 65535


@dataclass(frozen=True, slots=True)
class Page:
    """Settings of the live page.

    Parameters
    ----------
    port : int
        First port that is tried. The next free port is used when this port is taken. With 0 the system chooses.
    host : str
        Address to listen on. Every address except loopback needs a token.
    token : str or None
        Token that every request must show. None means no token on loopback, and a random token on every other
        address, which is then part of ``Run.pageAddress``.
    """

    port: int = PORT_DEFAULT
    host: str = "127.0.0.1"
    token: str | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.port <= _PORT_MAX:
            raise ValueError(f"port is {self.port}; a port is 0 to {_PORT_MAX}")
        if not self.host:
            raise ValueError("host is empty; give 127.0.0.1, or 0.0.0.0 for all interfaces")
        if self.token is not None and not (self.token.isascii() and self.token.isprintable() and self.token.strip()):
            raise ValueError("a token is printable ASCII, and not empty")

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the page."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def settings_of(page: bool | Page) -> Page | None:
    """Parse `page` of `BarrierRuntime`. Return None for no page."""
    if isinstance(page, Page):
        return page
    return Page() if page else None
