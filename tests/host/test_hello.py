"""The hello's datagram, the table of who was heard, the machine's id, and a door without a network."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkd.core.facts import HelloFacts, Neighbour
from sparkd.host.hello import MulticastHellos
from sparkd.host.hello_message import MAX_BYTES, Hello, Seal
from sparkd.host.hello_socket import FabricSocket, View
from sparkd.host.hello_table import MAX_PER_PORT, Table
from sparkd.host.identity import node_id
from sparkd.ports import DoorError

KEY, OTHER = Seal(b"k" * 32), Seal(b"o" * 32)
HELLO = Hello("lab", "spark1", "1" * 32, "enp1s0f0np0", "0badcafe-0000-4000-8000-000000000000")


def printable(most: int) -> st.SearchStrategy[str]:
    return st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=most)


def digits(alphabet: str, least: int, most: int) -> st.SearchStrategy[str]:
    return st.text(alphabet, min_size=least, max_size=most)


HEX = "0123456789abcdef"
HELLOS = st.builds(
    Hello,
    printable(63),
    printable(63),
    digits(HEX, 32, 32),
    printable(15),
    digits(HEX + "-", 1, 36),
    st.booleans(),
    st.just("") | st.just("4c:bb:47:00:00:1f"),
    st.just("") | digits(HEX, 16, 16),
    st.lists(digits(HEX, 16, 16), max_size=4).map(tuple),
)


@given(HELLOS)
def test_what_is_written_is_read(hello: Hello) -> None:
    data = KEY.write(hello)
    assert len(data) <= MAX_BYTES
    assert KEY.read(data) == (hello, True)


@given(HELLOS)
def test_under_another_key_it_is_a_foreigners(hello: Hello) -> None:
    assert OTHER.read(KEY.write(hello)) == (hello, False)


@given(HELLOS, st.integers(min_value=0), st.integers(min_value=1, max_value=255))
def test_a_changed_byte_breaks_the_seal(hello: Hello, at: int, change: int) -> None:
    data = bytearray(KEY.write(hello))
    data[at % len(data)] ^= change
    read = KEY.read(bytes(data))
    assert read is None or not read[1]


@given(HELLOS, st.integers(min_value=0))
def test_a_cut_datagram_is_none_of_ours(hello: Hello, size: int) -> None:
    data = KEY.write(hello)
    assert KEY.read(data[: size % len(data)]) is None


@given(st.binary(max_size=MAX_BYTES + 10))
def test_noise_is_no_hello(data: bytes) -> None:
    assert KEY.read(data) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.sampled_from(["v", "cluster", "node", "id", "port", "boot", "mac", "nonce", "repeat"]), JSON)
def test_a_hello_with_something_else_in_a_field_is_none_or_harmless(name: str, value: object) -> None:
    read = KEY.read(sealed({name: value}))
    if read is not None:
        said = (read[0].cluster, read[0].node, read[0].node_id, read[0].port, read[0].boot_id)
        assert all(re.fullmatch("[0-9a-f:]*", text) for text in (read[0].mac, read[0].nonce, *read[0].repeated))
        assert all(0 < len(text) <= 63 and text.isascii() and text.isprintable() for text in said)


def sealed(changes: dict[str, object]) -> bytes:
    """A hello with other values, under the right key. None takes a field away."""
    document = json.loads(KEY.write(HELLO)[:-32]) | changes
    text = json.dumps({name: value for name, value in document.items() if value is not None}).encode()
    return text + KEY._mac(text)


def test_more_keys_do_no_harm() -> None:
    assert KEY.read(sealed({"firmware": "28.45"})) == (HELLO, True)


@pytest.mark.parametrize(
    "changes",
    [
        {"v": 2},
        {"v": "1"},
        {"v": None},
        {"node": None},
        {"node": ""},
        {"node": "x" * 64},
        {"node": 7},
        {"node": ["spark1"]},
        {"node": "two words"},
        {"node": "spark1\n"},
        {"node": "\x1b[31mspark1"},
        {"cluster": "späti"},
        {"cluster": "\u202elab"},
        {"cluster": "\ud800"},
        {"id": "1" * 31},
        {"id": "X" * 32},
        {"port": "x" * 16},
        {"boot": "not hex"},
        {"more": "x" * MAX_BYTES},
    ],
    ids=str,
)
def test_what_no_terminal_should_see_is_no_hello(changes: dict[str, object]) -> None:
    assert KEY.read(sealed(changes)) is None


@pytest.mark.parametrize("text", [b"[]", b"1", b"null", b'"v"', b"[" * 400, b'{"v":' * 80, b"\xff\xfe{}", b""])
def test_json_that_is_no_hello(text: bytes) -> None:
    assert KEY.read(text + KEY._mac(text)) is None


def test_what_nobody_would_read_is_not_written() -> None:
    with pytest.raises(ValueError, match="no reader would accept"):
        KEY.write(Hello("lab", "two words", "1" * 32, "enp1s0f0np0", "0"))


P0, P1 = "enp1s0f0np0", "enp1s0f1np1"


def heard(number: int, *, ours: bool = True, node: str = "", device: str = P0) -> Neighbour:
    return Neighbour(device, node or f"spark{number}", f"{number:032x}", P1, "lab", ours)


def test_a_neighbour_is_new_once_and_forgotten_after_the_hold_time() -> None:
    table = Table(hold=16)
    assert table.hear(heard(1), 100)
    assert not table.hear(heard(1), 105)
    table.forget(120.9)
    assert table.neighbours() == (heard(1),)
    table.forget(121)
    assert table.neighbours() == ()
    assert table.hear(heard(1), 122)


def test_a_lost_port_takes_only_its_own_neighbours_along() -> None:
    table = Table(16)
    table.hear(heard(1), 0)
    table.hear(heard(1, device=P1), 0)
    table.lose(P0)
    table.lose("eth0")
    assert table.neighbours() == (heard(1, device=P1),)
    assert (table.knows_ours(P0), table.knows_ours(P1)) == (False, True)


def test_a_members_new_name_replaces_the_old() -> None:
    table = Table(16)
    table.hear(heard(1), 0)
    assert not table.hear(heard(1, node="renamed"), 1)
    assert table.neighbours() == (heard(1, node="renamed"),)


def test_a_strangers_first_words_stand_until_they_are_forgotten() -> None:
    table = Table(16)
    table.hear(heard(1, ours=False), 0)
    assert not table.hear(heard(1, ours=False, node="other"), 10)
    assert table.neighbours() == (heard(1, ours=False),)
    table.forget(16)
    assert table.hear(heard(1, ours=False, node="other"), 16)


def test_nobody_without_the_key_replaces_a_member() -> None:
    table = Table(16)
    table.hear(heard(1), 0)
    assert not table.hear(heard(1, ours=False), 1)
    assert table.neighbours() == (heard(1),)
    table.forget(16)
    assert table.neighbours() == ()


def test_a_stranger_that_gets_the_key_is_news() -> None:
    table = Table(16)
    table.hear(heard(1, ours=False), 0)
    assert not table.knows_ours(P0)
    assert table.hear(heard(1), 1)
    assert table.neighbours() == (heard(1),)


def test_a_port_keeps_eight_and_members_before_strangers() -> None:
    table = Table(16)
    for number in range(20):
        assert table.hear(heard(number, ours=False), 0) == (number < MAX_PER_PORT)
    for number in range(20, 40):
        assert table.hear(heard(number), 0) == (number < 20 + MAX_PER_PORT)
    assert {n.node for n in table.neighbours()} == {f"spark{number}" for number in range(20, 20 + MAX_PER_PORT)}
    assert table.hear(heard(1, ours=False, device=P1), 0)


ARRIVALS = st.lists(st.tuples(st.integers(0, 30), st.booleans(), st.sampled_from([P0, P1]), st.integers(0, 3)))


@given(ARRIVALS)
def test_the_table_stays_small_sorted_and_keeps_members(arrivals: list[tuple[int, bool, str, int]]) -> None:
    table = Table(16)
    now = 0
    members: dict[tuple[str, int], int] = {}
    for number, ours, device, pause in arrivals:
        now += pause
        table.forget(now)
        members = {key: until for key, until in members.items() if until > now}
        table.hear(heard(number, ours=ours, device=device), now)
        room = sum(at == device for at, _ in members) < MAX_PER_PORT
        if ours and (room or (device, number) in members):
            members[device, number] = now + 16
        seen = table.neighbours()
        assert list(seen) == sorted(seen, key=lambda n: (n.device, n.node, n.node_id))
        assert all(sum(n.device == at for n in seen) <= MAX_PER_PORT for at in (P0, P1))
        assert {(n.device, int(n.node_id, 16)) for n in seen if n.ours} == set(members)


@given(st.permutations([heard(1), heard(2), heard(3, ours=False), heard(1, device=P1)]))
def test_equal_sets_are_equal_whoever_came_first(order: list[Neighbour]) -> None:
    table = Table(16)
    for neighbour in order:
        table.hear(neighbour, 0)
    assert table.neighbours() == (heard(1), heard(2), heard(3, ours=False), heard(1, device=P1))


def test_the_machines_id_is_made_once(tmp_path: Path) -> None:
    made = node_id(tmp_path)
    assert len(bytes.fromhex(made)) == 16
    assert node_id(tmp_path) == made
    assert (tmp_path / "node-id").stat().st_mode & 0o777 == 0o640
    assert sorted(os.listdir(tmp_path)) == ["node-id"]


def test_two_machines_have_two_ids(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    assert node_id(tmp_path / "one") != node_id(tmp_path / "two")


@pytest.mark.parametrize("content", [b"", b"spark1\n", b"1" * 31, b"A" * 32, b"\xff" * 32, b"\0" * 33])
def test_an_id_that_cannot_be_used_is_made_anew(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "node-id").write_bytes(content)
    made = node_id(tmp_path)
    assert len(bytes.fromhex(made)) == 16
    assert node_id(tmp_path) == made


@pytest.mark.parametrize(
    ("prepare", "sentence"),
    [
        (lambda path: (path / "node-id").mkdir(), r"node-id cannot be read: Is a directory"),
        (lambda path: path.rmdir(), r"node-id cannot be saved: No such file or directory"),
    ],
)
def test_a_disk_that_refuses_is_named(tmp_path: Path, prepare: Callable[[Path], None], sentence: str) -> None:
    directory = tmp_path / "state"
    directory.mkdir()
    prepare(directory)
    with pytest.raises(DoorError, match=sentence):
        node_id(directory)


def observed(proc: Path, *devices: str) -> HelloFacts:
    async def look() -> HelloFacts:
        door = MulticastHellos("lab", "spark1", "1" * 32, b"key", devices=devices, proc=proc, raw=False)
        try:
            return await door.observe()
        finally:
            door.close()

    return asyncio.run(look())


GROUPS = """\
1    lo              ff020000000000000000000000000001     1 0000000C 0
4    enp1s0f0np0     ff0200000000000000000001ff000001     1 00000004 0
4    enp1s0f0np0     ff020000000000000000000000005eed     1 00000004 0
5    enp1s0f1np1     ff020000000000000000000000000001     1 0000000C 0
"""
DEVICES = """\
Inter-|   Receive               |  Transmit
 face |bytes    packets errs drop|bytes    packets errs drop fifo colls carrier compressed
    lo: 1 2 0 0 0 0 0 0 1 2 0 0 0 0 0 0
