"""The page over a real daemon's API: a ring is started, held and stopped from it, and a refusal is read on it."""

from __future__ import annotations

import re
from pathlib import Path

from playwright.async_api import Page, expect

from tests.api.serving import READER, TOKEN, api
from tests.page.browser import chromium, needs_chromium, opened
from tests.reconcile.cluster import cluster
from tests.reconcile.running import until, within

pytestmark = needs_chromium


async def ask_for(page: Page, word: str) -> None:
    await page.get_by_role("button", name=f"{word}…").click()
    if await page.locator("#token").is_visible():
        await page.locator("#token").fill(TOKEN)
        await page.keyboard.press("Enter")
    await expect(page.locator("#ask-answer")).to_contain_text(re.compile("It would be|Nothing would"))


async def make(page: Page, word: str) -> None:
    await ask_for(page, word)
    await expect(page.locator("#ask-go")).to_be_enabled()
    await page.locator("#ask-go").click()
    await expect(page.locator("#ask")).to_be_hidden()


@within(120)
async def test_a_ring_is_operated_from_the_page(tmp_path: Path) -> None:
    async with cluster() as ring, chromium() as browser:
        await ring.reach("down")
        async with (
            api(ring["spark2"].loop, tmp_path) as served,
            opened(browser, f"http://127.0.0.1:{served.tcp}/") as (page, told),
        ):
            await expect(page.locator("#phase")).to_have_text("○ Down")
            await expect(page.locator("#ring svg .node")).to_have_count(3)
            await make(page, "Start")
            await expect(page.locator("#sentence")).to_have_text("epoch 1 is ready: all 3 ranks serve")
            await expect(page.locator("#events li").first).to_contain_text("epoch 1 is ready")
            await make(page, "Hold")
            await expect(page.get_by_role("button", name="Resume…")).to_be_visible()
            await make(page, "Resume")
            await make(page, "Stop")
            await expect(page.locator("#phase")).to_have_text("○ Down")
            assert ring.conductor.loop.state.intent.want == "down"
            assert "on spark2" in ring.conductor.loop.state.intent.by
            ring["spark3"].links.unplug("enp1s0f0np0")
            await until(lambda: any(f.id == "cable-missing" for f in ring.conductor.loop.ring().findings))
            await ask_for(page, "Start")
            await expect(page.locator("#ask-answer")).to_contain_text("It would be refused")
            await expect(page.locator("#ask-answer .fix").first).to_contain_text("spark3 port 0, or switch")
            await expect(page.locator("#ask-go")).to_be_disabled()
            assert ring.conductor.loop.state.intent.want == "down"
            assert (told.faults, told.foreign) == ([], [])


@within(60)
async def test_a_token_that_may_only_look_is_kept_until_there_is_another(tmp_path: Path) -> None:
    """Where looking takes a token too, the page would have gone blind by a click on Start."""
    secret = READER["Authorization"].removeprefix("Bearer ")
    async with cluster() as ring, chromium() as browser:
        await ring.reach("down")
        async with (
            api(ring["spark2"].loop, tmp_path) as served,
            opened(browser, f"http://127.0.0.1:{served.tcp}/") as (page, _),
        ):
            await page.get_by_role("button", name="Start…").click()
            await page.locator("#token").fill(secret)
            await page.keyboard.press("Enter")
            await expect(page.locator("#ask-answer")).to_contain_text("may look at the ring, but not change it")
            await expect(page.locator("#token")).to_be_visible()
            assert await page.evaluate("sessionStorage.getItem('sparkd-token')") == secret
            await page.locator("#token").fill("wrong")
            await page.keyboard.press("Enter")
            await expect(page.locator("#ask-answer")).to_contain_text("none of this machine's")
            assert await page.evaluate("sessionStorage.getItem('sparkd-token')") is None
