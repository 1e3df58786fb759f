"""Graphs of the stored snapshots; of the same shape for ever, because a snapshot is restored into its graph."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from cutline import Graph, Subtask
from tests.stored_format import nodes
from tests.stored_format.nodes import Blob, Collected, Gatherer, Items, Point, Tally

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def batch(*words: str) -> pa.RecordBatch:
    """A record batch with a word and a number in each row."""
    return pa.record_batch({"word": list(words), "length": [len(word) for word in words]})


def plain() -> Graph:
    """A source, a node that counts, a sink."""
    graph = Graph("plain").add("numbers", Items(1, 2, 3, 4)).add("tally", Tally()).add("out", Collected())
    return graph.connect("numbers", "tally").connect("tally", "out")


def channel_state() -> Graph:
    """A source of all that a frame can hold, and a node that passes messages on."""
    items = (1, "two", None, 4.5, b"six", {"seven": [7]}, [8, (9,)], ("flat", 10), ("flat", 11), ("nested", [12]), -13)
    graph = Graph("channel-state").add("source", Items(*items)).add("keeper", Gatherer()).add("out", Collected())
    return graph.connect("source", "keeper").connect("keeper", "out")


def together() -> Graph:
    """A source that sends lists with `Context.sendAll`."""
    items = ([("a", 1), ("b", 2), ("c", 3)], [("d", [4]), ("e", [5])], [6, "seven", None], [("f", 8), ("g", 9)])
    graph = Graph("together").add("source", nodes.Bundles(*items)).add("keeper", Gatherer()).add("out", Collected())
    return graph.connect("source", "keeper").connect("keeper", "out")


def batches() -> Graph:
    """Batches on three edges, as a state, and as the state of aggregates."""
    items = (batch("a", "bb"), batch("bb"), batch("ccc"), batch("dddd", "a"), batch("eeeee"), batch("a"))
    graph = Graph("batches").add("source", Items(*items))
    aggregates = {"rows": ("length", "count"), "sum": ("length", "sum"), "mean": ("length", "mean")}
    partial = nodes.PartialTotals("word", aggregates=aggregates, rows=3, seconds=1.0)
    graph.add("keeper", nodes.BatchGatherer()).add("partial", partial)
    graph.add("totals", nodes.Totals("word", aggregates=aggregates)).add("out", Collected())
    schema = "word string, length long"
    graph.connect("source", "keeper", schema=schema).connect("keeper", "partial", schema=schema)
    graph.connect("partial", "totals", schema=partial.schemaOf(schema))
    return graph.connect("totals", "out")


def timers() -> Graph:
    """Timers behind a hash edge, by a key, and behind another edge, without."""
    items = (["k", 1], [7, 2], [("t", 8), 3], ["k", 4])
    graph = Graph("timers").add("source", Items(*items)).add("keyed", nodes.Alarms()).add("keyless", nodes.Alarms())
    graph.add("out", Collected()).connect("source", "keyed", key=nodes.key_of).connect("source", "keyless")
    return graph.connect("keyed", "out").connect("keyless", "out")


def keyed() -> Graph:
    """Words through a node with keyed state, by their initials."""
    items = ("to", "be", "or", "not", "to", "be", "that", "is", "one", "question")
    graph = Graph("keyed").add("source", Items(*items)).add("visits", nodes.Visits(), parallelism=2)
    graph.add("out", Collected()).connect("source", "visits", key=nodes.initial_of)
    return graph.connect("visits", "out")


def prepared() -> Graph:
    """A source and a sink in two phases."""
    graph = Graph("prepared").add("numbers", Items(*range(1, 7))).add("out", Collected())
    return graph.connect("numbers", "out")


def partitions() -> Graph:
    """Partitions dealt to two subtasks, and each way to spread."""
    graph = Graph("partitions").add("shelves", nodes.Shelves(3), parallelism=2).add("director", nodes.Director())
    graph.add("turns", Tally(), parallelism=2).add("all", Tally(), parallelism=2).add("out", Collected(), parallelism=2)
    graph.connect("shelves", "director").connect("shelves", "turns", partitioning="rebalance", alignment="aligned")
    graph.connect("shelves", "all", partitioning="broadcast", alignment=2.5)
    graph.connect("director", "out", partitioning="directed").connect("turns", "out", key=nodes.key_of)
    return graph.connect("all", "out", partitioning="forward")


def cycle() -> Graph:
    """The textbook's two nodes; on a cycle both edges spill."""
    graph = Graph("cycle").add("P", nodes.Balls("red", "green", "blue")).add("Q", nodes.Balls("brown", "orange"))
    return graph.connect("P", "Q").connect("Q", "P")


def dataframe(df: DataFrame, path: str, sink: type[nodes.Written]) -> Graph:
    """A DataFrame, whose rows are written below `path`."""
    graph = Graph("dataframe").add("rows", nodes.SlowRows(df)).add("out", sink(path, "id LONG"))
    return graph.connect("rows", "out")


def chance() -> Graph:
    """A node that draws numbers."""
    graph = Graph("chance").add("numbers", Items(1, 2, 3)).add("dice", nodes.Dice()).add("out", Collected())
    return graph.connect("numbers", "dice").connect("dice", "out")


def pickled() -> Graph:
    """Values that MessagePack lacks, as messages and in a state."""
    items = (Point(1, 2), nodes.Order(3, ("tea", "milk")), {4, 5}, complex(6, 7))
    kept = Gatherer(datetime.date(1985, 2, 1), frozenset({8}), 1 << 70, {"inner": Point(9, 10)}, Subtask("out"))
    graph = Graph("pickled").add("source", Items(*items)).add("keeper", kept).add("out", Collected())
    return graph.connect("source", "keeper").connect("keeper", "out")


def large() -> Graph:
    """States of large bytes and a large batch, of a value with large memory, and of a large pickle with such a one."""
    size = 64 * 1024
    plain = Gatherer(bytes(size), pa.record_batch({"zero": pa.array([0] * (size // 8))}), "small")
    graph = Graph("large").add("numbers", Items(1, 2)).add("keeper", plain).add("blob", Gatherer(Blob(bytes(size))))
    graph.add("objects", Gatherer(Blob(bytes(size)), ("z" * size,))).add("out", Collected())
    graph.connect("numbers", "keeper").connect("keeper", "blob").connect("blob", "objects")
    return graph.connect("objects", "out")
