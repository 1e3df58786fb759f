"""Snapshots in an object store: S3 and stores with its protocol, Google Cloud Storage, Azure.

Owns the mapping of the contract to requests, and which answers of a store may pass. Must not know what is stored.
obstore is imported at the first call, because its threads do not survive a fork. So a process that only forks others
never starts them.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from cutline.snapshot.stored.backend import INLINE_BYTES_MAX, StoreRefused
from cutline.state_backends.base import CALL_SECONDS_MAX
from cutline.state_backends.conditional_put import ConditionalPutBackend
from cutline.state_backends.retries import status_may_pass

if TYPE_CHECKING:
    from obstore.store import ObjectStore

#: Bytes from which a file that has one writer is put in pieces. One request takes at most 5 GiB (S3) or 5,000 MiB
#: (Azure), and is repeated as a whole.
MULTIPART_BYTES_MIN = 256 * 1024 * 1024

#: Bytes of such a piece, and how many are on their way at one time. S3 takes 10,000 pieces, so 640 GB.
PIECE_BYTES = 64 * 1024 * 1024
PIECES_AT_ONCE_MAX = 8

#: Schemes whose conditional put is known to exist and to be durable. obstore's own ``file://`` syncs nothing.
SCHEMES = ("s3", "s3a", "gs", "az", "abfs", "abfss", "adl", "azure")

#: Texts by which stores answer that the bucket does not exist: S3, Google Cloud Storage, Azure.
_NO_BUCKET = ("NoSuchBucket", "bucket does not exist", "ContainerNotFound", "ContainerBeingDeleted")

#: Texts by which the client reports wrong options: another region, a scheme that is not allowed.
_WRONG_OPTIONS = ("Received redirect without LOCATION", "HTTP error: builder error")

#: Codes by which S3 reports a passing trouble with a status of a wrong request.
_PASSING_CODES = ("RequestTimeout", "SlowDown")

_STATUS = re.compile(r"status code: (\d{3})")

#: Parts of an error's text that hold the cause: the code and message of a store, the text of the network or of TLS.
_CAUSES = re.compile(
    r"<Code>([^<]+)|<Message>([^<]+)|(?:message|error): \"([^\"]+)\"|\b(BadScheme|TimedOut|InvalidCertificate\([^)]*\))"
)

#: Process id in which obstore's threads run, or None before their first use.
_threads_of_pid: int | None = None


class ObjectStoreBackend(ConditionalPutBackend):
    """Store snapshots below a prefix of a bucket.

    The parts that a worker gives to a snapshot are one object or a few. `deadline` bounds the put of each, whatever
    its size. A put in pieces that a process left unfinished is invisible. Its pieces cost space until a lifecycle rule
    of the bucket removes them.

    Parameters
    ----------
    url : str
        ``s3://bucket/prefix``, or the same form with ``gs://`` or ``az://``.
    inlineBytesMax, deadline
        See `StateBackend` and `DeadlineBackend`.
    options
        Options of obstore's store: ``endpoint``, ``region``, ``access_key_id``, ``client_options``, … Without
        credentials those of the environment are used. Options are pickled with the backend and never shown.

    Raises
    ------
    ValueError
        if the scheme is none of `SCHEMES`, or the URL names a user.
    """

    def __init__(
        self, url: str, *, inlineBytesMax: int = INLINE_BYTES_MAX, deadline: float = CALL_SECONDS_MAX, **options: Any
    ) -> None:
        super().__init__(inline_bytes_max=inlineBytesMax, deadline=deadline)
        if urlsplit(url).scheme not in SCHEMES or urlsplit(url).username:
            raise ValueError(f"an object store is given as s3://bucket/prefix; schemes: {', '.join(SCHEMES)}")
        self.url = url.rstrip("/")
        self._options = options
        self._store: ObjectStore | None = None

    def __str__(self) -> str:
        return self.url

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_store": None}

    def _get(self, path: str, offset: int, size: int | None) -> bytes:
        import obstore
        from obstore.exceptions import GenericError

        store = self._connect()
        if not offset and size is None:
            return bytes(obstore.get(store, path).bytes())
        if size == 0:
            return b""
        wanted: Any = {"offset": offset} if size is None else (offset, offset + size)
        try:
            return bytes(obstore.get(store, path, options={"range": wanted}).bytes())
        except GenericError:
            if offset < obstore.head(store, path)["size"]:
                raise
            return b""  # because the store refuses a range that begins past the end

    def _exists(self, path: str) -> bool:
        import obstore

        store = self._connect()
        try:
            obstore.head(store, path)
        except FileNotFoundError:
            # The answer to HEAD has no body, so it does not tell an object from a bucket. A listing does.
            next(iter(obstore.list(store, path, chunk_size=1)), None)
            return False
        return True

    def _list(self, prefix: str) -> list[str]:
        import obstore

        return [entry["path"] for page in obstore.list(self._connect(), prefix or None) for entry in page]

    def _delete(self, paths: Sequence[str]) -> None:
        import obstore

        try:
            # Removes many files by one request, if the store has such requests.
            obstore.delete(self._connect(), list(paths))
        except FileNotFoundError as error:
            if _misses_bucket(error):
                raise
            for path in paths if len(paths) > 1 else ():  # the rest may not have been removed
                self._delete([path])

    def _create(self, path: str, chunks: Sequence[memoryview]) -> bool:
        import obstore
        from obstore.exceptions import AlreadyExistsError, GenericError

        try:
            obstore.put(self._connect(), path, list(chunks), mode="create", use_multipart=False)
        except AlreadyExistsError as error:
            # Also the answer when two puts conflict and neither may have won.
            if not self._exists(path):
                raise GenericError(f"{path}: two writers met and nobody won") from error
            return False
        return True

    def _put_alone(self, path: str, chunks: Sequence[memoryview]) -> bool:
        import obstore

        if sum(map(len, chunks)) < MULTIPART_BYTES_MIN:
            return self._put_if_absent(path, chunks)
        if self._exists(path):  # because a put in pieces has no condition
            return False
        # The object appears whole, with the last request.
        obstore.put(self._connect(), path, _pieces(chunks), chunk_size=PIECE_BYTES, max_concurrency=PIECES_AT_ONCE_MAX)
        return True

    def _translated(self, what: str, error: Exception) -> Exception:
        from obstore.exceptions import BaseError

        if isinstance(error, StoreRefused) or not isinstance(error, BaseError | FileNotFoundError):
            return error
        if _misses_bucket(error):
            text = f"{self}: there is no such bucket; create it, or correct the name ({_cause(error)})"
            return StoreRefused(errno.ENODEV, text)
        text = f"{what}: {_cause(error)}"
        if isinstance(error, FileNotFoundError):
            return FileNotFoundError(errno.ENOENT, text)
        return (OSError if _may_pass(error) else StoreRefused)(errno.EIO, text)

    def _connect(self) -> ObjectStore:
        global _threads_of_pid
        if _threads_of_pid not in (None, os.getpid()):
            text = f"{self}: process {_threads_of_pid} used an object store and then forked; use it in the child only"
            raise OSError(errno.ENOTSUP, text)
        if self._store is None:
            from datetime import timedelta

            from obstore import store as stores

            _threads_of_pid = os.getpid()
            options = dict(self._options)
            client_options = {"timeout": timedelta(seconds=self._deadline.seconds), **options.pop("client_options", {})}
            # No retries of obstore's own, because they would hide a lost answer.
            retry_config: Any = {"max_retries": 0, "retry_timeout": timedelta(0)}
            from_url: Any = stores.from_url  # typed Any because its overloads are one per scheme
            self._store = from_url(self.url, client_options=client_options, retry_config=retry_config, **options)
        return self._store


def _pieces(chunks: Sequence[memoryview]) -> Iterator[memoryview]:
    """Yield `chunks`, none longer than a piece, because each is copied as a whole."""
    for chunk in chunks:
        for start in range(0, len(chunk), PIECE_BYTES):
            yield chunk[start : start + PIECE_BYTES]


def _may_pass(error: BaseException) -> bool:
    """Return whether another try of the request may succeed."""
    from obstore.exceptions import GenericError, JoinError

    if isinstance(error, JoinError):
        return True
    text = str(error)
    if not isinstance(error, GenericError) or _misses_bucket(error) or any(sign in text for sign in _WRONG_OPTIONS):
        return False
    status = _STATUS.search(text)
    if status is None or any(f"<Code>{code}<" in text for code in _PASSING_CODES):
        return True
    return status_may_pass(int(status[1]))


def _misses_bucket(error: BaseException) -> bool:
    text = str(error)
    # A missing object is the answer to a get. To a put or a list "not found" can only mean the bucket.
    asks_bucket = "Error performing PUT" in text or "Error performing list" in text
    return any(sign in text for sign in _NO_BUCKET) or (asks_bucket and "status code: 404" in text)


def _cause(error: BaseException) -> str:
    """Return the first line of an error's text, and the causes that the rest holds.

    The rest is a page of the client's internals.
    """
    text = str(error)
    first = text.partition("\n")[0].partition("<")[0].rstrip(": ")
    found = ["".join(groups) for groups in _CAUSES.findall(text)]
    causes = [cause for cause in dict.fromkeys(found) if cause not in first]
    return f"{first} ({': '.join(causes)})" if causes else first
