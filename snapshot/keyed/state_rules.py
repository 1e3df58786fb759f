"""The rules of keys and values that all states share, and the errors that name a broken rule."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from cutline.snapshot.channel.pickles import NotSerialisable
from cutline.snapshot.channel.plain_keys import PLAIN_KEYS, plain_key
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.error_text import shown
from cutline.snapshot.errors import NodeError
from cutline.snapshot.ids import Subtask
from cutline.snapshot.keyed.rows import StateSpec
from cutline.snapshot.keyed.rows_codec import ROW_ATOMS

#: bytes of one encoded value; a piece of a segment holds 32 MiB, and a larger value is a piece of its own
VALUE_BYTES_MAX: Final = 64 * 1024 * 1024

#: bytes of one encoded key; a larger key is rather a value, and it is stored in each of its rows
KEY_BYTES_MAX: Final = 64 * 1024

#: characters of a str up to which its UTF-8 cannot exceed `VALUE_BYTES_MAX`
TEXT_LENGTH_MAX: Final = VALUE_BYTES_MAX // 4

#: the key of a call that concerns no single key
_NO_KEY: Final = object()


class HookContext(Protocol):
    """The context of a hook, as far as states need it."""

    #: key of the message or timer that is handled
    key: Any
    #: whether `key` is the current key; False in hooks without a key, where `key` is None
    has_key: bool
    #: seconds since the epoch
    now: float

    def moment(self) -> tuple[int, int]:
        """Return a value that differs between any two calls of hooks."""


@dataclass(frozen=True, slots=True)
class KeyedStateSettings:
    """The subtask that states belong to."""

    subtask: Subtask
    context: HookContext
    codec: Codec
    #: `Node.stateVersion` of the values
    version: int = 1
    #: whether nodes see keys in the sequence of their encoded forms, because a replay must see the same sequence
    sorts: bool = False
    #: whether a cut makes a version of the subtask's local database
    makes_versions: bool = False
    #: whether a cut captures changed rows for the store of snapshots
    stores_rows: bool = True
    #: whether the node handles messages of several snapshots by turns, so that no row belongs to a cut
    has_epochs: bool = False
    #: sets that are no longer used; large ones are freed in steps, because freeing takes 20 ns for each entry
    garbage: list[set[Any]] = field(default_factory=list)


class StateRules:
    """The rules of one state.

    Parameters
    ----------
    spec : StateSpec
    owner : KeyedStateSettings
    """

    def __init__(self, spec: StateSpec, owner: KeyedStateSettings) -> None:
        self.spec = spec
        self.owner = owner
        self.context = owner.context

    # ---------------------------------------------------------------- keys

    def current_key(self) -> Any:
        """Return the current key, or raise NodeError without one."""
        key = self.context.key
        if key is None:
            self.require_key()
        return key

    def require_key(self) -> None:
        """Raise NodeError unless None is the current key."""
        if not self.context.has_key:
            raise self.error("there is no current key here: use getAll, updateAll, addAll, clearAll or items")

    def plain_key(self, key: Any) -> Any:
        """Return the plain key that `key` is equal to, or raise NodeError if there is none."""
        try:
            return plain_key(key)
        except TypeError as error:
            raise self.error(str(error), key) from error

    def plain_keys(self, keys: list[Any]) -> list[Any]:
        """Return the plain key of each key, or raise NodeError if there is none."""
        return keys if PLAIN_KEYS.issuperset(map(type, keys)) else list(map(self.plain_key, keys))

    def check_size(self, key: Any) -> None:
        """Raise NodeError if `key`, a key or a sub-key, is too large."""
        size = _size(key)
        if size > KEY_BYTES_MAX:
            raise self.error(f"the key has {size:,} bytes; at most {KEY_BYTES_MAX:,} are allowed", key)

    # ---------------------------------------------------------------- values

    def stored(self, value: Any, key: Any) -> Any:
        """Return what a row holds of a value.

        Raises
        ------
        NodeError
            if the value is None, is too large or cannot be serialised.
        """
        kind = type(value)
        if kind in ROW_ATOMS:
            if kind is not str or len(value) <= TEXT_LENGTH_MAX:
                return value
            encoded = value.encode("utf-8", "surrogatepass")
        elif value is None:
            raise self.error("None is no value, because get returns None for an absent value: use clear", key)
        else:
            try:
                value = encoded = self.owner.codec.encode(value)
            except NotSerialisable as error:
                raise self.error(str(error), key) from error
        if len(encoded) > VALUE_BYTES_MAX:
            raise self.error(f"the value has {len(encoded):,} bytes; at most {VALUE_BYTES_MAX:,} are allowed", key)
        return value

    def stored_all(self, values: list[Any], keys: Iterable[Any]) -> list[Any]:
        """Return what rows hold of values. Raises as `stored`."""
        kinds = set(map(type, values))
        if kinds == {str}:
            if max(map(len, values)) <= TEXT_LENGTH_MAX:
                return values
        elif kinds <= ROW_ATOMS - {str}:
            return values
        return [self.stored(value, key) for value, key in zip(values, keys, strict=True)]

    def value_of(self, stored: Any, key: Any = _NO_KEY) -> Any:
        """Return the value that a row holds, as a copy that the node may change."""
        if type(stored) is not bytes:
            return stored
        try:
            return self.owner.codec.decode(stored)
        except NotSerialisable as error:
            raise self.error(str(error), key) from error

    # ---------------------------------------------------------------- errors

    def error(self, why: str, key: Any = _NO_KEY) -> NodeError:
        """Return an error that names the subtask, the state and the key."""
        of_key = "" if key is _NO_KEY else f", key {shown(key)}"
        return NodeError(f"{self.owner.subtask}: state {self.spec.name!r}{of_key}: {why}")


def _size(key: Any) -> int:
    """Return the bytes of a key, without the header of each element."""
    if isinstance(key, str):
        return len(key.encode("utf-8", "surrogatepass"))
    if isinstance(key, bytes):
        return len(key)
    if isinstance(key, tuple):
        return sum(map(_size, key)) + len(key)
    return 1 if key is None else (key.bit_length() + 7) // 8
