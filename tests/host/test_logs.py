"""The journal of a host as its daemon reads it for the others: in bounds, whatever journalctl does."""

from __future__ import annotations

import json
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from sparkd import wire
from sparkd.core.journal import Line, NodeJournal, Query
from sparkd.host.logs import SystemJournal
from sparkd.ports import DoorError
from tests.reconcile.running import in_loop

CURSOR = "s=1;i={};b=2"
PLAIN = Query()


def entry(number: int, message: Any = None, **fields: Any) -> str:
    """A line of `journalctl --output=json`, at second `number`."""
    told = {
        "__REALTIME_TIMESTAMP": str(number * 1_000_000),
        "__CURSOR": CURSOR.format(number),
        "_SYSTEMD_UNIT": "sparkd.service",
        "PRIORITY": "6",
        "MESSAGE": f"line {number}" if message is None else message,
    }
    return json.dumps({key: value for key, value in {**told, **fields}.items() if value is not None})


def journalctl(folder: Path, script: str) -> str:
    file = folder / "journalctl"
    file.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    file.chmod(0o755)
    return str(file)


def says(folder: Path, *entries: str, code: int = 0) -> str:
    """One that notes how it is called."""
    (folder / "journal").write_text("".join(f"{entry}\n" for entry in entries), encoding="utf-8")
    return journalctl(folder, f'echo "$*" > {folder}/called; cat {folder}/journal; exit {code}')


async def read(command: str, query: Query = PLAIN, seconds: float = 3.0) -> NodeJournal:
    door = SystemJournal("spark2", 1, command, seconds)
    try:
        return wire.loads(NodeJournal, await door.read(query))
    finally:
        door.close()


@in_loop
async def test_lines_have_their_time_unit_and_priority(tmp_path: Path) -> None:
    command = says(
        tmp_path,
        entry(10),
        entry(11, "Started", _SYSTEMD_UNIT="init.scope", UNIT="sparkd-rank@8.service"),
        entry(12, "of the rank", _SYSTEMD_UNIT="sparkd-rank@8.service", PRIORITY="3"),
        "no JSON",
        entry(13, "without a level", PRIORITY=None),
    )
    told = await read(command)
    assert told.lines == (
        Line(10.0, "sparkd", 6, "line 10"),
        Line(11.0, "sparkd-rank@8", 6, "Started"),
        Line(12.0, "sparkd-rank@8", 3, "of the rank"),
        Line(13.0, "sparkd", 6, "without a level"),
    )
    assert (told.node, told.rank, told.cursor, told.cut) == ("spark2", 1, CURSOR.format(13), False)
    assert abs(told.now - time.time()) < 60


@pytest.mark.parametrize(
    ("query", "parts"),
    [
        (Query(), ["--lines=200", "--unit=sparkd.service", "--unit=sparkd-rank@*.service"]),
        (Query(since=12.5), ["--since=@12.500000"]),
        (Query(grep="a b; --x"), ["--grep=a b; --x"]),
        (Query(cursor="s=1;i=2;b=3", since=12.5), ["--after-cursor=s=1;i=2;b=3"]),
        (
            Query(epoch=8),
            [
                "_SYSTEMD_UNIT=sparkd-rank@8.service + _SYSTEMD_UNIT=sparkd-measure@8.service"
                " + _PID=1 UNIT=sparkd-rank@8.service + _PID=1 UNIT=sparkd-measure@8.service"
                # What any user could write alone would be a line of the ring's.
                " + _SYSTEMD_UNIT=sparkd.service SPARKD_EPOCH=8"
            ],
        ),
    ],
)
@in_loop
async def test_what_journalctl_is_asked(query: Query, parts: list[str], tmp_path: Path) -> None:
    await read(says(tmp_path, entry(1)), query)
    called = (tmp_path / "called").read_text()
    assert all(part in called for part in parts), called
    assert ("--since" in called) == (query.since is not None and not query.cursor)


@in_loop
async def test_the_newest_lines_are_kept_within_the_room_that_there_is(tmp_path: Path) -> None:
    long = "x" * 4000
    told = await read(says(tmp_path, *(entry(number, f"{number} {long}") for number in range(1, 301))), Query(5000))
    assert told.cut
    assert len(wire.dumps(told)) < 1 << 20
    assert told.lines[-1].text.startswith("300 x")
    assert 100 < len(told.lines) < 200


@in_loop
async def test_what_is_no_text_is_made_fit(tmp_path: Path) -> None:
    bell, binary, long = "a\x07\x1b[2Jb", [104, 105, 255], "y" * 5000
    told = await read(says(tmp_path, entry(1, bell), entry(2, binary), entry(3, long), entry(4, "two\nlines")))
    texts = [line.text for line in told.lines]
    assert texts[:2] == ["a  [2Jb", "hi\N{REPLACEMENT CHARACTER}"]
    assert texts[2].endswith("[904 characters left out]")
    assert texts[3] == "two\nlines"


@in_loop
async def test_an_entry_without_end_is_left_out_and_never_in_memory(tmp_path: Path) -> None:
    """The rest of it does not pass for an entry, whatever it holds."""
    forged = entry(2, "forged")
    head = """printf '%s' '{"__REALTIME_TIMESTAMP":"1000000","__CURSOR":"s=1;i=1","MESSAGE":[""" + f"{' ' * 64}'"
    bulk = "head -c 100000000 /dev/zero | tr '\\0' 1"
    script = f"{head}; {bulk}; printf '%s\\n' '{forged}'; printf '%s\\n' '{entry(3)}'"
    tracemalloc.start()
    try:
        told = await read(journalctl(tmp_path, script), seconds=20)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [line.text for line in told.lines] == ["line 3"]
    assert told.cut
    assert most < 20 << 20


@in_loop
async def test_a_pattern_turns_the_order_around_and_may_find_nothing(tmp_path: Path) -> None:
    told = await read(says(tmp_path, entry(9), entry(4), entry(2)), Query(grep="line"))
    assert [line.at for line in told.lines] == [2.0, 4.0, 9.0]
    assert told.cursor == CURSOR.format(9)
    nothing = await read(says(tmp_path, code=1), Query(grep="line", cursor=CURSOR.format(3)))
    assert (nothing.lines, nothing.cursor) == ((), CURSOR.format(3))


@pytest.mark.parametrize(
    ("script", "sentence"),
    [
        ("exit 1", "journalctl has left with status 1"),
        ("echo Failed to compile pattern >&2; exit 1", "journalctl: Failed to compile pattern"),
        ("exec sleep 60", "journalctl has not ended within 0.3 s"),
        ("echo '{}'; exec sleep 60", "journalctl has not ended within 0.3 s"),
    ],
)
@in_loop
async def test_what_goes_wrong_is_said_and_costs_its_time(script: str, sentence: str, tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(DoorError, match=sentence):
        await read(journalctl(tmp_path, script), Query(grep="x" if "pattern" in script else ""), seconds=0.3)
    assert time.monotonic() - began < 5


@in_loop
async def test_a_host_without_journalctl(tmp_path: Path) -> None:
    with pytest.raises(DoorError, match="No such file"):
        await read(str(tmp_path / "none"))
