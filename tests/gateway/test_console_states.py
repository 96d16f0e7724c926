"""What the console shows while it loads, and while something is missing."""

from pathlib import Path

import pytest
from playwright.async_api import ViewportSize, expect

from tests.support.browsers import running_browser
from tests.support.console_states import STATES, states


@pytest.mark.faults("console")
async def test_each_state_is_shown_with_what_to_do_and_is_accessible(tmp_path: Path) -> None:
    """Loading, empty, forbidden, stale, error, and a lost stream of updates."""
    seen = []
    size: ViewportSize = {"width": 1100, "height": 700}
    async with running_browser() as browser:
        async for name, watched in states(browser, tmp_path, size):
            page = watched.page
            await expect(page.locator("body")).to_contain_text(STATES[name])
            assert await watched.violations() == [], name
            assert not await watched.is_too_wide(), name
            # a caller can continue with other pages
            await expect(page.get_by_role("navigation", name="Pages")).to_be_visible()
            seen.append(name)
    assert seen == list(STATES)
