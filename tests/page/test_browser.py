"""The page in a real browser, before a real run: it loads, goes on, orders, and says how the run ended."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Request, Response, expect

from benchmarks.live import Live, wait_for
from cutline import Page as PageSettings
from tests.page.conftest import ShowPage
from tests.page.programs import REASON, watched
from tests.page.reports import SPITEFUL, pipeline, report, totals_mode

#: Milliseconds that anything on the page may take to appear on a crowded machine. Passing tests do not wait.
_DEADLINE_MS = 60_000


class Watched:
    """A tab, and all that went wrong in it."""

    def __init__(self, browser: Browser, address: str) -> None:
        expect.set_options(timeout=_DEADLINE_MS)
        self.problems: list[str] = []
        self.tab: Page = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme="light")
        self.tab.set_default_timeout(_DEADLINE_MS)
        self.tab.on("console", lambda message: self.problems.append(f"console: {message.text}"))
        self.tab.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        self.tab.on("requestfailed", self._note_failure)
        self.tab.on("response", self._note)
        self.tab.goto(address)

    def picture(self, folder: Path, name: str, *, width: int = 1280, scheme: str = "light") -> None:
        """Keep a screenshot; nothing may be wider than the window."""
        self.tab.set_viewport_size({"width": width, "height": 900})
        self.tab.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        # Two frames: one in which the page is laid out anew, one in which it is drawn.
        self.tab.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        assert self.tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
        self.tab.screenshot(path=folder / f"{name}.png", full_page=True)

    def _note_failure(self, request: Request) -> None:
        if request.failure != "net::ERR_ABORTED":  # so a stream ends when its page is left
            self.problems.append(f"request: {request.url} {request.failure}")

    def _note(self, response: Response) -> None:
        if response.status >= 400:
            self.problems.append(f"{response.status} {response.url}")


@pytest.mark.spark
@pytest.mark.ray
@pytest.mark.slow
def test_a_run_is_watched_from_its_start_to_its_end(
    live: Live, browser: Browser, tmp_path: Path, pictures: Path
) -> None:
    """64 subtasks, two snapshots a second, a failure on the way; both buttons do what they say, nothing goes wrong."""
    sign = tmp_path / "sign"
    run = live.run(watched(sign), workers=2, snapshotInterval=0.5, page=PageSettings(port=0))
    assert run.pageAddress is not None
    watcher = Watched(browser, run.pageAddress)
    tab = watcher.tab
    expect(tab.locator("#phase")).to_have_text("running")
    expect(tab.locator("#graph .node")).to_have_count(3)
    expect(tab.locator("#invariants")).to_contain_text("holds in snapshot")
    expect(tab.locator("#metrics")).to_contain_text("squares")
    in_figure = tab.locator("#figures dd").first
    expect(in_figure).not_to_have_text("0/s")

    published = tab.locator("#snapshots .state-published")
    wait_for("three snapshots", lambda: published.count() >= 3)
    before = tab.locator("#snapshots tr").first.inner_text()
    expect(tab.locator("#snapshots tr").first).not_to_have_text(before)

    sign.touch()
    expect(tab.locator("#restarts")).to_contain_text(REASON)
    expect(tab.locator("#phase")).to_have_text("running")
    tab.locator("#snapshot").click()
    expect(tab.locator("#outcome")).to_contain_text("was published after")
    ordered = tab.locator("#snapshots tr", has_text="request").first.locator("td").first.inner_text()
    assert int(ordered) in run.status["snapshots"] and f"snapshot {ordered} " in tab.locator("#outcome").inner_text()

    tab.locator("summary", has_text="as tables").click()
    expect(tab.locator("#edges")).to_contain_text("squares → totals")
    for name, width, scheme in (("light", 1280, "light"), ("narrow", 390, "light"), ("dark", 1280, "dark")):
        watcher.picture(pictures, name, width=width, scheme=scheme)

    tab.locator("#stop").click()
    tab.get_by_role("button", name="Let it run").click()
    assert run.isActive
    tab.locator("#stop").click()
    tab.locator("#stop-yes").click()
    expect(tab.locator("#ended")).to_contain_text("The run has ended (stopped)")
    expect(tab.locator("#outcome")).to_contain_text("Done")
    assert run.awaitTermination(60) and tab.locator("#snapshot").is_disabled() and tab.locator("#lost").is_hidden()
    watcher.picture(pictures, "ended")
    assert watcher.problems == []


def test_stores_that_wait_are_seen(show: ShowPage, browser: Browser, pictures: Path) -> None:
    """How many keys wait, and the error of a store that is away, with nothing of it read as HTML."""
    page = show(PageSettings(port=0))
    page.see(report(pipeline(), 1, mode=totals_mode(error=f"PostgreSQL table t in db: {REASON}")))
    watcher = Watched(browser, str(page.address))
    figure = watcher.tab.locator("#figures div", has_text="Store of ledger").locator("dd")
    expect(figure).to_have_text(f"1.2k keys wait, 56 cells to write, last error: PostgreSQL table t in db: {REASON}")
    expect(watcher.tab.locator("#figures div", has_text="Items behind").locator("dd")).to_have_text("1.2k")
    watcher.picture(pictures, "stores")
    watcher.picture(pictures, "stores-narrow", width=390)
    page.see(report(pipeline(), 2, mode=totals_mode(cellsLeft=0)))
    expect(figure).to_have_text("1.2k keys wait")
    assert watcher.problems == []


def test_what_is_written_there_is_text_and_a_loss_is_seen(show: ShowPage, browser: Browser, pictures: Path) -> None:
    """By the token's address; names and reasons are never HTML; when the driver is gone the page says so."""
    settings = PageSettings(port=0, token="secret")
    page = show(settings)
    restarts = [{"timestamp": 1.0, "reason": f"{REASON}\n{SPITEFUL}"}]
    page.see(report(pipeline(), 1, restarts=restarts, progress={"metrics": {SPITEFUL: 3}}))
    page.see(report(pipeline(), 2, restarts=restarts, progress={"metrics": {SPITEFUL: 3}}))
    watcher = Watched(browser, f"{page.address}?token=secret")
    tab = watcher.tab
    expect(tab.locator("#restarts")).to_contain_text(REASON)
    assert tab.url == page.address
    assert tab.locator("#metrics dt").text_content() == SPITEFUL and tab.locator("main b, main img").count() == 0
    tab.get_by_role("link", name="All runs").click()
    tab.get_by_role("link", name="orders").click()
    expect(tab.locator("#graph .node")).to_have_count(6)
    assert watcher.problems == []
    page.close()
    expect(tab.locator("#lost")).to_contain_text("Connection lost")
    assert tab.locator("#snapshot").is_disabled()
    watcher.picture(pictures, "lost")
