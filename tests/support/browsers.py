"""Debian's Chromium, driven by Playwright, with axe-core for accessibility."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, Page, async_playwright, expect

from tests.support.debian import install

PACKAGE = "chromium"
#: How long a test waits for what a page should show, also on a busy machine.
_EXPECT_TIMEOUT_MS = 60_000


def chromium() -> str:
    """The path of Chromium; CI installs Debian's package if it is missing."""
    found = shutil.which(PACKAGE)
    if found is None and os.environ.get("CI") and os.geteuid() == 0 and shutil.which("apt-get"):
        with (Path(tempfile.gettempdir()) / "drover-apt.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if shutil.which(PACKAGE) is None:
                install(PACKAGE)
        found = shutil.which(PACKAGE)
    assert found is not None, f"install Chromium ({PACKAGE} of Debian or Ubuntu)"
    return found


@asynccontextmanager
async def running_browser() -> AsyncIterator[Browser]:
    """A headless Chromium for the block."""
    expect.set_options(timeout=_EXPECT_TIMEOUT_MS)
    async with async_playwright() as playwright:
        # root in a container has no sandbox, and all pages are the test's own
        browser = await playwright.chromium.launch(
            executable_path=chromium(), args=["--no-sandbox", "--disable-gpu"]
        )
        yield browser
        await browser.close()


@dataclass
class WatchedPage:
    """A page whose errors are kept: messages of the console, and exceptions."""

    page: Page
    errors: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("console", self._note)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))

    def _note(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.errors.append(message.text)

    async def violations(self) -> list[str]:
        """The violations that axe-core finds: the rule, and the elements."""
        script = files("axe_playwright_python").joinpath("axe.min.js").read_text()
        await self.page.evaluate(script)
        found = await self.page.evaluate("axe.run({resultTypes: ['violations']})")
        return [
            f"{each['id']}: {[node['html'][:200] for node in each['nodes'][:3]]}"
            for each in found["violations"]
        ]

    async def is_too_wide(self) -> bool:
        """Whether the page needs a horizontal scroll bar."""
        return bool(
            await self.page.evaluate(
                "document.scrollingElement.scrollWidth > document.scrollingElement.clientWidth"
            )
        )