enp1s0f0np0: 1 2 0 0 0 0 0 0 1 2 0 0 0 0 0 0
enp1s0f1np1: 1 2 0 0 0 0 0 0 1 2 0 0 0 0 0 0
enP2p1s0f0np0:       1 2 0 0 0 0 0 0 1 2 0 0 0 0 0 0
"""


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """Port 0 is in the group, port 1 has IPv6 switched off, port 0's twin cannot have it, port 1's twin is missing."""
    for name, text in {
        "sys/kernel/random/boot_id": "0badcafe-0000-4000-8000-000000000000\n",
        "thread-self/net/igmp6": GROUPS,
        "thread-self/net/dev": DEVICES,
        f"sys/net/ipv6/conf/{P0}/disable_ipv6": "0\n",
        f"sys/net/ipv6/conf/{P1}/disable_ipv6": "1\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, "ascii")
    return tmp_path


ALL = (P0, "enP2p1s0f0np0", P1, "enP2p1s0f1np1")


def test_what_the_kernel_says_about_the_ports(proc: Path) -> None:
    assert FabricSocket(ALL, proc).look() == View({P0: 4}, {"enP2p1s0f0np0": 0, P1: 0}, frozenset({4}), ipv6=True)


def test_where_nothing_is_said_there_is_no_port(tmp_path: Path) -> None:
    door = FabricSocket(ALL, tmp_path)
    assert door.look() == View({}, {}, frozenset(), ipv6=False)
    assert door.prepared(door.look())
    assert door.talking(door.socket, {"lo": 1}) == {}
    assert door.addresses(door.socket, ("lo",)) == {}
    assert door.send(b"", 4) == errno.ENOTCONN
    assert door.receive() == []


def test_without_ipv6_in_the_kernel_every_port_that_exists_is_deaf(proc: Path) -> None:
    shutil.rmtree(proc / "sys/net")
    (proc / "thread-self/net/igmp6").unlink()
    boot = "0badcafe-0000-4000-8000-000000000000"
    assert observed(proc, *ALL) == HelloFacts("1" * 32, (), (P0, "enP2p1s0f0np0", P1), (), boot)


def test_a_proc_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(DoorError, match=rf"hello: {tmp_path}/sys/kernel/random/boot_id: No such file or directory"):
        observed(tmp_path, "lo")
