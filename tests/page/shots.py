"""Pictures of the page, a ring in each state, wide and narrow, light and dark: `python -m tests.page.shots FOLDER`."""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime
from pathlib import Path

from playwright.async_api import Page

from tests.api.serving import TOKEN
from tests.page.browser import CHROMIUM, chromium, opened
from tests.page.documents import NOW
from tests.page.scenes import SCENES
from tests.page.stage import staged

WIDTHS = (1280, 400)


async def take(folder: Path, names: list[str]) -> list[Path]:
    made = []
    async with chromium() as browser:
        for name in names:
            async with staged(SCENES[name]()) as (_, address):
                for width in WIDTHS:
                    for dark in (False, True):
                        async with opened(browser, "about:blank", width=width, dark=dark) as (page, _told):
                            await page.clock.set_fixed_time(datetime.fromtimestamp(NOW, UTC))
                            await page.goto(address)
                            await page.locator("#charts figure").first.wait_for()
                            await page.locator("#ring svg").wait_for()
                            path = folder / f"{name}-{width}{'-dark' if dark else ''}.png"
                            await page.screenshot(path=path, full_page=True)
                            made.append(path)
                            if name == "held":
                                made.append(await _asked(page, folder / path.name.replace("held", "asked")))
    return made


async def _asked(page: Page, path: Path) -> Path:
    """A change that would be refused, with what to do about it."""
    await page.locator("#do-clear").click()
    await page.locator("#token").fill(TOKEN)
    await page.keyboard.press("Enter")
    await page.locator("#ask-answer .finding").wait_for()
    await page.screenshot(path=path)
    return path


def main() -> int:
    if not CHROMIUM:
        print("chromium is missing: apt-get install -y --no-install-recommends chromium", file=sys.stderr)
        return 1
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "build/page")
    folder.mkdir(parents=True, exist_ok=True)
    for path in asyncio.run(take(folder, sys.argv[2:] or list(SCENES))):
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
