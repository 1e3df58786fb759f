"""Totals of an aggregate in Redis, for all processes that reach its server."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, urlsplit

from cutline.snapshot.stored.backend import StoreRefused
from cutline.state_backends.aggregate_stores.cell_store import (
    CALL_SECONDS_MAX,
    NOBODY,
    Cell,
    CellStore,
    CellTable,
    Holder,
    Result,
    imported,
)

if TYPE_CHECKING:
    from redis import Redis

#: seconds until an attempt to connect fails
_CONNECT_SECONDS_MAX: Final = 5.0

#: times that a deed is done again because another connection has changed the holder meanwhile
_TRIES: Final = 100

#: Beginnings of answers of a server that may serve the next try, where the client has no class for them.
_PASSING: Final = ("OOM", "BUSY", "MISCONF", "NOREPLICAS")

#: cells that are rolled back at once, because a server does nothing else meanwhile
_CELLS_AT_ONCE: Final = 40_000

#: Beginning of each script: the claim and the committed id are conditions, which are checked in one step with the work.
#: KEYS are cells, written, holder. Parts of a list are as long as Lua can unpack.
_CONDITION: Final = """
if (redis.call('GET', KEYS[3]) or '') ~= ARGV[1] then return 0 end
local function parts(list, deed)
  for first = 1, #list, 1000 do deed(unpack(list, first, math.min(first + 999, #list))) end
