"""What is in the package, where, and with which modes."""

from __future__ import annotations

import ast
import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import sparkd
from ring_mesh.__main__ import read_cluster
from ring_mesh.ports import FABRIC_DEVICES
from sparkd.cli import main as sparkctl
from sparkd.cli.failure import Exit
from sparkd.config.launch import LAUNCH
from sparkd.config.profiles import resolve
from sparkd.core.actions import ROUTE_PROTOCOL
from tests.packaging.built import MODULES, ROOT, Package, run, tree_files

# Text of the licence as the FSF publishes it.
AGPL_SHA256 = "0d96a4ff68ad6d4b6f1f30f713b18d5184912ba8dd389f86aa7710db079abcb0"

INSTALLED = {
    "/etc/iproute2/rt_protos.d/sparkd.conf": "-rw-r--r--",
    "/lib/systemd/system/sparkd-drop-caches@.service": "-rw-r--r--",
    "/lib/systemd/system/sparkd-measure@.service": "-rw-r--r--",
    "/lib/systemd/system/sparkd-rank@.service": "-rw-r--r--",
    "/lib/systemd/system/sparkd.service": "-rw-r--r--",
    "/usr/bin/sparkctl": "-rwxr-xr-x",
    "/usr/lib/NetworkManager/conf.d/90-sparkd-fabric.conf": "-rw-r--r--",
    "/usr/lib/sparkd/configured": "-rwxr-xr-x",
    "/usr/lib/sparkd/drop-caches": "-rwxr-xr-x",
    "/usr/lib/sparkd/measure": "-rwxr-xr-x",
    "/usr/lib/sparkd/plugin/adapter -> ../adapter": "lrwxrwxrwx",
    "/usr/lib/sparkd/plugin/sparkd_adapter.dist-info/METADATA": "-rw-r--r--",
    "/usr/lib/sparkd/plugin/sparkd_adapter.dist-info/entry_points.txt": "-rw-r--r--",
    "/usr/lib/sparkd/rank": "-rwxr-xr-x",
    "/usr/lib/systemd/catalog/sparkd.catalog": "-rw-r--r--",
    "/usr/lib/systemd/network/10-sparkd-fabric.network": "-rw-r--r--",
    "/usr/lib/sysusers.d/sparkd.conf": "-rw-r--r--",
    "/usr/sbin/sparkd": "-rwxr-xr-x",
    "/usr/sbin/sparkd-engine": "-rwxr-xr-x",
    "/usr/share/bash-completion/completions/sparkctl": "-rw-r--r--",
    "/usr/share/doc/sparkd/examples/cluster.toml": "-rw-r--r--",
    "/usr/share/doc/sparkd/examples/engine.toml": "-rw-r--r--",
    "/usr/share/doc/sparkd/examples/raw-hello.conf": "-rw-r--r--",
    "/usr/share/lintian/overrides/sparkd": "-rw-r--r--",
    "/usr/share/man/man1/sparkctl.1.gz": "-rw-r--r--",
    "/usr/share/man/man8/sparkd-engine.8.gz": "-rw-r--r--",
    "/usr/share/man/man8/sparkd.8.gz": "-rw-r--r--",
    "/usr/share/polkit-1/rules.d/50-sparkd.rules": "-rw-r--r--",
    "/usr/share/sparkd/grafana/sparkd.json": "-rw-r--r--",
    "/usr/share/sparkd/prometheus/scrape.yml": "-rw-r--r--",
    "/usr/share/sparkd/prometheus/sparkd.rules.yml": "-rw-r--r--",
    "/usr/share/sparkd/profiles/deepseek-v4.1-flash-tp3.toml": "-rw-r--r--",
    "/usr/share/zsh/vendor-completions/_sparkctl": "-rw-r--r--",
    # Compiles the private modules anew when the distribution changes its Python.
    "/usr/share/python3/runtime.d/sparkd.rtupdate": "-rwxr-xr-x",
}

# The package of Debian and Ubuntu that brings a module.
BRINGS = {
    "cryptography": "python3-cryptography",
    "fastapi": "python3-fastapi",
    "gi": "python3-gi",
    "h11": "python3-h11",
    "prometheus_client": "python3-prometheus-client",
    "pydantic": "python3-pydantic",
    "pydbus": "python3-pydbus",
    "pyroute2": "python3-pyroute2",
    "starlette": "python3-fastapi",
    "systemd": "python3-systemd",
    "uvicorn": "python3-uvicorn",
}


