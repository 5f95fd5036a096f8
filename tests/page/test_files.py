"""The page's files over HTTP, without a browser: what they may do, and that there are no others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.api.serving import ask, send
from tests.page import scenes
from tests.page.stage import staged
from tests.reconcile.running import in_loop

FOLDER = Path(__file__).resolve().parents[2] / "sparkd/api/page"
FILES = sorted(path.name for path in FOLDER.iterdir())


def port(address: str) -> int:
    return int(address.rstrip("/").rpartition(":")[2])


@in_loop
async def test_each_file_comes_with_a_policy_that_lets_it_do_nothing_else() -> None:
    async with staged(scenes.ready()) as (_, address):
        for path in ("/", *(f"/page/{name}" for name in FILES)):
            answer = await ask(port(address), "GET", path)
            assert answer.status == 200, path
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy
            assert "frame-ancestors 'none'" in policy and "form-action 'none'" in policy and "base-uri 'none'" in policy
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["referrer-policy"] == "no-referrer"
            lines = (f"GET {path} HTTP/1.1", "Host: x", "Connection: close", f"If-None-Match: {answer.headers['etag']}")
            given = "\r\n".join((*lines, "", "")).encode()
            head, _, body = (await send(port(address), given)).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 304 ") and body == b""


@in_loop
async def test_there_is_nothing_else() -> None:
    async with staged(scenes.ready()) as (_, address):
        for path in (
            "/page/",
            "/page/nothing.js",
            "/page/..%2fdashboard.py",
            "/page/../dashboard.py",
            "/page/%2e%2e/app.py",
            "/page/dashboard.py",
            "/page/page.css%00.js",
            "/page//etc/passwd",
            "/page/" + "a" * 5000 + ".js",
            "/page/é.js",
        ):
            given = f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode()
            assert re.match(rb"HTTP/1.1 40[04] ", await send(port(address), given)), path


@pytest.mark.parametrize("name", FILES)
def test_no_file_reaches_out_or_writes_html(name: str) -> None:
    text = (FOLDER / name).read_text()
    outside = set(re.findall(r"https?://[^\s\"'<>)]+", text)) - {"http://www.w3.org/2000/svg"}
    assert outside == set()
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|localStorage", text
    )
    assert not re.search(r"<script(?![^>]*\bsrc=)|\son\w+=|style=", text)
    assert len(text.splitlines()) <= 400


def test_the_page_has_landmarks_and_a_live_sentence() -> None:
    text = (FOLDER / "index.html").read_text()
    for part in ("<header", "<main", "<footer", "<nav", 'aria-live="polite"', '<html lang="en">', "<noscript>"):
        assert part in text
    labelled = re.findall(r'<section [^>]*aria-labelledby="([\w-]+)"', text)
    assert len(labelled) == text.count("<section ") and all(f'id="{name}"' in text for name in labelled)