end
local function cells_of(keys)
  local found = {}
  parts(keys, function(...)
    for _, cell in ipairs(redis.call('HMGET', KEYS[1], ...)) do found[#found + 1] = cell end
  end)
  return found
end
local function cell_parts(cell)
  local value, id, previous = string.match(cell, '^([^\\n]*)\\n([^\\n]*)\\n([^\\n]*)$')
  return value, tonumber(id), previous
end
"""

_HOLD: Final = f"""{_CONDITION}
redis.call('SET', KEYS[3], ARGV[2])
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', ARGV[3])
return 1
"""

#: ARGV: holder, id, committed id, keys and values in turn
_WRITE: Final = f"""{_CONDITION}
local keys, cells, ids = {{}}, {{}}, {{}}
for place = 4, #ARGV, 2 do keys[#keys + 1] = ARGV[place] end
for place, cell in ipairs(cells_of(keys)) do
  local key, previous = keys[place], ''
  if cell then
    local value, id, before = cell_parts(cell)
    previous = id <= tonumber(ARGV[3]) and value or before
  end
  cells[#cells + 1], ids[#ids + 1] = key, ARGV[2]
  cells[#cells + 1], ids[#ids + 1] = ARGV[place * 2 + 3] .. '\\n' .. ARGV[2] .. '\\n' .. previous, key
end
parts(cells, function(...) redis.call('HSET', KEYS[1], ...) end)
parts(ids, function(...) redis.call('ZADD', KEYS[2], ...) end)
return 1
"""

#: ARGV: holder, id, committed id
_ROLL_BACK: Final = f"""{_CONDITION}
local keys = redis.call('ZRANGEBYSCORE', KEYS[2], '(' .. ARGV[2], '+inf', 'LIMIT', 0, {_CELLS_AT_ONCE})
for place, cell in ipairs(cells_of(keys)) do
  local _, _, previous = cell_parts(cell)
  if previous == '' then
    redis.call('HDEL', KEYS[1], keys[place])
  else
    redis.call('HSET', KEYS[1], keys[place], previous .. '\\n' .. ARGV[3] .. '\\n')
  end
end
parts(keys, function(...) redis.call('ZREM', KEYS[2], ...) end)
return #keys + 1
"""


class RedisStore(CellStore):
    """Keep totals in Redis 6.2 or newer.

    The server needs ``appendonly yes`` and ``appendfsync always``, because what it forgets in a crash is lost, and a
    ``maxmemory-policy`` that evicts no keys. The hash ``{prefix}:cells`` (the braces are part of the name) has a field
    for each key, in JSON. A field has three lines: the newest value in JSON, the id of its snapshot, and the value
    before. ``{prefix}:holder`` has the run, the claim and the committed id.

    Parameters
    ----------
    url : str
        ``redis://user:password@host:port/database``, ``rediss://…`` or ``unix://…``. It is pickled with the store.
        Errors show no password.
    prefix : str
        Beginning of the names of all keys in Redis. Each aggregate in the database needs a prefix of its own.
    """

    def __init__(self, url: str, *, prefix: str = "cutline") -> None:
        super().__init__()
        self.url = url
        self.prefix = prefix

    def __str__(self) -> str:
        url = urlsplit(self.url)
        port = f":{url.port}" if url.port else ""
        database = "".join(f"?db={each}" for each in parse_qs(url.query).get("db", ()))  # the rest may be a password
        return f"Redis keys {self.prefix} at {url.scheme}://{url.hostname or ''}{port}{url.path}{database}"

    def __repr__(self) -> str:
        return f"<{self}>"

    def _connect(self) -> CellTable:
        redis = imported(self, "redis", "redis")
        client = redis.Redis.from_url(
            self.url,
            socket_connect_timeout=_CONNECT_SECONDS_MAX,
            socket_timeout=CALL_SECONDS_MAX,
            retry=redis.retry.Retry(redis.backoff.NoBackoff(), 0),  # because the caller tries again, and knows when
        )
        return _Table(client, self.prefix)

    def _translated(self, error: Exception) -> OSError | None:
        redis = imported(self, "redis", "redis")
        if isinstance(error, _HolderChanged):
            return OSError(f"{self}: other claims and commits came between in all of {_TRIES} tries")
        if not isinstance(error, redis.RedisError):
            return None
        text = f"{self}: {type(error).__name__}: {error}"
        known = redis.exceptions
        refused = isinstance(error, (known.AuthenticationError, known.AuthorizationError))
        passing = (
            *(known.ConnectionError, known.TimeoutError, known.OutOfMemoryError, known.ReadOnlyError),
            *(known.ClusterDownError, known.TryAgainError),
        )
        if (isinstance(error, passing) and not refused) or str(error).startswith(_PASSING):
            return OSError(f"{text}; see whether the server is running, reachable and has memory")
        return StoreRefused(f"{text}; see user, password, database number and rights")


class _HolderChanged(Exception):
    """The holder is not what a deed has read."""


class _Table:
    """See `CellTable`. A deed reads the holder, and its script does nothing if the holder has changed since."""

    def __init__(self, client: Redis, prefix: str) -> None:
        self._client: Any = client  # its types say that each answer may be awaitable
        self._cells, self._written, self._holder = (f"{{{prefix}}}:{name}" for name in ("cells", "written", "holder"))
        self._scripts = {text: client.register_script(text) for text in (_HOLD, _WRITE, _ROLL_BACK)}
        self._read_holder = b""

    def atomically(self, deed: Callable[[], Result], *, alone: bool) -> Result:
        """See `CellTable`. A script is alone always."""
        for _ in range(_TRIES - 1):
            try:
                return deed()
            except _HolderChanged:
                continue
        return deed()

    def holder(self) -> Holder:
        """See `CellTable`."""
        self._read_holder = self._client.get(self._holder) or b""
        return _holder_of(self._read_holder)

    def hold(self, holder: Holder) -> None:
        """See `CellTable`."""
        text = json.dumps({"run": holder.run, "claim": holder.number, "committed": holder.committed})
        self._run(_HOLD, text, holder.committed)

    def write(self, texts: Sequence[tuple[str, str]], snapshot_id: int, committed: int) -> None:
        """See `CellTable`."""
        self._run(_WRITE, snapshot_id, committed, *(text for item in texts for text in item))

    def roll_back(self, snapshot_id: int, committed: int) -> bool:
        """See `CellTable`."""
        return self._run(_ROLL_BACK, snapshot_id, committed) > 1

    def read(self, keys: Sequence[str]) -> list[str | None]:
        """See `CellTable`."""
        with self._client.pipeline(transaction=True) as pipeline:
            pipeline.get(self._holder)
            if keys:
                pipeline.hmget(self._cells, keys)
            holder, *found = pipeline.execute()
        committed = _holder_of(holder or b"").committed
        cells = (None if cell is None else Cell.of(cell.decode()) for cell in (found[0] if found else ()))
        return [None if cell is None else cell.counting(committed) for cell in cells]

    def close(self) -> None:
        """See `CellTable`."""
        self._client.close()

    def _run(self, script: str, *arguments: Any) -> int:
        names = (self._cells, self._written, self._holder)
        answer: int = self._scripts[script](keys=names, args=(self._read_holder, *arguments))
        if not answer:
            raise _HolderChanged
        return answer


def _holder_of(text: bytes) -> Holder:
    if not text:
        return NOBODY
    found = json.loads(text)
    return Holder(found["run"], found["claim"], found["committed"])
