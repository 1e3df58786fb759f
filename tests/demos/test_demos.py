"""The demos hold what they promise, in this process and with little text and time."""

from __future__ import annotations

import io
import random
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from cutline.demos import bank, wordcount
from cutline.snapshot.errors import GraphError
from tests.leaks import LeakCheck

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_WORDS = [f"word_{letter}{other}" for letter in "abcdefghij" for other in "klmnopqrst"]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """A folder with a million words, in folders, with bytes that are no UTF-8 and words that are none."""
    chance = random.Random(7)
    folder = tmp_path / "text"
    for number in range(4):
        file = folder / f"part{number % 2}" / f"{number}.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        lines = "".join(" ".join(chance.choices(_WORDS, k=10)) + "\n" for _ in range(25_000))
        file.write_bytes(b"caf\xe9 na\xefve \xff\xfe 123 \xc3\xa9t\xc3\xa9\n" + lines.encode())
    return folder


def captured() -> tuple[Console, io.StringIO]:
    """A console without a terminal, and what it prints."""
    stream = io.StringIO()
    return Console(file=stream, width=200), stream


@pytest.mark.spark
@pytest.mark.ray
@pytest.mark.slow
def test_words_are_counted_right_with_a_worker_killed(
    spark: SparkSession, ray_instance: None, leak_check: LeakCheck, text: Path, tmp_path: Path
) -> None:
    """Half of the words before the kill, half after it, and every count as Spark's own."""
    console, stream = captured()
    output = tmp_path / "counts"
    assert wordcount.run_demo(spark, console, folder=text, output=output, parallelism=2, interval=0.2, kill=True), (
        stream.getvalue()
    )
    said = stream.getvalue()
    assert "every count is equal" in said
    assert re.search(r"[1-9]\d* snapshots, 1 restarts, recovery .* from SIGKILL", said)
    counts = {row["word"]: row["count"] for row in spark.read.parquet(str(output)).collect()}
    assert counts["caf"] == counts["na"] == counts["ve"] == 4
    assert sum(counts[word] for word in _WORDS) == 1_000_000


@pytest.mark.spark
def test_counts_do_not_go_where_others_are(spark: SparkSession, tmp_path: Path) -> None:
    """An output folder that is there is refused before anything runs."""
    with pytest.raises(GraphError, match="give a new folder"):
        wordcount.run_demo(
            spark, captured()[0], folder=tmp_path, output=tmp_path, parallelism=2, interval=1.0, kill=False
        )


@pytest.mark.spark
@pytest.mark.ray
@pytest.mark.slow
def test_money_is_constant_with_workers_killed(spark: SparkSession, ray_instance: None, leak_check: LeakCheck) -> None:
    """Every snapshot adds up, some see transfers in flight, and workers were killed meanwhile."""
    console, stream = captured()
    assert bank.run_demo(spark, console, seconds=4.0, accounts=4, interval=0.2), stream.getvalue()
    assert "money was constant" in stream.getvalue()
    assert "VIOLATED" not in stream.getvalue()


def test_lost_money_is_seen() -> None:
    """The check has teeth: a sum that differs is a violation, in the verdict and in what is printed."""
    conservation = bank.Conservation(100)
    conservation.verdicts.append(bank.Verdict(1, 60, 30, 2))
    console, stream = captured()
    assert bank._print_verdicts(conservation, 0, console) == 1
    assert "= 90 VIOLATED" in stream.getvalue()
