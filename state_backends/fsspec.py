"""Snapshots in a file system of fsspec whose exclusive create is one conditional request: s3fs, gcsfs, adlfs.

Owns the mapping of the contract to that file system, the refusal of those that would let two writers win, and the
classes of errors. Must not know what is stored. fsspec is imported at the first use, because it is optional.
"""

from __future__ import annotations

import contextlib
import errno
import inspect
import os
import secrets
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http import HTTPStatus
from typing import Any

from cutline.snapshot.stored.backend import INLINE_BYTES_MAX, TEMPORARY, StoreRefused
from cutline.state_backends.base import CALL_SECONDS_MAX
from cutline.state_backends.conditional_put import ConditionalPutBackend
from cutline.state_backends.retries import PASSING_ERRORS, status_may_pass

#: Writers of one file with which `probe` looks for a create that is two steps.
RACERS = 16

#: Backends that serve the place of a file system whose own create is unsound. For others: an object store.
_INSTEAD = {"LocalFileSystem": "FileSystemBackend(path)", "MemoryFileSystem": "MemoryBackend()"}

#: Words in the class names of errors of a connection. Each library has its own classes, and few are an OSError.
_CONNECTION_WORDS = ("Connection", "Timeout", "HTTPClientError", "ServiceRequestError", "ServiceResponseError")


class FsspecBackend(ConditionalPutBackend):
    """Store snapshots below a path of a file system of fsspec, with its credentials and options.

    Its ``pipe_file(…, mode="create")`` must be one conditional request, as those of s3fs, gcsfs and adlfs. An object
    store is served faster, and without a copy of each file in memory, by `ObjectStoreBackend`.

    Parameters
    ----------
    filesystem : fsspec.AbstractFileSystem
        Each process makes its own from the options of this one, without caches and without retries that hide a lost
        answer. Options are pickled with the backend and never shown.
    path : str
        ``bucket/prefix``, or the URL of the same.
    inlineBytesMax, deadline
        See `StateBackend` and `DeadlineBackend`.

    Raises
    ------
    ValueError
        if several writers of one file could win: file systems of pyarrow, local and remote folders, and file systems
        that wrap others. The message names the class, the cause, and a backend that does.
    """

    def __init__(
        self,
        filesystem: Any,
        path: str,
        *,
        inlineBytesMax: int = INLINE_BYTES_MAX,
        deadline: float = CALL_SECONDS_MAX,
    ) -> None:
        super().__init__(inline_bytes_max=inlineBytesMax, deadline=deadline)
        _refuse_unsound(filesystem)
        self.path = str(filesystem._strip_protocol(path)).strip("/")
        if not self.path:
            raise ValueError(f"{path!r}: give the bucket, and a prefix in the bucket")
        protocol = filesystem.protocol
        self._protocol = protocol if isinstance(protocol, str) else protocol[0]
        self._class: type = type(filesystem)
        self._arguments: tuple[Any, ...] = filesystem.storage_args
        self._options: dict[str, Any] = _direct_options(filesystem)
        #: (process id, file system), because its threads do not survive a fork; or None before the first use
        self._own: tuple[int, Any] | None = None
        #: the bucket was there
        self._has_bucket = False

    def __str__(self) -> str:
        return f"{self._protocol}://{self.path}"

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_own": None}

    def _create(self, path: str, chunks: Sequence[memoryview]) -> bool:
        try:
            self._connect().pipe_file(self._absolute(path), b"".join(chunks), mode="create")
        except FileExistsError:
            return False
        except FileNotFoundError as error:
            raise self._no_bucket() from error
        except Exception as error:
            if _status(error) != HTTPStatus.PRECONDITION_FAILED:
                raise
            return False  # because some servers do not name the condition, and s3fs knows the answer by that name
        self._has_bucket = True
        return True

    def _get(self, path: str, offset: int, size: int | None) -> bytes:
        filesystem, absolute = self._connect(), self._absolute(path)
        try:
            if not offset and size is None:
                return bytes(filesystem.cat_file(absolute))
            found = filesystem.info(absolute)
            if found["type"] != "file":
                raise FileNotFoundError(errno.ENOENT, f"there is no file {path}, but a folder of that name")
            end = found["size"] if size is None else min(offset + size, found["size"])
            return bytes(filesystem.cat_file(absolute, start=offset, end=end)) if offset < end else b""
        except FileNotFoundError:
            self._require_bucket()
            raise

    def _exists(self, path: str) -> bool:
        try:
            return bool(self._connect().info(self._absolute(path))["type"] == "file")
        except FileNotFoundError:
            self._require_bucket()
            return False

    def _list(self, prefix: str) -> list[str]:
        folder = self._absolute(prefix) if prefix else self.path
        try:
            found = self._connect().find(folder)
        except FileNotFoundError:
            found = []
        if not found:
            self._require_bucket()
        paths = (str(each).strip("/") for each in found)
        return [each.removeprefix(f"{self.path}/") for each in paths if each.startswith(f"{folder}/")]

    def _delete(self, paths: Sequence[str]) -> None:
        for path in paths:
            try:
                self._connect().rm_file(self._absolute(path))
            except FileNotFoundError:
                self._require_bucket()

    def _probe(self, folder: str, token: str) -> None:
        """Check also that of many writers one wins, because some file systems look first and write then."""
        super()._probe(folder, token)
        self._call(f"{self}: probe", partial(self._race, folder))

    def _race(self, folder: str) -> None:
        path = f"{folder}/{TEMPORARY}race-{secrets.token_hex(8)}"
        try:
            with ThreadPoolExecutor(RACERS) as racers:
                won = sum(racers.map(lambda racer: self._create(path, [memoryview(b"%d" % racer)]), range(RACERS)))
        finally:
            with contextlib.suppress(OSError):  # because the first error says more
                self._delete([path])
        if won > 1:
            raise StoreRefused(errno.ENOTSUP, f"{self}: {won} of {RACERS} racing writers of one file won")

    def _translated(self, what: str, error: Exception) -> Exception:
        if isinstance(error, StoreRefused):
            return error
        number, words = (error.errno, error.strerror) if isinstance(error, OSError) else (None, None)
        if not isinstance(error, OSError) and type(error).__module__ == "builtins":
            return error
        text = f"{what}: {words or str(error) or type(error).__name__}"
        if isinstance(error, FileNotFoundError):
            return FileNotFoundError(errno.ENOENT, text)
        if not _may_pass(error):
            return StoreRefused(number or errno.EIO, text)
        return OSError(number if number in PASSING_ERRORS else errno.EIO, text)

    def _require_bucket(self) -> None:
        """Refuse a store whose bucket is missing, because what is missing there may be anywhere."""
        if self._has_bucket:
            return
        try:
            self._connect().info(self.path.partition("/")[0])
        except FileNotFoundError as error:
            raise self._no_bucket() from error
        self._has_bucket = True

    def _no_bucket(self) -> StoreRefused:
        return StoreRefused(errno.ENODEV, f"{self}: there is no such bucket; create it, or correct the name")

    def _absolute(self, path: str) -> str:
        return f"{self.path}/{path}"

    def _connect(self) -> Any:
        if self._own is None or self._own[0] != os.getpid():
            filesystem = self._class(*self._arguments, **self._options)
            if hasattr(filesystem, "retries"):
                filesystem.retries = 1  # tries, in s3fs
            self._own = (os.getpid(), filesystem)
        return self._own[1]


