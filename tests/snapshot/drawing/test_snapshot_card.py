"""A snapshot in a notebook: states, messages in flight, and how little is read for it."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser

import cloudpickle
import pytest

from cutline import Snapshot, SnapshotCorrupt
from cutline.snapshot.channel.frame import Buffer
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.drawing import snapshot_card
from cutline.snapshot.ids import Subtask
from cutline.snapshot.plan.topology import Topology
from cutline.snapshot.stored.certificate import SubtaskRecord
from cutline.snapshot.stored.part import Handle, state_part
from cutline.snapshot.stored.topology_record import record_of_topology
from tests.snapshot import sample


class _Texts(HTMLParser):
    """All that is written, and every tag that is closed as it was opened."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in ("path", "use", "rect", "meta"):
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self._open and tag == self._open[-1]:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        self.texts.append(" ".join(data.split()))

    def close(self) -> None:
        super().close()
        assert not self._open


def texts(html: str) -> list[str]:
    """What a reader sees."""
    parser = _Texts()
    parser.feed(html)
    parser.close()
    return [text for text in parser.texts if text]


def no_files(handle: Handle) -> Buffer:
    """Of a snapshot whose parts are all in the manifest."""
    raise AssertionError(handle.name)


def with_states(*states: object) -> tuple[SubtaskRecord, ...]:
    """The sample's records, with other states."""
    records = []
    for record, state in zip(sample.records(), states, strict=True):
        part = state_part(sample.RUN, sample.INCARNATION, sample.SNAPSHOT_ID, record.subtask, sample.state(state))
        records.append(replace(record, handles=(part.inline(), *record.handles[1:])))
    return tuple(records)


def test_a_snapshot_shows_itself() -> None:
    """What it is, states in the nodes, messages on the edges, all of them in tables; the end of a stream is told."""
    written = texts(Snapshot(sample.manifest(), no_files, Codec())._repr_html_())
    assert written[0] == f"Snapshot {sample.SNAPSHOT_ID}"
    assert {"bank", "pinned", "at 1.50 s of virtual time", "250 ms", "7"} <= set(written)
    assert "run bank taken at 1.50 s of virtual time in 250 ms size" in " ".join(written)
    assert "2 channels with messages" in written
    for word in ("{'balance': 1}", "[1, (2, 'x')]", "1 processed, 8 sent", "6 in flight", "1 in flight"):
        assert word in written
    assert "'three', (4, 'four'), (5, 'five'), ..." in written
    assert "the end of the stream" in written


def test_a_real_time_is_a_date() -> None:
    """A virtual time would be a date in 1970."""
    manifest = replace(sample.manifest(), timestamp=1_700_000_000.0)
    assert "2023-11-14 22:13:20 UTC" in texts(Snapshot(manifest, no_files, Codec())._repr_html_())


def test_what_is_in_a_state_is_no_mark_up() -> None:
    """Text of the user's is text, in the drawing and in the tables."""
    states = ({"<script>": "$x$ & $y$"}, "漢字")
    written = texts(Snapshot(sample.manifest(with_states(*states)), no_files, Codec())._repr_html_())
    assert written.count("{'<script>': '$x$ & $y$'}") == 2
    assert written.count("'漢字'") == 2


def test_what_cannot_be_read_here_is_told() -> None:
    """A state whose class is missing is named as that; all else is shown."""
    unknown = cloudpickle.loads(cloudpickle.dumps(Subtask("a")))
    made = Snapshot(sample.manifest(with_states(unknown, 3)), no_files, Codec(safe=True))
    written = texts(made._repr_html_())
    assert any("cannot be read here" in text for text in written)
    assert "6 in flight" in written
    assert "3" in written


def test_a_large_part_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gigabyte is not decoded for a picture: its size is told."""
    monkeypatch.setattr(snapshot_card, "_PART_BYTES_MAX", 400)
    written = texts(Snapshot(sample.manifest(with_states("x" * 1000, 3)), no_files, Codec())._repr_html_())
    assert not any("xxx" in text for text in written)
    assert sum(text.startswith("(1.1 KiB") for text in written) == 2


def test_few_parts_are_read() -> None:
    """Of many subtasks in a store only the first; a part that is gone is told."""
    count = 100
    node = replace(sample.TOPOLOGY.nodes[0], name="n", parallelism=count)
    component = replace(sample.TOPOLOGY.components[0], nodes=("n",), cyclic=False)
    topology = Topology("wide", (node,), (), (component,))
    records, files = [], {}
    for index in range(count):
        subtask = Subtask("n", index)
        part = state_part(sample.RUN, sample.INCARNATION, sample.SNAPSHOT_ID, subtask, sample.state(index))
        files[f"part{index}"] = b"".join(part.buffers)
        records.append(
            SubtaskRecord(subtask, sample.INCARNATION, (part.stored(f"part{index}", 0),), (), (), sample.SUBTASK_STATUS)
        )
    manifest = replace(sample.manifest(), topology=record_of_topology(topology), records=tuple(records))
    asked: list[str] = []

    def read(handle: Handle) -> Buffer:
        path = handle.path or ""
        asked.append(path)
        if path == "part0":
            raise SnapshotCorrupt("part0 is gone")
        return files[path]

    written = texts(Snapshot(manifest, read, Codec())._repr_html_())
    assert len(asked) == 40
    assert "(part0 is gone)" in written
    assert "and 60 more" in written
    assert "n[39]" in written
    assert any(text.startswith("100 states, ") for text in written)


def test_without_matplotlib_the_tables_are_shown(no_matplotlib: None) -> None:
    """And in the place of the drawing what to install."""
    written = texts(Snapshot(sample.manifest(), no_files, Codec())._repr_html_())
    assert any('pip install "cutline[pictures]"' in text for text in written)
    assert "{'balance': 1}" in written
