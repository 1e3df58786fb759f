"""The key group of a key, for nodes that keep state by key groups themselves."""

from __future__ import annotations

from typing import Any

from cutline.snapshot.channel.partitioning import key_group


def keyGroup(key: Any) -> int:
    """Return the key group of `key`, from 0 to 32,767. The group decides which subtask of a node owns the key.

    Raises
    ------
    TypeError
        if `key` is, or holds, something else than None, bool, int, str, bytes and tuples. The text has the expression
        that makes a key of it.
    """
    return key_group(key)
