"""Lines of text files, read by byte offset."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutline import Graph, GraphError, LineSource
from cutline.barrier_runtime.dataframes import line_source
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.ids import Subtask
from cutline.snapshot.node import END
from cutline.snapshot.plan.modes import ModeWish
from cutline.testing import ListSink, Simulator
from tests.barrier_runtime.hand_context import HandContext


def reader(source: LineSource, state: Any = None) -> HandContext:
    """A context of all partitions, for a source that is perhaps restored."""
    context = HandContext(Subtask("lines"))
    context.partitions = tuple(source.partitions())
    if state is not None:
        source.restoreState(Codec(safe=True).decode(state))
    return context


def polled(source: LineSource, context: HandContext, times: int | None = None) -> list[str]:
    """The lines of so many polls, or of all until the end."""
    context.sent.clear()
    while times is None or times > 0:
        if source.poll(context) is END:
            break
        times = None if times is None else times - 1
    return list(context.sent)


lines = st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n\r"), max_size=9), max_size=30)


@given(lines=lines, last=st.sampled_from(["", "\n"]), end=st.sampled_from(["\n", "\r\n"]), data=st.data())
def test_each_line_comes_once_after_any_restore(lines: list[str], last: str, end: str, data: st.DataObject) -> None:
    """Whatever is in the lines, wherever reads end, with a last line end or without."""
    text = end.join(lines) + last
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(line_source, "READ_BYTES", data.draw(st.integers(1, 40), label="bytes of a read"))
        path = Path(folder, "file")
        path.write_bytes(text.encode())
        source = LineSource(path)
        context = reader(source)
        found = polled(source, context, data.draw(st.integers(0, 9), label="polls before the snapshot"))
        state = Codec(safe=True).encode(source.snapshotState(1, 0.0))
        polled(source, context, 2)
        restored = LineSource(path)
        found += polled(restored, reader(restored, state))
    assert found == [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n") if text]


def test_a_read_is_bounded(tmp_path: Path) -> None:
    """By a number of bytes, and the rest of a line. A second read of the same slice sends the same."""
    (tmp_path / "file").write_text("".join(f"{number:07}\n" for number in range(100_000)))
    source = LineSource(tmp_path / "file")
    context = reader(source)
    first = polled(source, context, 1)
    assert len(first) == line_source.READ_BYTES // 8
    again = LineSource(tmp_path / "file")
    (name,) = reader(again).partitions
    again.read_again(name, source.snapshotState(1, 0.0)[name], context)
    assert context.sent == first * 2


def test_patterns_and_names_give_files(tmp_path: Path) -> None:
    """Each file once, in the order of names; folders are no files."""
    for name in ("b.txt", "a.txt", "[c].txt"):
        (tmp_path / name).write_text(name)
    (tmp_path / "folder.txt").mkdir()
    source = LineSource(tmp_path / "*.txt", tmp_path / "a.txt", tmp_path / "[c].txt")
    assert source.partitions() == [str(tmp_path / name) for name in ("[c].txt", "a.txt", "b.txt")]


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    """No path, no file, a file that was cut, other text than UTF-8."""
    with pytest.raises(GraphError, match="LineSource takes paths of files, and none is given"):
        LineSource()
    with pytest.raises(FileNotFoundError, match=f"there is no file {tmp_path}/none"):
        LineSource(tmp_path / "none").partitions()
    path = tmp_path / "file"
    path.write_bytes(b"good\nb\xffd\n")
    source = LineSource(path)
    context = reader(source)
    with pytest.raises(ValueError, match=f"{path}, byte 6: invalid start byte; lines are in UTF-8"):
        source.poll(context)
    with pytest.raises(ValueError, match=f"{path} was read to byte 20, and has 9 bytes now: bring the old file back"):
        source.read_again(str(path), 20, context)
    source.restoreState({str(path): 20})
    with pytest.raises(ValueError, match=f"{path} was read to byte 20, and has 9 bytes now"):
        source.poll(context)


@pytest.mark.parametrize("mode", ["markers", "inputLogging", "deltas"])
def test_lines_are_exactly_once_in_each_mode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: ModeWish) -> None:
    """Two subtasks, three files, and faults."""
    monkeypatch.setattr(line_source, "READ_BYTES", 20)
    expected = []
    for name in "abc":
        own = [f"{name}{number}" for number in range(30)]
        (tmp_path / name).write_text("\n".join(own))
        expected += own
    for seed in range(5):
        graph = Graph("lines").add("lines", LineSource(tmp_path / "?"), parallelism=2).add("out", ListSink())
        graph.connect("lines", "out", partitioning="rebalance")
        history = Simulator(graph, seed, faults=3, snapshotInterval=0.1, mode=mode).run()
        assert sorted(history.output("out")) == sorted(expected), history.reason