def _refuse_unsound(filesystem: Any) -> None:
    """Refuse a file system by its class.

    Raises
    ------
    ValueError
        if its create is known not to exclude other writers.
    """
    kind = type(filesystem)
    if kind.__module__.partition(".")[0] == "pyarrow":
        raise _unsound(kind, "no file system of pyarrow has an exclusive create, so each of several writers wins")
    from fsspec import AbstractFileSystem
    from fsspec.asyn import AsyncFileSystem

    if not isinstance(filesystem, AbstractFileSystem):
        raise TypeError(f"an fsspec file system is needed, as s3fs.S3FileSystem(), and not {kind.__name__}")
    if kind.__name__ == "MemoryFileSystem":
        raise _unsound(kind, "each process has files of its own there")
    wrapped = getattr(filesystem, "fs", None) or getattr(filesystem, "sync_fs", None)
    if isinstance(wrapped, AbstractFileSystem):
        raise _unsound(type(wrapped), f"{kind.__name__} wraps it; give the file system itself, with the whole path")
    inherited: Any = AsyncFileSystem._pipe_file if isinstance(filesystem, AsyncFileSystem) else None
    if inherited is getattr(kind, "_pipe_file", None) and kind.pipe_file is AbstractFileSystem.pipe_file:
        raise _unsound(kind, "its exclusive create looks for the file and then writes, so several writers can win")


def _unsound(kind: type, cause: str) -> ValueError:
    instead = _INSTEAD.get(
        kind.__name__, "ObjectStoreBackend(url), or FileSystemBackend(path) on a mounted file system"
    )
    return ValueError(f"{kind.__module__}.{kind.__qualname__}: {cause}; use {instead}")


def _direct_options(filesystem: Any) -> dict[str, Any]:
    """Return the options of a file system, changed so that each call is one request to the store, and is answered."""
    options = {**filesystem.storage_options, "use_listings_cache": False, "skip_instance_cache": True}
    for name in ("asynchronous", "loop"):
        options.pop(name, None)
    if "config_kwargs" in inspect.signature(type(filesystem).__init__).parameters:  # botocore's, of s3fs
        options["config_kwargs"] = {**(options.get("config_kwargs") or {}), "retries": {"max_attempts": 0}}
    return options


def _may_pass(error: Exception) -> bool:
    """Return whether another try of a request may succeed."""
    if isinstance(error, TimeoutError) or any(
        word in kind.__name__ for kind in type(error).__mro__ for word in _CONNECTION_WORDS
    ):
        return True
    status = _status(error)
    if status is not None:
        return status_may_pass(status)
    return isinstance(error, OSError) and error.errno in PASSING_ERRORS


def _status(error: BaseException) -> int | None:
    """Return the status of the answer that an error or its cause holds, as gcsfs, Azure's client or botocore do."""
    answer = getattr(error, "response", None)
    if isinstance(answer, dict):
        status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode")
    else:
        status = getattr(error, "code", None) or getattr(error, "status_code", None)
    if isinstance(status, int | str) and str(status).isdecimal():
        return int(status)
    return None if error.__cause__ is None else _status(error.__cause__)
