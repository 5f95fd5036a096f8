"""The page in a real browser: what it shows, what it never runs, and who can use it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from playwright.async_api import Page, expect

from tests.api.serving import TOKEN
from tests.page import documents, scenes
from tests.page.browser import Told, chromium, needs_chromium, opened
from tests.page.stage import Stage, staged
from tests.reconcile.running import within

pytestmark = needs_chromium
in_browser = within(120)  # a browser takes seconds to start where others work too


@contextlib.asynccontextmanager
async def viewing(scene: scenes.Scene, width: int = 1280) -> AsyncIterator[tuple[Page, Told, Stage]]:
    async with chromium() as browser, staged(scene) as (stage, address), opened(browser, address, width=width) as seen:
        yield *seen, stage


async def shown(page: Page) -> None:
    """Everything that the page asks for is there."""
    await page.locator("#ring svg").wait_for()
    await page.locator("#charts figure").first.wait_for()
    await page.locator("#doctor details").first.wait_for()


@in_browser
async def test_every_ring_fits_every_screen_without_a_fault() -> None:
    async with chromium() as browser:
        for name, make in scenes.SCENES.items():
            scene = make()
            async with staged(scene) as (_, address), opened(browser, address) as (page, told):
                await shown(page)
                await expect(page.locator("#sentence")).to_have_text(scene.ring.summary)
                assert await page.title() == f"{scene.ring.phase} · attic · sparkd"
                for width in (400, 601, 901, 1280, 1920):
                    await page.set_viewport_size({"width": width, "height": 900})
                    await page.wait_for_timeout(50)
                    assert await page.evaluate("document.scrollingElement.scrollWidth") <= width, (name, width)
                assert await page.locator("#ring svg .node").count() == len(scene.ring.ranks)
                assert (told.faults, told.foreign) == ([], []), name


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@in_browser
async def test_axe_finds_no_barrier(dark: bool) -> None:
    async with chromium() as browser:
        for name in ("ready", "gated", "degraded", "held", "starting"):
            one = staged(scenes.SCENES[name]())
            async with one as (_, address), opened(browser, address, dark=dark) as (page, _told):
                await shown(page)
                await page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true; })")
                assert await barriers(page, colours=dark) == [], name


@in_browser
async def test_axe_finds_no_barrier_in_what_is_asked() -> None:
    async with viewing(
        replace(scenes.held(), trial=documents.trial("clear", "no", scenes.held().ring.findings))
    ) as seen:
        page = seen[0]
        await page.locator("#do-clear").click()
        assert await barriers(page) == []
        await page.locator("#token").fill(TOKEN)
        await page.keyboard.press("Enter")
        await page.locator("#ask-answer .finding").wait_for()
        assert await barriers(page) == []


async def barriers(page: Page, *, colours: bool = False) -> list[str]:
    """What axe-core finds, a line each; `colours`: only of what differs in the dark."""
    await page.evaluate(AXE_SCRIPT)
    options: dict[str, Any] = {"resultTypes": ["violations"], "elementRef": False}
    if colours:
        options["runOnly"] = ["color-contrast"]
    result: Any = await page.evaluate("options => axe.run(document, options)", options)
    return [
        f"{found['id']}: {node['target']}: {node['failureSummary']}"
        for found in result["violations"]
        for node in found["nodes"]
    ]


@in_browser
async def test_text_is_text_whatever_it_says() -> None:
    async with viewing(scenes.hostile(), width=400) as (page, told, stage):
        await page.locator("#doctor details").first.wait_for()
        await page.locator("#incidents summary").first.click()
        await page.locator("#incidents .evidence pre").first.wait_for(state="attached")
        await page.evaluate(f"sessionStorage.setItem('sparkd-token', '{TOKEN}')")
        await page.locator("#controls button:visible").first.click()
        await page.locator("#ask-answer .finding").wait_for()
        assert "owned" not in (await page.title()).split("·")[0]
        assert (
            await page.evaluate("document.querySelectorAll('main script, main img, dialog img, dialog script').length")
            == 0
        )
        text = stage.scene.ring.summary
        assert "<script>" in text
        assert await page.locator("#sentence").text_content() == text
        assert await page.locator("#findings .finding-head").text_content() == f"Refuses a start {text}: {text}"
        assert await page.evaluate("document.scrollingElement.scrollWidth") <= 400
        assert (told.faults, told.foreign) == ([], [])


@in_browser
async def test_what_changes_is_shown_and_who_reads_is_not_disturbed() -> None:
    scene = scenes.held()
    async with chromium() as browser, staged(scene) as (stage, address), opened(browser, address) as (page, told):
        await shown(page)
        summary = page.locator("#incidents summary").first
        await summary.click()
        await expect(page.locator("#incidents .evidence pre").first).to_have_text(documents.FIRST)
        chart = page.locator("#charts svg[tabindex]").first
        await chart.focus()
        await page.locator("#sentence").evaluate("element => { element.dataset.same = 'yes'; }")
        await stage.become(replace(scenes.ready(), incidents=scene.incidents, details=scene.details))
        await expect(page.locator("#sentence")).to_have_text("epoch 8 is ready: all 3 ranks serve")
        # A live region is only read when its text changes, and not when it is replaced.
        assert await page.locator("#sentence").get_attribute("data-same") == "yes"
        assert await page.locator("#sentence").get_attribute("aria-live") == "polite"
        assert await page.evaluate("document.activeElement.dataset.key") == "chart-tokens"
        assert await page.locator("#incidents details").first.get_attribute("open") is not None
        assert told.faults == []


@in_browser
async def test_a_daemon_that_is_gone_is_said_and_found_again() -> None:
    async with viewing(scenes.ready()) as (page, _, stage):
        await shown(page)
        await expect(page.locator("#link")).to_have_text("live")
        await expect(page.locator("#stale")).to_be_hidden()
        await stage.vanish()
        await expect(page.locator("#stale")).to_contain_text("sparkd on spark1 does not answer")
        await expect(page.locator("#stale")).to_contain_text("What is shown is")
        await expect(page.locator("#stale")).to_contain_text("systemctl status sparkd")
        assert await page.locator("#stale").get_attribute("role") == "alert"
        await expect(page.locator("#link")).to_have_text("not connected")
        await expect(page.locator("#sentence")).to_have_text("epoch 8 is ready: all 3 ranks serve")
        stage.scene = scenes.degraded()
        await stage.return_()
        await expect(page.locator("#link")).to_have_text("live")
        await expect(page.locator("#stale")).to_be_hidden()
        await expect(page.locator("#phase")).to_have_text("▲ Degraded")


@in_browser
async def test_a_stream_that_falls_silent_is_not_taken_for_news() -> None:
    async with viewing(scenes.ready()) as (page, _told, stage):
        await page.clock.install()
        await page.reload()
        await expect(page.locator("#link")).to_have_text("live")
        # As if the network had gone: the connection is there, and nothing comes for longer than the daemon is silent.
        stage.down = True
        await page.clock.fast_forward(45_000)
        await expect(page.locator("#stale")).to_contain_text("sparkd on spark1 does not answer")
        assert await page.locator("body").get_attribute("class") == "old"


@in_browser
async def test_a_change_is_looked_at_first_and_made_for_the_epoch_that_was_seen() -> None:
    async with viewing(scenes.ready()) as (page, told, stage):
        await shown(page)
        await page.get_by_role("button", name="Stop…").click()
        await expect(page.locator("#ask-about")).to_contain_text("requests that still run are lost")
        assert stage.requests == []
        await page.locator("#token").fill(TOKEN)
        await page.get_by_role("button", name="See what it would do").click()
        await expect(page.locator("#ask-answer")).to_contain_text("It would be carried out: epoch 9: down")
        assert stage.requests == [("/v1/ring/stop?dry_run=true", f"Bearer {TOKEN}")]
        await page.locator("#drain").fill("600")
        await page.get_by_role("button", name="Stop the ring").click()
        await expect(page.locator("#ask")).to_be_hidden()
        assert stage.requests[1:] == [("/v1/ring/stop?expect_epoch=8&drain=600", f"Bearer {TOKEN}")]
        assert [where for where in stage.addresses if TOKEN in where] == []
        assert TOKEN not in page.url
        # It outlives a reload of this tab, and is in no other.
        await page.reload()
        await page.get_by_role("button", name="Hold…").click()
        await expect(page.locator("#token")).to_be_hidden()
        await page.get_by_label("Reason").fill("new fan & more")
        await expect(page.locator("#ask-go")).to_be_enabled()
        await page.locator("#ask-go").click()
        await expect(page.locator("#ask")).to_be_hidden()
        assert stage.requests[-1][0] == "/v1/ring/hold?expect_epoch=8&reason=new+fan+%26+more"
        other = await page.context.new_page()
        await other.goto(page.url)
        await other.get_by_role("button", name="Stop…").click()
        await expect(other.locator("#token")).to_be_visible()
        assert await page.evaluate("localStorage.length") == 0
        assert await page.evaluate("document.cookie") == ""
        assert (told.faults, told.foreign) == ([], [])


@in_browser
async def test_a_refusal_is_shown_with_what_to_do() -> None:
    scene = scenes.held()
    finding = scene.ring.findings[0]
    refused = replace(scene, trial=documents.trial("clear", "spark3 is silent", (finding,)))
    async with chromium() as browser, staged(refused) as (stage, address), opened(browser, address) as (page, _):
        await page.get_by_role("button", name="Clear…").click()
        await page.locator("#token").fill("wrong")
        await page.keyboard.press("Enter")
        await expect(page.locator("#ask-answer")).to_contain_text("Refused: the token is not the one of this machine")
        await expect(page.locator("#ask-answer")).to_contain_text("What to do: sparkctl token list")
        assert await page.evaluate("sessionStorage.length") == 0
        await page.locator("#token").fill(TOKEN)
        await page.keyboard.press("Enter")
        await expect(page.locator("#ask-answer")).to_contain_text("It would be refused: spark3 is silent")
        await expect(page.locator("#ask-answer .fix")).to_have_text(f"Fix: {finding.fix}")
        await expect(page.locator("#ask-go")).to_be_disabled()
        assert len(stage.requests) == 2


@in_browser
async def test_the_keyboard_is_enough() -> None:
    async with viewing(scenes.ready()) as (page, _told, _):
        await shown(page)
        await page.keyboard.press("Tab")
        assert await page.evaluate("document.activeElement.textContent") == "Skip to the ring"
        await page.keyboard.press("Enter")
        await page.keyboard.press("Tab")
        assert await page.evaluate("document.activeElement.id") == "do-stop"
        outline = "getComputedStyle(document.activeElement).outlineStyle"
        assert await page.evaluate(outline) == "solid"
        await page.keyboard.press("Enter")
        await expect(page.locator("#ask")).to_be_visible()
        assert await page.evaluate("document.activeElement.id") == "token"
        await page.keyboard.press("Escape")
        await expect(page.locator("#ask")).to_be_hidden()
        assert await page.evaluate("document.activeElement.id") == "do-stop"
        await page.locator("#charts svg[tabindex]").nth(1).focus()
        before = await page.locator("#charts .readout").nth(1).text_content()
        await page.keyboard.press("Home")
        after = await page.locator("#charts .readout").nth(1).text_content()
        assert before == "14.7 GiB"
        assert after is not None and after.endswith(": 96.1 GiB")


@in_browser
async def test_nothing_is_said_by_colour_alone() -> None:
    async with viewing(scenes.ready()) as (page, _told, _stage):
        await shown(page)
        lines = await page.locator("#legend .rail").evaluate_all(
            "all => all.map(e => [getComputedStyle(e).strokeDasharray, getComputedStyle(e).strokeWidth].join())"
        )
        assert len(set(lines)) == len(lines) == 5


@in_browser
async def test_nothing_moves_for_who_does_not_want_it() -> None:
    moving = "document.getAnimations().filter(each => each.playState === 'running').length"
    async with chromium() as browser, staged(scenes.ready()) as (_, address):
        for still in (True, False):
            async with opened(browser, address, still=still) as (page, _told):
                await shown(page)
                assert (await page.evaluate(moving) == 0) == still


@in_browser
async def test_where_reading_needs_a_token_it_is_asked_for() -> None:
    async with chromium() as browser, staged(scenes.ready()) as (stage, address):
        stage.closed = True
        async with opened(browser, address) as (page, _told):
            await expect(page.locator("#stale")).to_contain_text("sparkd wants a token before it tells anything")
            await page.locator("#sign-in input").fill(TOKEN)
            await page.get_by_role("button", name="Use this token").click()
            await expect(page.locator("#sentence")).to_have_text("epoch 8 is ready: all 3 ranks serve")
            await shown(page)
            assert [where for where in stage.addresses if TOKEN in where] == []


@in_browser
async def test_a_stream_is_read_however_it_is_cut() -> None:
    """By the reader itself, fed one byte after the other and with all three ends of a line."""
    text = 'retry: 5\n\n: a comment\nevent: ring\r\ndata: {"a":\r\ndata: 1}\nid: d-7\n\n'
    text += "event: lost\rdata: x\r\rdata: y\n\n"
    script = """async text => {
        const { reader } = await import('/page/feed.js');
        const found = [];
        for (const size of [1, 2, 7, text.length]) {
            const told = [];
            const read = reader((...each) => told.push(each));
            for (let at = 0; at < text.length; at += size) read(text.slice(at, at + size));
            found.push(JSON.stringify(told));
        }
        return found;
    }"""
    wanted = [["ring", '{"a":\n1}', "d-7"], ["lost", "x", ""], ["message", "y", ""]]
    async with viewing(scenes.ready()) as (page, _told, _):
        found = await page.evaluate(script, text)
        assert [json.loads(each) for each in found] == [wanted] * 4


@in_browser
async def test_history_goes_on_over_a_restart_of_the_daemon() -> None:
    scene = scenes.ready()
    async with viewing(scene) as (page, _told, stage):
        await shown(page)
        script = """async () => {
            const { Hour } = await import('/page/charts.js');
            const hour = new Hour();
            const get = async after => (await fetch(`/v1/history?after=${after}`)).json();
            const whole = await get(0);
            hour.add(whole);
            const first = [hour.samples.length, hour.last];
            hour.add(await get(whole.last));
            const same = hour.samples.length;
            return [first, same, hour.add({ ...whole, last: 5 }), hour.samples.length];
        }"""
        assert await page.evaluate(script) == [[360, 360], 360, True, 0]
        assert any(where.startswith("/v1/history?after=0") for where in stage.addresses)
