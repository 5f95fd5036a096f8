"""cluster create and cluster install: which files, with which modes, and what is refused before any is written."""

from __future__ import annotations

import os
import shutil
import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sparkd.cli.bundle import check_bundle, create
from sparkd.cli.cluster import install
from sparkd.cli.failure import Exit, Failure
from sparkd.config import load
from tests.cli.conftest import Ctl
from tests.cli.fakes import NODES
from tests.config.etc import CLUSTER, unprivileged

NOW = datetime.now(UTC)
TEXT = f"# The ring in the lab.\n{CLUSTER}\n[recovery]\nrestarts = 5 # enough\n"


@pytest.fixture
def description(tmp_path: Path) -> Path:
    path = tmp_path / "cluster.toml"
    path.write_text(TEXT)
    return path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The file system of a machine where the package is installed."""
    path = tmp_path / "root"
    (path / "etc").mkdir(parents=True)
    (path / "etc/group").write_text(f"root:x:0:\nsparkd:x:{os.getegid() or 991}:\n")
    return path


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def modes(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): f"{path.stat().st_mode & 0o777:04o}" for path in folder.rglob("*")}


def test_create_makes_a_configuration_for_each_node(description: Path, tmp_path: Path, ctl: Ctl) -> None:
    out = tmp_path / "new/cluster"
    code, told, err = ctl("cluster", "create", str(description), "--out", str(out), daemon=False)
    assert (code, err) == (0, "")
    assert f"{out}/spark2: copy it to spark2; there, as root: sparkctl cluster install spark2\n" in told
    settings = [load(out / node / "sparkd.toml", {}) for node in NODES]
    assert [each.node for each in settings] == list(NODES)
    assert len({each.cluster_key for each in settings}) == 1
    assert settings[0].policy.restarts == 5
    assert (out / "spark1/sparkd.toml").read_text() == f'[node]\nname = "spark1"\n\n{TEXT}'
    found = modes(out)
    assert {name for name, mode in found.items() if mode == "0700"} == {
        "ca",
        *NODES,
        *(f"{node}/tls" for node in NODES),
    }
    assert {mode for mode in found.values() if mode != "0700"} == {"0600"}
    assert f"{out.stat().st_mode & 0o777:o}" == "700"
    assert set(files(out / "spark3")) == {
        "sparkd.toml",
        "cluster.key",
        "tls/ca.crt",
        "tls/node.crt",
        "tls/node.key",
    }


@pytest.mark.parametrize(
    "text",
    [
        'cluster.name = "lab"\n'
        + CLUSTER.replace("[cluster]\nname", "cluster.base_range = '10.77.0.0/21'\n#").replace(
            'base_range = "10.77.0.0/21"\n', "", 1
        ),
        CLUSTER.replace("\n", "\r\n"),
        CLUSTER.rstrip("\n"),
    ],
)
def test_descriptions_however_they_are_written(text: str, tmp_path: Path) -> None:
    (tmp_path / "cluster.toml").write_bytes(text.encode())
    create(tmp_path / "cluster.toml", tmp_path / "out", force=False, now=NOW)
    assert [load(tmp_path / "out" / node / "sparkd.toml", {}).node for node in NODES] == list(NODES)
    made = tomllib.loads((tmp_path / "out/spark1/sparkd.toml").read_bytes().decode())
    assert made == {"node": {"name": "spark1"}, **tomllib.loads(text)}


def test_every_fault_of_a_description_is_told_and_nothing_written(tmp_path: Path, ctl: Ctl) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(TEXT.replace("rank = 2", "rank = 1").replace("restarts = 5", "restarts = -5") + "[engin]\n")
    code, out, err = ctl("cluster", "create", str(path), "--out", str(tmp_path / "out"), daemon=False)
    assert (code, out) == (7, "")
    assert [line.split(": ")[1:3] for line in err.splitlines()] == [
        [str(path), "engin"],
        [str(path), "cluster.node[2].rank"],
        [str(path), "recovery.restarts"],
    ]
    assert not (tmp_path / "out").exists()


def test_a_node_named_like_the_directory_of_the_ca(tmp_path: Path) -> None:
    (tmp_path / "cluster.toml").write_text(CLUSTER.replace("spark2", "ca"))
    with pytest.raises(Failure, match='found a node named "ca"') as caught:
        create(tmp_path / "cluster.toml", tmp_path / "out", force=False, now=NOW)
    assert caught.value.exit_code == Exit.CONFIG
    assert not (tmp_path / "out").exists()


def test_an_existing_directory_is_left_alone(description: Path, tmp_path: Path, ctl: Ctl) -> None:
    arguments = ["cluster", "create", str(description), "--out", str(tmp_path / "out")]
    (tmp_path / "out").mkdir()
    assert ctl(*arguments, daemon=False).code == 0
    before = files(tmp_path / "out")
    code, _, err = ctl(*arguments, daemon=False)
    assert code == 7
    assert err.startswith(f"sparkctl: {tmp_path}/out exists\n")
    assert files(tmp_path / "out") == before


def test_force_keeps_what_installed_nodes_rely_on(description: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert not create(description, out, force=False, now=NOW).kept
    before = files(out)
    description.write_text(TEXT.replace("192.168.77.3", "192.168.77.4").replace("spark3", "spark4"))
    assert create(description, out, force=True, now=NOW).kept
    after = files(out)
    kept = {name for name, content in before.items() if after[name] == content}
    shared = {f"{node}/{name}" for node in ("spark1", "spark2") for name in ("cluster.key", "tls/ca.crt")}
    assert kept == {"ca/ca.key", "ca/ca.crt", *shared, *(name for name in before if name.startswith("spark3/"))}
    assert load(out / "spark4/sparkd.toml", {}).cluster_key == load(out / "spark1/sparkd.toml", {}).cluster_key


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda out: (out / "ca/ca.key").unlink(), "ca.key: no such file or directory; the CA needs both"),
        (lambda out: (out / "ca/ca.crt").write_text("x"), "no usable CA"),
        (lambda out: shutil.copy(out / "spark1/tls/node.key", out / "ca/ca.key"), "the key does not belong"),
        (
            lambda out: (out / "spark2/cluster.key").write_text("another-key-altogether"),
            r"spark1/cluster.key and \S+spark2/cluster.key differ",
        ),
    ],
)
def test_force_on_a_spoilt_directory(description: Path, tmp_path: Path, spoil: object, sentence: str) -> None:
    create(description, tmp_path / "out", force=False, now=NOW)
    assert callable(spoil)
    spoil(tmp_path / "out")
    before = files(tmp_path / "out")
    with pytest.raises(Failure, match=sentence) as caught:
        create(description, tmp_path / "out", force=True, now=NOW)
    assert caught.value.exit_code == Exit.CONFIG
    assert files(tmp_path / "out") == before


def test_install(description: Path, tmp_path: Path, root: Path, ctl: Ctl) -> None:
    bundle = tmp_path / "out/spark2"
    create(description, tmp_path / "out", force=False, now=NOW)
    code, out, err = ctl("cluster", "install", str(bundle), "--root", str(root), daemon=False)
    assert (code, err) == (0, "")
    etc = root / "etc/sparkd"
    assert out == f"{etc}/sparkd.toml: this machine is spark2, rank 1 of lab\nnext: systemctl restart sparkd\n"
    assert load(etc / "sparkd.toml", {}).node == "spark2"
    assert files(etc) == files(bundle)
    assert modes(etc) == {
        "sparkd.toml": "0644",
        "cluster.key": "0640",
        "tls": "0750",
        "tls/ca.crt": "0640",
        "tls/node.crt": "0640",
        "tls/node.key": "0640",
    }
    assert f"{etc.stat().st_mode & 0o777:o}" == "755"
    if os.geteuid() == 0:
        owners = {name: (etc / name).stat().st_gid for name in ("sparkd.toml", "cluster.key", "tls", "tls/node.key")}
        assert owners == {"sparkd.toml": 0, "cluster.key": 991, "tls": 991, "tls/node.key": 991}


def test_install_from_a_medium_without_modes(description: Path, tmp_path: Path, root: Path) -> None:
    create(description, tmp_path / "out", force=False, now=NOW)
    for path in (tmp_path / "out/spark1").rglob("*"):
        path.chmod(0o777)
    assert install(tmp_path / "out/spark1", root) == Exit.OK
    assert f"{(root / 'etc/sparkd/tls/node.key').stat().st_mode & 0o777:o}" == "640"


def test_install_again_keeps_the_old_configuration(description: Path, tmp_path: Path, root: Path) -> None:
    create(description, tmp_path / "out", force=False, now=NOW)
    etc = root / "etc/sparkd"
    install(tmp_path / "out/spark1", root)
    install(tmp_path / "out/spark1", root)
    assert not (etc / "sparkd.toml.old").exists()
    (etc / "sparkd.toml").write_text("# by hand\n")
    install(tmp_path / "out/spark1", root)
    assert (etc / "sparkd.toml.old").read_text() == "# by hand\n"
    assert load(etc / "sparkd.toml", {}).node == "spark1"


def test_install_tells_of_a_drop_in_that_does_not_fit(description: Path, tmp_path: Path, root: Path, ctl: Ctl) -> None:
    create(description, tmp_path / "out", force=False, now=NOW)
    drop_in = root / "etc/sparkd/sparkd.toml.d/old.toml"
    drop_in.parent.mkdir(parents=True)
    drop_in.write_text("[node]\nname = 'spark9'\n")
    code, _, err = ctl("cluster", "install", str(tmp_path / "out/spark1"), "--root", str(root), daemon=False)
    assert code == 7
    assert f'{drop_in}: node.name: found "spark9", expected one of spark1, spark2, spark3' in err


@pytest.mark.parametrize(
    ("spoil", "directory", "sentence"),
    [
        (lambda out: (out / "spark1/tls/node.key").unlink(), "spark1", "node.key: file: found nothing"),
        (
            lambda out: shutil.copytree(out / "spark2/tls", out / "spark1/tls", dirs_exist_ok=True),
            "spark1",
            "found one for",
        ),
        (lambda out: None, "", "holds the directories of several nodes"),
        (lambda out: (out / "spark1/sparkd.toml").unlink(), "spark1", "sparkd.toml: file: found nothing"),
        (lambda out: None, "spark1/cluster.key", "spark1/cluster.key is not a directory"),
    ],
)
def test_a_faulty_bundle_is_not_installed(
    description: Path, tmp_path: Path, root: Path, spoil: object, directory: str, sentence: str
) -> None:
    create(description, tmp_path / "out", force=False, now=NOW)
    assert callable(spoil)
    spoil(tmp_path / "out")
    with pytest.raises(Failure, match=sentence) as caught:
        install(tmp_path / "out" / directory, root)
    assert caught.value.exit_code == Exit.CONFIG
    assert not (root / "etc/sparkd").exists()


@pytest.mark.parametrize(
    ("out", "given", "meant"),
    [
        ("cluster", "spark1", "cluster/spark1"),
        ("made", "spark1", "made/spark1"),
        (".", "cluster/spark1", "spark1"),
        ("cluster", "spark7", None),
    ],
)
def test_a_directory_that_is_not_there(
    out: str, given: str, meant: str | None, description: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    create(description, Path(out), force=False, now=NOW)
    with pytest.raises(Failure) as caught:
        check_bundle(Path(given), NOW)
    assert (caught.value.exit_code, caught.value.text) == (Exit.CONFIG, f"no such directory: {here}/{given}")
    assert ("give DIR/NODE" in caught.value.hint) == (meant is None)
    assert meant is None or caught.value.hint == f"there is {meant}: sparkctl cluster install {meant}"


def test_expired_certificates_are_not_installed(description: Path, tmp_path: Path, root: Path) -> None:
    create(description, tmp_path / "out", force=False, now=NOW - timedelta(days=800))
    with pytest.raises(Failure, match=r"node\.crt: file: found one that expired on") as caught:
        install(tmp_path / "out/spark1", root)
    assert caught.value.hint == "make new ones with `sparkctl cluster create --force`"
    assert not (root / "etc/sparkd").exists()


def test_install_without_the_package(description: Path, tmp_path: Path, root: Path) -> None:
    create(description, tmp_path / "out", force=False, now=NOW)
    (root / "etc/group").write_text("root:x:0:\nsparkd-rank:x:992:\n")
    with pytest.raises(Failure, match="there is no group sparkd") as caught:
        install(tmp_path / "out/spark1", root)
    assert caught.value.hint == "install the package sparkd first"
    assert not (root / "etc/sparkd").exists()


def test_only_root_installs_here(tmp_path: Path) -> None:
    with unprivileged(), pytest.raises(Failure, match="only root") as caught:
        install(tmp_path, Path("/"))
    assert caught.value.exit_code == Exit.DENIED
