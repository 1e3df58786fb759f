"""Base of backends of stores that exclude second writers by a conditional put, which some servers ignore."""

from __future__ import annotations

import errno
import secrets
from abc import abstractmethod
from collections.abc import Sequence
from typing import Final

from cutline.snapshot.stored.backend import INLINE_BYTES_MAX, StoreRefused
from cutline.state_backends.base import CALL_SECONDS_MAX, DeadlineBackend

#: Path at which the store proved that it refuses a second put. The file stays, so that the next proof is one request.
PROOF: Final = "conditional-put"


class ConditionalPutBackend(DeadlineBackend):
    """Base of backends whose store must prove, before the first write, that it refuses a second put.

    Parameters
    ----------
    inline_bytes_max, deadline
        See `StateBackend` and `DeadlineBackend`.
    """

    def __init__(self, *, inline_bytes_max: int = INLINE_BYTES_MAX, deadline: float = CALL_SECONDS_MAX) -> None:
        super().__init__(inline_bytes_max=inline_bytes_max, deadline=deadline)
        #: this store has refused a second put
        self._proved = False

    def _put_if_absent(self, path: str, chunks: Sequence[memoryview]) -> bool:
        self._prove()
        return self._create(path, chunks)

    def _files(self, prefix: str) -> list[str]:
        return [path for path in self._list(prefix) if path != PROOF]

    def _prove(self) -> None:
        if self._proved:
            return
        if all(self._create(PROOF, [memoryview(secrets.token_bytes(16))]) for _ in range(2)):
            raise StoreRefused(
                errno.ENOTSUP,
                f"{self}: it overwrites on a conditional put (If-None-Match), so nothing can be published there safely",
            )
        self._proved = True

    @abstractmethod
    def _create(self, path: str, chunks: Sequence[memoryview]) -> bool:
        """Put a file by one conditional request. Return whether the file was absent."""

    @abstractmethod
    def _list(self, prefix: str) -> list[str]:
        """Return the paths of all files below `prefix`."""