def test_every_file_has_its_place_and_mode(package: Package) -> None:
    outside = {
        name: mode
        for name, mode in package.files.items()
        if not any(name.startswith(f"/usr/lib/sparkd/{module}/") for module in MODULES)
    }
    documentation = {name for name in outside if re.match(r"/usr/share/doc/sparkd/(adapters/)?[\w.-]+$", name)}
    assert {name: mode for name, mode in outside.items() if name not in documentation} == INSTALLED
    for wanted in ("README.Debian", "NOTICE", "copyright", "changelog", "first-hour.md"):
        assert {f"/usr/share/doc/sparkd/{wanted}", f"/usr/share/doc/sparkd/{wanted}.gz"} & documentation, wanted


def test_everything_belongs_to_root(package: Package) -> None:
    assert {owner for _, owner in package.entries.values()} == {"root/root"}


def test_configuration_directories_wait_for_the_operator(package: Package) -> None:
    assert package.entries["/etc/sparkd/"][0] == "drwxr-xr-x"
    assert package.entries["/etc/sparkd/sparkd.toml.d/"][0] == "drwxr-xr-x"
    assert package.entries["/etc/sparkd/profiles/"][0] == "drwxr-xr-x"
    assert not [name for name in package.files if name.startswith("/etc/sparkd/")]


def test_the_modules_are_those_of_the_tree(package: Package) -> None:
    below = {name for name in package.files if name.startswith("/usr/lib/sparkd/") and name.count("/") > 4}
    # The one thing of sparkd that an engine has on its path.
    installed = {name for name in below if not name.startswith("/usr/lib/sparkd/plugin/") and " -> " not in name}
    linked = {name for name in tree_files(*MODULES) if (ROOT / name).is_symlink()}
    assert installed == {f"/usr/lib/sparkd/{name}" for name in tree_files(*MODULES) if name not in linked}
    for name in linked:
        place, target = f"/usr/lib/sparkd/{name}", os.readlink(ROOT / name)
        assert package.entries[f"{place} -> {target}"][0] == "lrwxrwxrwx"
        assert os.path.normpath(Path(place).parent / target) in installed
    assert {package.files[name] for name in installed} == {"-rw-r--r--"}


@pytest.mark.parametrize(
    "command", ["/usr/sbin/sparkd", "/usr/sbin/sparkd-engine", "/usr/bin/sparkctl", "/usr/lib/sparkd/rank"]
)
def test_commands_run_an_installed_module_isolated_from_the_caller(package: Package, command: str) -> None:
    text = package.text(command)
    # -I: neither PYTHONPATH nor the user's own packages nor the current directory decide what root runs.
    assert text.startswith("#!/usr/bin/python3 -I\n")
    module = re.findall(r'run_module\("([a-z.]+)"', text)[0].replace(".", "/")
    assert {f"/usr/lib/sparkd/{module}.py", f"/usr/lib/sparkd/{module}/__main__.py"} & set(package.files)


def test_what_the_modules_import_is_a_dependency(package: Package) -> None:
    imported: dict[str, str] = {}
    for name in tree_files("sparkd", "ring_mesh", "runtime"):
        if name.endswith(".py"):
            for module in imports((ROOT / name).read_text()):
                imported.setdefault(module, name)
    foreign = set(imported) - set(sys.stdlib_module_names) - set(MODULES)
    depends = set(re.findall(r"[a-z0-9.+-]+", package.field("Depends")))
    for module in sorted(foreign):
        assert module in BRINGS, f"{imported[module]} imports {module}, which no dependency brings"
        assert BRINGS[module] in depends, f"{imported[module]} imports {module}"


