"""Makes the stored snapshots of format 2 below ``format_2/``: ``python -m tests.stored_format.generate_2``.

``claims``, ``partitions`` and ``timers`` are runs of format 1, made again: pairs of prepared output, an aborted record,
edges, and keyed timers. ``keyed`` is a run with each kind of keyed state, and own state in deltas, over two claims.

``lists`` adds two snapshots by the real store, with lists that a small run does not have: pieces inside the manifest, a
clip, a base and a key group in two pieces. The bodies of its pieces are plain text, because nothing opens them.

Never make the files of a released format again. No release has written format 2 so far.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from cutline import Subtask
from cutline.snapshot.plan.topology import KEY_GROUPS
from cutline.snapshot.stored.certificate import ListEntry
from cutline.snapshot.stored.manifest import Manifest
from cutline.snapshot.stored.part import Handle, own_part, rows_part
from cutline.snapshot.stored.run_store import RunStore
from cutline.snapshot.testing.steps import Crash, Deliver, Initiate, Poll, Quiesce, Step
from tests.stored_format import graphs
from tests.stored_format.generate import FIXTURES, Fixture, write

#: Where the fixtures are.
FORMAT_2 = Path(__file__).parent / "format_2"

OUT = Subtask("out")


def piece(
    store: RunStore, snapshot_id: int, generations: tuple[int, int], groups: tuple[int, int], text: str, *, inline: bool
) -> Handle:
    """A piece of the sink's rows."""
    origin = (store.run, snapshot_id // 1_000_000, snapshot_id, OUT)
    (handle,) = store.put_rows([rows_part(*origin, generations, groups, [text.encode()])], inline=inline)
    return handle


def own(store: RunStore, snapshot_id: int, generation: int, text: str, *, inline: bool) -> Handle:
    """The whole own state of the sink, or a delta."""
    part = own_part(store.run, snapshot_id // 1_000_000, snapshot_id, OUT, (generation, generation), [text.encode()])
    (handle,) = store.put_rows([part], inline=inline)
    return handle


def whole(handle: Handle) -> ListEntry:
    """An entry that reads all of a piece."""
    assert handle.groups is not None
    return ListEntry(handle, *handle.groups)


def publish(store: RunStore, rows: tuple[ListEntry, ...], deltas: tuple[Handle, ...]) -> None:
    """A snapshot behind the newest: the same, with lists of the sink."""
    newest = store.manifests()[-1]
    manifest = store.read_manifest(newest)
    assert isinstance(manifest, Manifest)
    records = tuple(
        replace(each, groups=(0, KEY_GROUPS), rows=rows, own=deltas) if each.subtask == OUT else each
        for each in manifest.records
    )
    changed = replace(manifest, snapshot_id=newest + 1, timestamp=manifest.timestamp + 1.0, records=records)
    assert store.write_manifest(changed)


def add_lists(store: RunStore) -> None:
    """Two snapshots of claim 2: one with what claim 1 left and an own part, and one with a base in its place."""
    half, old, new = KEY_GROUPS // 2, 1_000_001, store.manifests()[-1] + 1
    restored = (
        whole(piece(store, old, (0, 3), (0, half), "base, first half", inline=False)),
        ListEntry(piece(store, old, (0, 3), (half, KEY_GROUPS), "base, second half", inline=False), half, 30_000),
        whole(piece(store, old, (4, 4), (7, 900), "a delta", inline=True)),
    )
    made = (
        whole(piece(store, new, (1, 1), (0, KEY_GROUPS), "one generation", inline=False)),
        whole(piece(store, new, (2, 5), (11, 12), "several generations", inline=True)),
        whole(piece(store, new, (2, 5), (11, 12), "the same key group", inline=True)),
    )
    deltas = (own(store, old, 0, "whole", inline=False), own(store, new, 1, "delta", inline=True))
    publish(store, (*restored, *made), deltas)
    base = piece(store, new + 1, (0, 5), (0, KEY_GROUPS), "a base", inline=False)
    publish(store, (whole(base),), (own(store, new + 1, 0, "whole again", inline=True),))


def words(*subtasks: int) -> list[Step]:
    """Words that come to these subtasks."""
    return [step for index in subtasks for step in (Poll("source"), Deliver("source", f"visits[{index}]"))]


def snapshot(number: int) -> list[Step]:
    """A snapshot of the keyed run, which is published."""
    to = [Deliver("source", f"visits[{index}]", marker=True) for index in range(2)]
    out = [Deliver(f"visits[{index}]", "out", marker=True) for index in range(2)]
    return [Initiate(number, "source"), *to, *out, Quiesce()]


_OF_1 = {fixture.name: fixture for fixture in FIXTURES}

FIXTURES_2 = (
    _OF_1["claims"],
    _OF_1["partitions"],
    _OF_1["timers"],
    # Two generations of claim 1 are restored; claim 2 adds two, of which the second is of one subtask only.
    Fixture(
        "keyed",
        graphs.keyed,
        [
            *(*words(0, 1, 1), *snapshot(1), *words(1, 0), *snapshot(2)),
            *(Crash("visits"), Quiesce(), *words(1, 0), *snapshot(1), *words(0), *snapshot(2)),
        ],
    ),
    replace(_OF_1["claims"], name="lists", finish=add_lists),
)


if __name__ == "__main__":
    write(FIXTURES_2, FORMAT_2)
