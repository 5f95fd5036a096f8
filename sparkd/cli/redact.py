"""What must not be in a support bundle: secrets, always; addresses and names, on demand and each by the same stand-in.

Pure. Secrets are known by their values, and by the shape of those that are not ours.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

GONE = "[secret]"
_KEY = r"(?:api|access|secret|private|auth|admin|signing|encryption)[_-]?(?:access[_-]?)?key(?:[_-]?id)?"
_WORD = rf"(?:token|secret|passw(?:or)?d|passphrase|[_-]pass|credential|{_KEY})s?"
# A log's line within JSON has a backslash before each quote, and one more for each time that it is within JSON again.
_QUOTE = r"""\\*["']"""
_TABLE = r"\]\n(?:[a-z]+\s*=.*\n)*?value\s*="
_BESIDE = rf"""(?:{_QUOTE})?\s*(?:[=:]|{_TABLE})\s*(?:{{[^}}\n]*?\bvalue\s*=\s*)?"""
_SHAPES = (
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL),
    re.compile(r"(?<=Bearer )[!-~]{8,}", re.IGNORECASE),
    re.compile(rf"""Authorization(?:{_QUOTE})?\s*[:=]\s*(?:{_QUOTE})?\w+ (?P<value>[^\s"'\\,]{{6,}})""", re.IGNORECASE),
    re.compile(r"\bsparkd_[A-Za-z0-9_-]{16,}|\bhf_[A-Za-z0-9]{16,}|\bsk-[A-Za-z0-9_-]{16,}|\bghp_[A-Za-z0-9]{16,}"),
    re.compile(r"\bAKIA[A-Z0-9]{16}\b|\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*", re.ASCII),
    re.compile(r"""://[^/\s:@"']*:(?P<value>[^/\s@"']+)(?=@)"""),
    # A value beside a word that says what it is: HF_TOKEN = "...", "api-key": "...", PASSWORD=..., --api-key ...; and
    # as a profile may have it: HF_TOKEN = { why = "...", value = "..." }, or a table of that name.
    re.compile(
        rf"""{_WORD}{_BESIDE}(?P<quote>{_QUOTE})(?P<value>(?:(?!(?P=quote))(?:\\.|.)){{4,}})(?P=quote)""",
        re.IGNORECASE,
    ),
    re.compile(
        rf"""{_WORD}(?:{_QUOTE})?\s*[=:]\s*(?:{_QUOTE})?"""
        r"""(?!\[secret\])(?P<value>[^\s"',}\]]{6,})""",
        re.IGNORECASE,
    ),
    re.compile(
        rf"""--[a-z-]*{_WORD}(?:{_QUOTE},?)?\s+(?:{_QUOTE})?(?!-|\d+\b)(?P<value>[^\s"'\\,]{{4,}})""", re.IGNORECASE
    ),
)
_IPV4 = re.compile(r"(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?![\d.])")
_IPV6 = re.compile(r"(?<![\w:])(?=[0-9a-fA-F:]*:[0-9a-fA-F:]*:)[0-9a-fA-F]{0,4}(?::[0-9a-fA-F]{0,4}){2,7}(?![\w:])")
# Those of Ethernet have six bytes, of IP over InfiniBand twenty, and serial numbers that are made of one have eight.
_MAC = re.compile(
    r"(?<![0-9a-fA-F:-])[0-9a-fA-F]{2}([:-])[0-9a-fA-F]{2}(?:\1[0-9a-fA-F]{2}){4,18}(?![0-9a-fA-F]|[:-][0-9a-fA-F])"
)
# GIDs and GUIDs of RDMA devices hold the MAC address or the IP address.
_GUID = re.compile(r"(?<![0-9a-fA-F:])[0-9a-fA-F]{4}(?::[0-9a-fA-F]{4}){3}(?![0-9a-fA-F:])")
# What is the same everywhere tells nothing of anybody's network.
_EVERYWHERE = re.compile(r"0\.0\.0\.0|127\.\d+\.\d+\.\d+|255\.[\d.]+|::1?")
_SHORTEST = 3
_NUMBER = re.compile(r"[\d.]+")


class Redactor:
    """secrets: values that are in no text afterwards. names: what to replace, each with its kind, such as `node`.

    private: whether to replace addresses and names as well. One redactor for all texts of a bundle gives each the same
    stand-in everywhere.
    """

    def __init__(self, secrets: Iterable[str], names: Iterable[tuple[str, str]] = (), *, private: bool = False) -> None:
        self._secrets = sorted({secret for secret in secrets if len(secret) > _SHORTEST}, key=len, reverse=True)
        self._private = private
        self._known: dict[tuple[str, str], str] = {}
        self._counts: dict[str, int] = {}
        self._names: dict[str, str] = {}
        for kind, name in names:
            if len(name) >= _SHORTEST:
                self._names.setdefault(name, self._stand_in(kind, name))
        words = sorted(self._names, key=len, reverse=True)
        # Rather too often than too seldom; only with digits and letters around it, it is another word.
        self._pattern = (
            re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join(map(re.escape, words))})(?![A-Za-z0-9])") if words else None
        )

    @property
    def legend(self) -> Mapping[str, int]:
        """How many of each kind have been replaced."""
        return dict(self._counts)

    def text(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, GONE)
        for shape in _SHAPES:
            text = shape.sub(_hidden, text)
        if not self._private:
            return text
        if self._pattern is not None:
            text = self._pattern.sub(lambda match: self._names[match[0]], text)
        for kind, pattern in (("mac", _MAC), ("guid", _GUID), ("address", _IPV4), ("address6", _IPV6)):
            text = pattern.sub(self._numbered(kind), text)
        return text

    def _numbered(self, kind: str) -> Callable[[re.Match[str]], str]:
        def stand_in(match: re.Match[str]) -> str:
            found = match[0]
            if _EVERYWHERE.fullmatch(found) or not _is_one(kind, found):
                return found
            return self._stand_in(kind, found.lower())

        return stand_in

    def _stand_in(self, kind: str, value: str) -> str:
        if (kind, value) not in self._known:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._known[kind, value] = f"{kind}-{self._counts[kind]}"
        return self._known[kind, value]


def _is_one(kind: str, found: str) -> bool:
    """A version can look like an IPv4 address, and a time of day like one of IPv6."""
    if kind == "address":
        return all(int(part) < 256 for part in found.split("."))
    return kind != "address6" or "::" in found or found.count(":") == 7


def _hidden(match: re.Match[str]) -> str:
    """The match without its value."""
    value = match.groupdict().get("value")
    if value is None:
        return GONE
    if "tokens" in match[0].lower() and _NUMBER.fullmatch(value):
        return match[0]
    start, end = match.start("value") - match.start(), match.end("value") - match.start()
    return match[0][:start] + GONE + match[0][end:]