def imports(source: str) -> set[str]:
    """Top-level names of all modules that the source imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found


def test_one_version(package: Package) -> None:
    assert package.field("Version") == sparkd.__version__
    for page in ("sparkd.8", "sparkd-engine.8", "sparkctl.1"):
        assert f'"sparkd {sparkd.__version__}"' in (ROOT / "packaging/man" / page).read_text().splitlines()[0]


def test_the_licence_is_complete(package: Package) -> None:
    licence = (ROOT / "LICENSE").read_bytes()
    assert hashlib.sha256(licence).hexdigest() == AGPL_SHA256
    lines = [f" {line or '.'}" for line in licence.decode().splitlines()]
    assert package.text("/usr/share/doc/sparkd/copyright").splitlines()[-len(lines) :] == lines


def test_the_example_is_a_cluster(package: Package) -> None:
    path = package.root / "usr/share/doc/sparkd/examples/cluster.toml"
    assert read_cluster(str(path)).world_size == 3


def test_the_example_of_a_site_overrides_the_packages_profile(package: Package) -> None:
    """As it is, and with every line that is commented out."""
    name, shipped = "deepseek-v4.1-flash-tp3", package.root / "usr/share/sparkd/profiles"
    example = package.root / "usr/share/doc/sparkd/examples/engine.toml"
    profile = resolve(name, [shipped], example)
    assert profile.table("arguments")["model-path"] == "/srv/models/DeepSeek-V4.1-Flash"
    text = re.sub(r"^#(?=\[|[A-Za-z])", "", example.read_text(), flags=re.MULTILINE)
    (shipped / "engine.toml").write_text(text)
    whole = resolve(name, [shipped], shipped / "engine.toml")
    (shipped / "engine.toml").unlink()
    assert (whole.allowed, whole.table("environment")["NCCL_MAX_NCHANNELS"]) == (("0.5.24",), "4")
    given = {s.name: s.value for s in whole.settings if s.table == "launch" and s.origin.endswith("engine.toml")}
    assert given == {name: rule.default for name, rule in LAUNCH.items()}


def test_networkmanager_leaves_exactly_the_fabric_alone(package: Package) -> None:
    text = package.text("/usr/lib/NetworkManager/conf.d/90-sparkd-fabric.conf")
    matched = re.findall(r"^match-device=(.*)$", text, re.MULTILINE)
    assert [set(line.split(";")) for line in matched] == [{f"interface-name:{device}" for device in FABRIC_DEVICES}]
    assert re.findall(r"^managed=(.*)$", text, re.MULTILINE) == ["0"]


def test_networkd_leaves_exactly_the_fabric_alone(package: Package) -> None:
    text = package.text("/usr/lib/systemd/network/10-sparkd-fabric.network")
    (names,) = re.findall(r"^Name=(.*)$", text, re.MULTILINE)
    assert set(names.split()) == FABRIC_DEVICES
    assert "[Link]\nUnmanaged=yes\n" in text


def test_iproute2_knows_the_routes_of_the_daemon(package: Package) -> None:
    lines = package.text("/etc/iproute2/rt_protos.d/sparkd.conf").splitlines()
    assert [line.split() for line in lines if not line.startswith("#")] == [[str(ROUTE_PROTOCOL), "sparkd"]]


def test_the_same_commit_gives_the_same_bytes_anywhere(tmp_path: Path) -> None:
    builds = []
    for name, mask in (("here", "022"), ("elsewhere", "077")):
        clone = tmp_path / name
        # The time at which files were checked out differs too.
        run(["sh", "-c", f"umask {mask}; exec git clone --quiet --no-hardlinks '{ROOT}' '{clone}'"])
        builds.append((clone, subprocess.Popen(["sh", "-c", f"umask {mask}; exec '{clone}/packaging/build-deb'"])))
    assert [build.wait(120) for _, build in builds] == [0, 0]
    here, elsewhere = [next((clone / "build/deb").glob("*.deb")).read_bytes() for clone, _ in builds]
    assert here == elsewhere


def test_lintian_finds_nothing(package: Package) -> None:
    done = run(["lintian", "--fail-on", "error,warning", "-i", "--allow-root", str(package.path)], check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("page", ["man8/sparkd.8.gz", "man8/sparkd-engine.8.gz", "man1/sparkctl.1.gz"])
def test_manual_pages_format_without_a_warning(package: Package, page: str) -> None:
    path = package.root / "usr/share/man" / page
    done = run(["man", "--warnings", "-Tutf8", "-E", "UTF-8", "--local-file", str(path)], "man-db")
    assert done.stderr == ""
    # Bold characters are printed twice, one over the other.
    assert "SYNOPSIS" in re.sub(".\b", "", done.stdout)


def test_the_manual_of_sparkctl_knows_its_commands_options_and_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "packaging/man/sparkctl.1").read_text().replace("\\-", "-")

    def shown(*command: str) -> str:
        with pytest.raises(SystemExit):
            sparkctl([*command, "--help"])
        return capsys.readouterr().out

    def inner(text: str) -> list[str]:
        return re.findall(r"^ {4}([a-z]+)(?: |$)", text, re.MULTILINE)

    groups = ("cluster", "config", "fabric", "profile", "token")
    commands: list[tuple[str, ...]] = [(name,) for name in inner(shown()) if name not in groups]
    commands += [(group, name) for group in groups for name in inner(shown(group))]
    documented = set(re.findall(r"^\.B sparkctl ([a-z]+(?: [a-z]+)?)$", page, re.MULTILINE))
    assert documented == {" ".join(command) for command in commands}
    helps = shown() + "".join(shown(*command) for command in commands)
    engines = {"--tokenizer-worker-num"}  # SGLang's
    assert options(page) - engines == options(helps) - {"--help"}
    codes = {int(code) for code in re.findall(r"^\.B (\d+)$", page, re.MULTILINE)}
    # What the shell says of any interrupted command needs no line.
    assert codes == {int(code) for code in Exit} - {Exit.INTERRUPTED}


def options(text: str) -> set[str]:
    return set(re.findall(r"--[a-z]+(?:-[a-z]+)*", text))
