"""Fixtures of the page's tests: a page without a run, runs on the one Spark, and a real browser."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import Browser

from benchmarks.live import Live
from benchmarks.page import chromium
from cutline.barrier_runtime.page.commands import Kind
from cutline.barrier_runtime.page.server import RunPage, close_page, open_page
from cutline.barrier_runtime.page.settings import Page
from tests.leaks import LeakCheck
from tests.page.reports import pipeline
from tests.source_files import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ShowPage = Callable[[Page], RunPage]


@pytest.fixture
def show(leak_check: LeakCheck) -> Iterator[ShowPage]:
    """Shows a run that is fed by hand, on a server of its own settings, until it is closed or the test ends."""
    opened = []

    def show_page(settings: Page) -> RunPage:
        server = open_page(settings)
        opened.append(server)
        return server.show("orders", pipeline(), dict.fromkeys(Kind, lambda: None))

    yield show_page
    for server in opened:
        if not server.is_closing:
            close_page(server)


@pytest.fixture
def live(spark: SparkSession, ray_instance: None, leak_check: LeakCheck, tmp_path: Path) -> Iterator[Live]:
    """Runs graphs on the one Spark and the one Ray; nothing of them outlives the test."""
    there = Live(spark, tmp_path)
    yield there
    there.end()


@pytest.fixture
def browser(leak_check: LeakCheck) -> Iterator[Browser]:
    """A headless Chromium of its own."""
    with chromium() as started:
        yield started


@pytest.fixture
def pictures() -> Path:
    """The folder in which screenshots are kept."""
    folder = ROOT / "artifacts" / "page"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
