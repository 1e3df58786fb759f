"""Snapshots in an object store: S3 and stores with its protocol, Google Cloud Storage, Azure.

Owns the mapping of the contract to conditional puts, and the retries of requests. Must not know what is stored. obstore
is imported at the first call, because its threads do not survive a fork. So a process that only forks others never
starts them.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import secrets
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import tenacity

from snapshot.stored.backend import INLINE_BYTES_MAX, StoreRefused
from state_backends.base import CALL_SECONDS_MAX, DeadlineBackend

if TYPE_CHECKING:
    from obstore.store import ObjectStore

Result = TypeVar("Result")

#: Seconds between two tries of a request. Short at first, because most failures are a lost connection.
RETRY_SECONDS_MIN = 0.05
RETRY_SECONDS_MAX = 2.0

#: Schemes whose conditional put is known to exist and to be durable. obstore's own ``file://`` syncs nothing.
SCHEMES = ("s3", "s3a", "gs", "az", "abfs", "abfss", "adl", "azure")

#: Path at which the store proved that it refuses a second put. The file stays, so that the next proof is one request.
_PROBE = "conditional-put"

#: Texts by which stores answer that the bucket does not exist: S3, Google Cloud Storage, Azure.
_NO_BUCKET = ("NoSuchBucket", "bucket does not exist", "ContainerNotFound", "ContainerBeingDeleted")

#: Texts by which the client reports wrong options: another region, a scheme that is not allowed.
_WRONG_OPTIONS = ("Received redirect without LOCATION", "HTTP error: builder error")

#: Statuses of the class "the request is wrong" that another try may mend: timeout, conflict, too early, too many.
_PASSING_STATUSES = (408, 409, 425, 429)

#: Statuses beyond that class that no other try mends: not implemented, version not supported.
_FINAL_STATUSES = (501, 505)

#: Codes by which S3 reports a passing trouble with a status of a wrong request.
_PASSING_CODES = ("RequestTimeout", "SlowDown")

_STATUS = re.compile(r"status code: (\d{3})")

#: Parts of an error's text that hold the cause: the code and message of a store, the text of the network or of TLS.
_CAUSES = re.compile(
    r"<Code>([^<]+)|<Message>([^<]+)|(?:message|error): \"([^\"]+)\"|\b(BadScheme|TimedOut|InvalidCertificate\([^)]*\))"
)

_logger = logging.getLogger("cutline.store")

#: Process id in which obstore's threads run, or None before their first use.
_threads_of_pid: int | None = None


class ObjectStoreBackend(DeadlineBackend):
    """Store snapshots below a prefix of a bucket.

    The parts that a worker gives to a snapshot are one object or a few, each put by one request. So S3 takes 5 GiB of a
    subtask, and `deadline` bounds the request.

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
        #: this store has refused a second put
        self._proved = False
        #: the last request failed, and the log has the cause
        self._is_failing = False

    def __str__(self) -> str:
        return self.url

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_store": None}

    def _put_if_absent(self, path: str, chunks: Sequence[memoryview]) -> bool:
        self._prove_conditional_put()
        return self._put(path, chunks)

    def _get(self, path: str, offset: int, size: int | None) -> bytes:
        import obstore
        from obstore.exceptions import GenericError

        if not offset and size is None:
            return self._retry(lambda store: bytes(obstore.get(store, path).bytes()))
        if size == 0:
            return b""
        wanted: Any = {"offset": offset} if size is None else (offset, offset + size)

        def get(store: ObjectStore) -> bytes:
            try:
                return bytes(obstore.get(store, path, options={"range": wanted}).bytes())
            except GenericError:
                if offset < obstore.head(store, path)["size"]:
                    raise
                return b""  # because the store refuses a range that begins behind the end

        return self._retry(get)

    def _exists(self, path: str) -> bool:
        import obstore

        try:
            self._retry(lambda store: obstore.head(store, path))
        except FileNotFoundError:
            # The answer to HEAD has no body, so it does not tell an object from a bucket. A listing does.
            self._retry(lambda store: next(iter(obstore.list(store, path, chunk_size=1)), None))
            return False
        return True

    def _files(self, prefix: str) -> list[str]:
        import obstore

        pages = self._retry(lambda store: list(obstore.list(store, prefix or None)))
        return [entry["path"] for page in pages for entry in page if entry["path"] != _PROBE]

    def _delete(self, paths: Sequence[str]) -> None:
        import obstore

        try:
            # Removes many files by one request, if the store has such requests.
            self._retry(lambda store: obstore.delete(store, list(paths)))
        except FileNotFoundError:
            for path in paths if len(paths) > 1 else ():  # the rest may not have been removed
                self._delete([path])

    def _put(self, path: str, chunks: Sequence[memoryview]) -> bool:
        import obstore
        from obstore.exceptions import AlreadyExistsError, GenericError

        unanswered = False

        def put(store: ObjectStore) -> bool:
            nonlocal unanswered
            try:
                obstore.put(store, path, list(chunks), mode="create", use_multipart=False)
            except AlreadyExistsError:
                # Also the answer when two puts conflict and neither may have won, and to our own second try when the
                # first try's answer was lost. Only the stored bytes distinguish these cases.
                try:
                    found = bytes(obstore.get(store, path).bytes())
                except FileNotFoundError as error:
                    raise GenericError(f"{path}: two writers met and nobody won") from error
                return unanswered and found == b"".join(chunks)
            except GenericError:
                unanswered = True
                raise
            return True

        return self._retry(put)

    def _prove_conditional_put(self) -> None:
        """Check that the store refuses a second put, because some servers ignore the condition and overwrite."""
        if self._proved:
            return
        written = [self._put(_PROBE, [memoryview(secrets.token_bytes(16))]) for _ in range(2)]
        if all(written):
            text = (
                f"{self}: it overwrites on a conditional put (If-None-Match), so nothing can be published there safely"
            )
            raise OSError(errno.ENOTSUP, text)
        self._proved = True

    def _retry(self, request: Callable[[ObjectStore], Result]) -> Result:
        """Repeat a request until an answer comes or the deadline is over. A final error is raised as OSError.

        A request that no other try can mend is not repeated. The first failure is logged at once, because the caller
        learns of the failure at the deadline only.
        """
        from obstore.exceptions import BaseError

        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception(_may_pass),
            wait=tenacity.wait_random_exponential(multiplier=RETRY_SECONDS_MIN, max=RETRY_SECONDS_MAX),
            stop=tenacity.stop_after_delay(self._deadline.seconds),
            before_sleep=self._note_failure,
            reraise=True,
        )
        try:
            result = retrying(request, self._connect())
        except (BaseError, FileNotFoundError) as error:
            if _misses_bucket(error):
                text = f"{self}: there is no such bucket; create it, or correct the name ({_cause(error)})"
                raise StoreRefused(errno.ENODEV, text) from error
            text = f"{self}: {_cause(error)}"
            if isinstance(error, FileNotFoundError):
                raise FileNotFoundError(errno.ENOENT, text) from error
            raise (OSError if _may_pass(error) else StoreRefused)(errno.EIO, text) from error
        self._is_failing = False
        return result

    def _note_failure(self, state: tenacity.RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome is not None else None
        if error is None:
            return
        self._deadline.note_failure(_cause(error))
        if not self._is_failing:
            self._is_failing = True
            _logger.warning("%s: %s; tried again for %g s", self, _cause(error), self._deadline.seconds)

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
            # Only `_retry` repeats requests, because obstore's own retries would hide a lost answer.
            retry_config: Any = {"max_retries": 0, "retry_timeout": timedelta(0)}
            from_url: Any = stores.from_url  # typed Any because its overloads are one per scheme
            self._store = from_url(self.url, client_options=client_options, retry_config=retry_config, **options)
        return self._store


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
    number = int(status[1])
    return number in _PASSING_STATUSES or not (400 <= number < 500 or number in _FINAL_STATUSES)


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
