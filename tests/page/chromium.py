"""The one browser in which the page is looked at: the distribution's Chromium, headless."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

#: As distributions call it; scripts/setup looks for the same.
_NAMES = ("chromium", "chromium-browser", "google-chrome")


@contextmanager
def chromium() -> Iterator[Browser]:
    """A Chromium of its own, and its end."""
    path = next(filter(None, map(shutil.which, _NAMES)), None)
    if path is None:
        raise FileNotFoundError("Chromium is missing. Install it (Debian: apt-get install chromium).")
    # It refuses to put root into its sandbox.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=arguments)
        yield browser
        browser.close()
