"""The rows of one state while a subtask runs: its live rows and its changed rows.

Owns what the tables of all kinds share. Must not know how a kind arranges its rows, nor where a tier keeps cold rows.

::

    live    {key: rows of the key as they are now}
    dirty   {key: rows that changed since the last capture}; a write goes to both, a capture takes `dirty` away
    fresh   keys that have no older row; their removal leaves no tombstone

A value in a row is an exact bool, int, float or str, or `bytes`: any other value, encoded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Protocol

from cutline.snapshot.channel.key_hash import stable_hash
from cutline.snapshot.keyed.decoding import DecodedRows
from cutline.snapshot.keyed.row_keys import row_head
from cutline.snapshot.keyed.rows import DirtyRows, DirtyTable, StateSpec
from cutline.snapshot.keyed.rows_codec import encode_key
from cutline.snapshot.keyed.state_rules import KEY_BYTES_MAX, KeyedStateSettings, StateRules
from cutline.snapshot.plan.topology import KEY_GROUPS

#: characters of a str, or bytes, up to which a key cannot exceed `KEY_BYTES_MAX`
_KEY_LENGTH_MAX = KEY_BYTES_MAX // 4 - 8

#: integers below this need no check of their size
_INTEGER_MAX = 1 << 64

#: end of the time of a row that never expires, in seconds since the epoch
NEVER: Final = float("inf")


def row_name(key: Any, number: int = 0) -> bytes:
    """Return how a cold tier names the rows of a key, for a state of a number, and by which keys are sorted."""
    return row_head(stable_hash(key) % KEY_GROUPS, number) + encode_key(key)


class ColdRows(Protocol):
    """The rows of one state that a tier keeps outside memory. `StateTable.live` is then a cache of whole keys.

    A key that has no rows is None in `live`. In each of these calls the tier may drop other keys from the cache, by
    `StateTable.drop_cache`. Rows that were not captured yet are in `StateTable.dirty_keys` also when they are not in
    the cache.
    """

    def load(self, key: Any) -> None:
        """Put the rows of `key` into `live` and into the table's ends, or None into `live` if there are no rows.

        Called for a key that is not in `live`.
        """

    def load_all(self, keys: list[Any]) -> None:
        """Put the rows of several keys into the cache, as `load` does. The keys are not in `live`."""

    def admitted(self, key: Any) -> None:
        """Note that `key`, which is not in `live`, is written next."""

    def items(self) -> Iterator[tuple[Any, Any]]:
        """Iterate over all keys of the subtask and their rows, as `live` would hold the rows, the changed included.

        Keys are sorted by `row_name`.
        """


class Iteration:
    """One use of `items`. A change of the state drops it from `StateTable.iterations`."""

    __slots__ = ("moment",)

    def __init__(self, moment: tuple[int, int]) -> None:
        self.moment = moment


class StateTable(StateRules):
    """Base of the tables of all kinds.

    Parameters
    ----------
    spec : StateSpec
    owner : KeyedStateSettings
    """

    #: whether rows may expire
    is_timed = False

    def __init__(self, spec: StateSpec, owner: KeyedStateSettings) -> None:
        super().__init__(spec, owner)
        #: {key: rows}; never replaced, because closures and a tier hold references
        self.live: dict[Any, Any] = {}
        #: changed rows with sub-keys so far, where rows that were written again count again
        self.written = 0
        #: uses of `items` that are still valid; never replaced
        self.iterations: list[Iteration] = []
        #: rows outside memory, or None if `live` holds all rows
        self.cold: ColdRows | None = None
        #: keys that have no older row; None with a cold tier, which may have rows that are unknown here
        self.fresh: set[Any] | None = set()

    def attach(self, cold: ColdRows) -> None:
        """Let a tier keep the rows. Called before the first use of the table."""
        self.cold, self.fresh = cold, None

    # ---------------------------------------------------------------- what each kind does

    @property
    def expiries(self) -> Any:
        """When rows expire, for comparisons."""
        return None

    def dirty_keys(self) -> dict[Any, Any]:
        """Return the changed rows by key."""
        raise NotImplementedError

    def contents(self) -> Iterator[tuple[Any, Any]]:
        """Iterate over the keys that have a value, and the values as users see them."""
        raise NotImplementedError

    def remove(self, key: Any) -> None:
        """Remove all rows of a key."""
        raise NotImplementedError

    def take_dirty(self) -> DirtyRows | None:
        """Return the changed rows, and begin to gather anew. None without changed rows. Takes constant time."""
        raise NotImplementedError

    def dirty_table(self) -> DirtyTable:
        """Return the changed rows, which a later write may change."""
        raise NotImplementedError

    def arranged(self, rows: dict[Any, Any]) -> Any:
        """Return what `live` holds of a key: {sub-key: value}, in the sequence of the sub-keys."""
        return rows

    def restore(self, rows: DecodedRows, now: float) -> None:
        """Put restored rows over older ones. Rows that have expired by `now` are absent."""
        raise NotImplementedError

    def restored(self) -> None:
        """Arrange the rows after the last call of `restore`."""

    def keep_end(self, key: Any, sub: Any, end: float) -> None:
        """Note when a row that was put into `live` expires. `sub` is None for kinds without sub-keys."""
        raise NotImplementedError

    def drop_cache(self) -> None:
        """Drop all rows from memory, except the changed rows. Only a cold tier may call this method."""
        self.live.clear()

    def sweep(self, limit: int) -> int:
        """Remove up to `limit` rows that have expired, without tombstones. Return their number."""
        raise NotImplementedError

    def missed(self, key: Any) -> Any:
        """Return the rows of a key that `live` does not hold, or None if there are none."""
        if self.cold is None or key in self.live:
            return None
        self.cold.load(key)
        return self.live[key]

    def admit(self, key: Any) -> None:
        """Check a key that is written and not in `live`, and note whether it has older rows."""
        kind = type(key)
        if kind is str or kind is bytes:
            if len(key) > _KEY_LENGTH_MAX:
                self.check_size(key)
        elif kind is not int or not -_INTEGER_MAX < key < _INTEGER_MAX:
            self.plain_key(key)
            self.check_size(key)
        if self.fresh is None:
            assert self.cold is not None
            self.cold.admitted(key)
        elif key not in self.dirty_keys():
            self.fresh.add(key)

    # ---------------------------------------------------------------- iteration

    def changed(self) -> None:
        """End all uses of `items`."""
        if self.iterations:
            self.iterations.clear()

    def items(self) -> Iterator[tuple[Any, Any]]:
        """Iterate over keys and values, until the state changes or the hook returns."""
        moment = self.context.moment()
        self.iterations[:] = [each for each in self.iterations if each.moment == moment]
        iteration = Iteration(moment)
        self.iterations.append(iteration)
        return self._iterate(iteration)

    def _iterate(self, iteration: Iteration) -> Iterator[tuple[Any, Any]]:
        found = self.contents()
        if self.owner.sorts and self.cold is None:
            found = iter(sorted(found, key=lambda pair: row_name(pair[0])))
        while True:
            if iteration.moment != self.context.moment():
                raise self.error("an iterator of items is valid only in the hook that called items")
            if iteration not in self.iterations:
                raise self.error("the state has changed since items was called: gather the changes first")
            pair = next(found, None)
            if pair is None:
                self.iterations.remove(iteration)
                return
            yield pair

    def live_items(self) -> Iterator[tuple[Any, Any]]:
        """Iterate over all keys and their rows, those of a cold tier included."""
        return iter(self.live.items()) if self.cold is None else self.cold.items()

    # ---------------------------------------------------------------- capture

    def take_fresh(self) -> None:
        """Forget which keys are fresh, because a capture makes their rows old."""
        if self.fresh:
            self.owner.garbage.append(self.fresh)
            self.fresh = set()
