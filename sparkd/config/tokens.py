"""The tokens of operators: /etc/sparkd/tokens.json, which has what a token is checked by and not the token.

SHA-256 once is enough: what is guessed at with a stolen file are 256 random bits and not somebody's password.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

from sparkd import wire
from sparkd.codec import WireError
from sparkd.ports import DoorError, Grant

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,62}")
ROLES = ("read", "operate")
VERSION = 1
LARGEST = 1024 * 1024


@dataclass(frozen=True)
class Token:
    """`sha256`: of the token's text, hexadecimal. `created`, `expires`: Unix seconds. `last4`: its last characters."""

    name: str
    role: str
    sha256: str
    created: float
    last4: str
    expires: float | None = None


@dataclass(frozen=True)
class TokenList:
    version: int
    tokens: tuple[Token, ...] = ()


def digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def parse(text: bytes) -> tuple[Token, ...]:
    """Raises ValueError with what was found and what is expected."""
    try:
        listed = wire.loads(TokenList, text)
    except WireError as error:
        raise ValueError(str(error)) from None
    if listed.version != VERSION:
        raise ValueError(f"version: found {listed.version}, expected {VERSION}")
    names: set[str] = set()
    for place, token in enumerate(listed.tokens):
        where = f"tokens[{place}]"
        if not NAME.fullmatch(token.name) or token.name in names:
            raise ValueError(f"{where}.name: found {token.name[:80]!r}, expected a name that no other token has")
        names.add(token.name)
        if token.role not in ROLES:
            raise ValueError(f"{where}.role: found {token.role[:80]!r}, expected {' or '.join(ROLES)}")
        if not re.fullmatch(r"[0-9a-f]{64}", token.sha256):
            raise ValueError(f"{where}.sha256: found {len(token.sha256)} characters, expected 64 hex digits")
    return listed.tokens


def render(tokens: tuple[Token, ...]) -> bytes:
    return json.dumps(wire.encode(TokenList(VERSION, tokens)), indent=1).encode() + b"\n"


class TokenFile:
    """The tokens as they are in the file now: it is looked at when a token is asked about, and only then."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        self._grants: dict[str, Grant] = {}

    def find(self, secret: str) -> Grant | None:
        """Raises DoorError if the file is there and cannot be used."""
        try:
            there = os.stat(self._path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise DoorError(f"the tokens in {self._path} cannot be read: {error.strerror}") from None
        seen = there.st_mtime_ns, there.st_ino, there.st_size
        if seen != self._seen:
            self._grants = self._load()
            self._seen = seen
        return self._grants.get(digest(secret))

    def _load(self) -> dict[str, Grant]:
        self._seen, self._grants = None, {}
        try:
            with self._path.open("rb") as file:
                tokens = parse(file.read(LARGEST))
        except OSError as error:
            raise DoorError(f"the tokens in {self._path} cannot be read: {error.strerror}") from None
        except ValueError as error:
            raise DoorError(f"the tokens in {self._path} cannot be used: {error}") from None
        return {
            token.sha256: Grant(token.name, "operate" if token.role == "operate" else "read", token.expires)
            for token in tokens
        }
