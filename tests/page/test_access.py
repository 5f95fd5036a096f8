"""Where looking takes a token the page's own files do not, or nobody could be asked for one; nothing else is open."""

from __future__ import annotations

from typing import Any

import pytest

from sparkd.api.access import Refused, Site, over_tcp
from sparkd.api.callers import Caller


class NoTokens:
    def find(self, secret: str) -> None:
        raise AssertionError(f"asked for {secret!r}")


def identified(path: str, *, change: bool = False, host: bytes = b"spark1:7474") -> Caller | Refused:
    scope: dict[str, Any] = {"type": "http", "path": path, "headers": [(b"host", host)], "client": ("192.0.2.1", 5)}
    site = Site(frozenset({"spark1"}), "https")
    return over_tcp(site, NoTokens(), reading_open=False)(scope, change)


@pytest.mark.parametrize("path", ["/", "/page/main.js", "/page/page.css"])
def test_the_page_is_open_to_look_at(path: str) -> None:
    found = identified(path)
    assert isinstance(found, Caller) and found.role == "read"
    stranger = identified(path, host=b"evil.example")
    assert isinstance(stranger, Refused) and stranger.code == "host-not-allowed"
    changed = identified(path, change=True)
    assert isinstance(changed, Refused) and changed.code == "token-missing"


@pytest.mark.parametrize(
    "path", ["/v1/ring", "/v1/history", "/metrics", "/openapi.json", "/page", "/pages/x", "//", "/v1/page/x"]
)
def test_nothing_else_is(path: str) -> None:
    found = identified(path)
    assert isinstance(found, Refused) and found.code == "token-missing"
