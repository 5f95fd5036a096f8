"""Where a checkpoint comes from: a hub, which names files by repository and revision, or a peer that has a copy."""

from __future__ import annotations

import hashlib
import re
import urllib.parse
from dataclasses import dataclass
from typing import Any, Protocol

from runtime.checkpoint.manifest import Entry, Manifest, parse, refuse_bad_name
from runtime.checkpoint.remote import LOST, Refused, Remote, plain, said
from runtime.trouble import Trouble

SMALL = 64 << 20
"""Bytes above which a hub keeps a file in its large store, and knows its SHA-256."""
_COMMIT = re.compile(r"[0-9a-f]{40}")


class Source(Protocol):
    remote: Remote

    def manifest(self) -> Manifest:
        """What the source has. Raises Trouble."""
        ...

    def path_of(self, name: str) -> str:
        """Where below the remote's address a file is."""
        ...


@dataclass
class Hub:
    """A hub's API: models/REPOSITORY/revision/REVISION lists the files, REPOSITORY/resolve/COMMIT/NAME has them."""

    remote: Remote
    repository: str
    revision: str

    def manifest(self) -> Manifest:
        """The files of the revision. Of small ones a hub knows a Git id alone: these are read, for their SHA-256."""
        quoted = f"{urllib.parse.quote(self.repository)}/revision/{urllib.parse.quote(self.revision, safe='')}"
        where = f"{plain(self.remote.base)}/api/models/{quoted}"
        found = self.remote.json(f"/api/models/{quoted}?blobs=true")
        commit = found.get("sha") if isinstance(found, dict) else None
        siblings = found.get("siblings") if isinstance(found, dict) else None
        if not isinstance(commit, str) or not isinstance(siblings, list) or not siblings:
            raise Trouble(f"{where}: the answer has no sha and siblings, so that this is no hub", "check --from")
        if _COMMIT.fullmatch(self.revision) and commit != self.revision:
            raise Trouble(f"{where}: the hub answers for revision {commit}")
        self.revision = commit
        made = Manifest(self.repository, commit, dict(self._entry(each, where) for each in siblings))
        return parse(made.as_json(), where)

    def path_of(self, name: str) -> str:
        return f"/{urllib.parse.quote(self.repository)}/resolve/{self.revision}/{urllib.parse.quote(name)}"

    def _entry(self, sibling: Any, where: str) -> tuple[str, Entry]:
        name = sibling.get("rfilename") if isinstance(sibling, dict) else None
        if not isinstance(name, str):
            raise Trouble(f"{where}: a file without a name: {sibling!r}")
        refuse_bad_name(name, where)
        large = sibling.get("lfs")
        size = (large or sibling).get("size")
        if type(size) is not int or size < 0:
            raise Trouble(f"{where}: size of {name} is {size!r}, expected a number of bytes")
        if large:
            return name, Entry(size, str(large.get("sha256")))
        return name, Entry(size, self._small(name, size, str(sibling.get("blobId", ""))))

    def _small(self, name: str, size: int, blob: str) -> str:
        if size > SMALL:
            raise Trouble(f"{name}: {size} bytes, and the hub does not know its SHA-256; expected at most {SMALL}")
        data = read_small(self.remote, self.path_of(name), SMALL)
        git = hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
        if len(data) != size or (blob and git != blob):
            raise Trouble(f"{name}: {len(data)} bytes with Git id {git}, expected {size} bytes with {blob}")
        return hashlib.sha256(data).hexdigest()


@dataclass
class Peer:
    """What `sparkd-engine model serve` offers on another node."""

    remote: Remote

    def manifest(self) -> Manifest:
        return parse(self.remote.json("/manifest"), f"{plain(self.remote.base)}/manifest")

    def path_of(self, name: str) -> str:
        return f"/files/{urllib.parse.quote(name)}"


def read_small(remote: Remote, path: str, limit: int, attempts: int = 5) -> bytes:
    """All of a small file. Raises Trouble."""
    problem = ""
    for _ in range(attempts):
        try:
            answer = remote.open(path)
            try:
                data = answer.read(limit + 1)
            finally:
                answer.close()
        except Refused as refused:
            if refused.final:
                raise refused.trouble() from refused
            problem = str(refused)
        except LOST as error:
            problem = f"{plain(remote.base + path)}: {said(error)}"
        else:
            if len(data) > limit:
                raise Trouble(f"{plain(remote.base + path)}: more than {limit} bytes")
            # Read up to a limit, an answer that is cut looks like one that has ended.
            length = answer.headers.get("Content-Length", "")
            if not length.isdigit() or int(length) == len(data):
                return data
            problem = f"{plain(remote.base + path)}: {len(data)} of {length} bytes"
    raise Trouble(f"{problem}, {attempts} times")
