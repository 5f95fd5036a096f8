"""`python -m adapter list` and `check`: what adapters there are, and whether they fit the installed SGLang."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from adapter import catalogue, frame, source
from adapter.declare import NOT_AS_ASKED, RELEASE, AdapterError
from adapter.plugin import VARIABLE
from adapter.upstream import UPSTREAM


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m adapter", description="What sparkd adds to SGLang.")
    commands = parser.add_subparsers(dest="command", required=True)
    listing = commands.add_parser("list", help="each adapter with its gate, options and digest")
    checking = commands.add_parser("check", help="whether what they hook is what they were written for")
    checking.add_argument("name", nargs="*", help="of these adapters, not of all")
    for each in (listing, checking):
        each.add_argument("--sglang", type=Path, metavar="DIRECTORY", help="the package, not that of this Python")
        each.add_argument("--json", action="store_true", help="for programs")
    given = parser.parse_args(argv)
    try:
        if given.command == "list":
            return _list(given.json)
        return _check(given.sglang or source.installed(), given.name or catalogue.NAMES, given.json)
    except AdapterError as error:
        print(f"python -m adapter: {error}", file=sys.stderr)
        return 2


def _list(as_json: bool) -> int:
    on = frame.wanted(os.environ.get(VARIABLE) or "{}")
    rows = []
    for name in catalogue.NAMES:
        adapter = catalogue.load(name).adapter
        options = adapter.settled(on.get(name, {}))
        rows.append(
            {
                "name": name,
                "gate": f"[adapters] {name}",
                "on": name in on,
                "options": options,
                "processes": sorted(adapter.processes),
                "digest": source.digest_of_adapter(adapter, options),
                "purpose": adapter.purpose,
                "worth": adapter.worth,
            }
        )
    if as_json:
        print(json.dumps(rows, indent=1))
        return 0
    for row in rows:
        print(f"{row['name']:<20} {'on ' if row['on'] else 'off'} {row['digest']}  {row['purpose']}")
        print(f"{'':<20} worth: {row['worth']}")
        for option, value in catalogue.load(str(row["name"])).adapter.options.items():
            print(f"{'':<20} {option} = {json.dumps(row['options'][option])}: {value.why}")  # type: ignore[index]
    return 0


def _check(package: Path, names: Sequence[str], as_json: bool) -> int:
    release = source.version(package)
    watched = {name: catalogue.load(name).adapter.symbols for name in names}
    if names is catalogue.NAMES:
        watched |= {each.name: each.symbols for each in UPSTREAM}
    rows = []
    for name, symbols in watched.items():
        drifted = {drift.symbol.name: drift.found for drift in source.drifts(package, symbols)}
        rows += [
            {
                "adapter": name,
                "symbol": symbol.name,
                "expected": symbol.digest,
                "found": drifted.get(symbol.name, symbol.digest),
                "ok": symbol.name not in drifted,
            }
            for symbol in symbols
        ]
    wrong = [row for row in rows if not row["ok"]]
    paths = {name: path for name in names if (path := catalogue.path_of(name))}
    if as_json:
        print(json.dumps({"sglang": release, "written_for": RELEASE, "symbols": rows, "paths": paths}, indent=1))
        return NOT_AS_ASKED if wrong else 0
    print(f"SGLang {release or 'of unknown version'} in {package}; written for {RELEASE}")
    for row in rows:
        says = row["expected"] if row["ok"] else f"expected {row['expected']}, found {row['found']}"
        print(f"{'ok   ' if row['ok'] else 'DRIFT'} {row['adapter']:<20} {row['symbol']} {says}")
    for name, path in paths.items():
        print(f"path  {name:<20} {path}")
    print(f"{len(rows)} symbols, {len(wrong)} drifted")
    return NOT_AS_ASKED if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
