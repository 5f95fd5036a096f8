"""A Chromium without a window, the distribution's own, driven by playwright."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from playwright.async_api import Browser, ConsoleMessage, Page, async_playwright

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or ""
needs_chromium = pytest.mark.skipif(
    not CHROMIUM, reason="chromium is missing: apt-get install -y --no-install-recommends chromium"
)
# As root its own sandbox cannot be made, and nothing but this page is opened.
_ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]


@dataclass
class Told:
    """What the browser had to say: nothing, on a page without faults."""

    faults: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)

    def watch(self, page: Page, address: str) -> None:
        def said(message: ConsoleMessage) -> None:
            if message.type in ("error", "warning"):
                self.faults.append(message.text)

        def asked(url: str) -> None:
            if not url.startswith(address):
                self.foreign.append(url)

        page.on("console", said)
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("request", lambda request: asked(request.url))


@contextlib.asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=CHROMIUM, args=_ARGUMENTS)
        try:
            yield browser
        finally:
            await browser.close()


@contextlib.asynccontextmanager
async def opened(
    browser: Browser, address: str, *, width: int = 1280, dark: bool = False, still: bool = True
) -> AsyncIterator[tuple[Page, Told]]:
    context = await browser.new_context(
        viewport={"width": width, "height": 900},
        color_scheme="dark" if dark else "light",
        reduced_motion="reduce" if still else "no-preference",
        device_scale_factor=1,
        locale="en-GB",
        timezone_id="UTC",
    )
    try:
        page = await context.new_page()
        page.set_default_timeout(10_000)
        told = Told()
        told.watch(page, address)
        await page.goto(address)
        yield page, told
    finally:
        await context.close()
