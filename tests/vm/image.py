"""The guests' disk, kernel and initial RAM disk: made once from the machine's own distribution, kept in the cache."""

from __future__ import annotations

import contextlib
import hashlib
import lzma
import os
import platform
import shutil
from dataclasses import dataclass
from pathlib import Path

from tests.lab.base import MASKED, OPTIONS, codename, mmdebstrap, sources
from tests.lab.base import PACKAGES as DAEMON_PACKAGES
from tests.lab.shell import LabError, environment, locked, run
from tests.vm import files

PACKAGES: tuple[str, ...] = (
    *DAEMON_PACKAGES, "systemd", "udev", "ethtool", "rdma-core", "ibverbs-utils", "perftest", "rdmacm-utils",
)  # fmt: skip
KERNEL = "linux-image-amd64"
# What boots from a virtual disk; all else comes from there. ext4 asks for crc32c by a name that depmod does not follow.
INITRD_MODULES: tuple[str, ...] = ("virtio_pci", "virtio_blk", "crc32c_generic", "ext4")
# Most of a kernel package is drivers of devices that these machines do not have.
UNUSED_MODULES: tuple[str, ...] = (
    "sound", "drivers/gpu", "drivers/media", "drivers/staging", "drivers/iio", "drivers/usb", "drivers/isdn",
    "drivers/scsi", "drivers/net/wireless", "drivers/net/ethernet", "drivers/hwmon", "drivers/input", "net/bluetooth",
)  # fmt: skip
DISK_MIB = 1536
UNFINISHED = "scratch"
KEPT = 2
"""How many images stay in the cache."""
XZ_MAGIC = b"\xfd7zXZ\x00"


@dataclass(frozen=True)
class Image:
    directory: Path

    @property
    def disk(self) -> Path:
        """ext4, sparse; nobody writes to it."""
        return self.directory / "root.ext4"

    @property
    def kernel(self) -> Path:
        return self.directory / "vmlinux"

    @property
    def initrd(self) -> Path:
        return self.directory / "initrd"


def require_tools() -> None:
    """Raise LabError unless the machine has what a fleet needs; tests/vm/deps installs it."""
    if os.geteuid() != 0:
        raise LabError("fleet: start: making the guests' disk needs root")
    if platform.machine() != "x86_64":
        raise LabError(f"fleet: start: the guests are x86_64 and this machine is {platform.machine()}")
    tools = ("qemu-system-x86_64", "qemu-img", "mmdebstrap", "mkfs.ext4", "cpio", "dpkg-deb")
    missing = [tool for tool in tools if shutil.which(tool, path=environment()["PATH"]) is None]
    if missing:
        raise LabError(f"fleet: start: missing {', '.join(missing)}; run tests/vm/deps")


def make(cache: Path) -> Image:
    """The image, made or taken from the cache. Raises LabError if it cannot be made."""
    suite = codename()
    lines = sources(suite)
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    with locked(cache / ".lock", wait=True):
        kernel = _kernel_package()
        parts = [suite, kernel, str(DISK_MIB), *PACKAGES, *OPTIONS, *MASKED, *UNUSED_MODULES, *INITRD_MODULES, *lines]
        parts += [files.INIT, *files.MASKED, *files.ENABLED]
        parts += [f"{path} {mode:o} {text}" for path, (mode, text) in files.all_files().items()]
        key = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
        image = Image(cache / f"image-{key}")
        if not image.directory.is_dir():
            scratch = cache / UNFINISHED
            shutil.rmtree(scratch, ignore_errors=True)
            scratch.mkdir()
            _build(scratch, suite, lines, kernel)
            (scratch / "made").replace(image.directory)
            shutil.rmtree(scratch)
        os.utime(image.directory)
        made = sorted(cache.glob("image-*"), key=lambda path: path.stat().st_mtime, reverse=True)
        for old in made[KEPT:]:
            shutil.rmtree(old)
    return image


def tidy(cache: Path) -> None:
    """Remove what an interrupted `make` has left, unless another one is at work."""
    if (cache / UNFINISHED).exists():
        with contextlib.suppress(LabError), locked(cache / ".lock", wait=False):
            shutil.rmtree(cache / UNFINISHED, ignore_errors=True)


def _kernel_package() -> str:
    """The package with the newest kernel of the distribution, which KERNEL only points to."""

    def ask() -> str:
        listed = run(["apt-cache", "depends", "--important", KERNEL], step="look for a kernel", check=False).stdout
        found = [line.split()[-1] for line in listed.splitlines() if "Depends: linux-image-" in line]
        return found[0] if found else ""

    if not (name := ask()):
        # A fresh machine has no package lists.
        run(["apt-get", "update", "-q"], step="update package lists", timeout=600)
        name = ask()
    if not name:
        raise LabError(f"fleet: image: apt knows no {KERNEL}; the guests' kernel is Debian's, so run this on Debian")
    return name


def _build(scratch: Path, suite: str, lines: list[str], kernel: str) -> None:
    root, made = scratch / "root", scratch / "made"
    made.mkdir()
    mmdebstrap(scratch, root, suite, lines, PACKAGES, step="fleet: image")
    unpacked = {name: _unpacked(scratch, name) for name in (kernel, "busybox-static")}
    version = kernel.removeprefix("linux-image-")
    modules = root / "usr/lib/modules" / version
    shutil.copytree(unpacked[kernel] / "lib/modules" / version, modules)
    for name in UNUSED_MODULES:
        shutil.rmtree(modules / "kernel" / name, ignore_errors=True)
    run(["chroot", str(root), "depmod", version], step="index the kernel's modules", timeout=120)
    for path, (mode, text) in files.all_files().items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
        (root / path).chmod(mode)
    for unit in (*MASKED, *files.MASKED):
        link = root / "etc/systemd/system" / unit
        link.unlink(missing_ok=True)
        link.symlink_to("/dev/null")
    for unit in files.ENABLED:
        wants = root / "etc/systemd/system/multi-user.target.wants"
        wants.mkdir(parents=True, exist_ok=True)
        (wants / unit).symlink_to(f"/etc/systemd/system/{unit}")
    # mmdebstrap copies the machine's name; an empty machine-id is taken from the kernel's command line.
    (root / "etc/hostname").unlink(missing_ok=True)
    (root / "etc/machine-id").write_text("")
    (root / "var/lib/dbus/machine-id").unlink(missing_ok=True)
    (root / "var/log/journal").mkdir(exist_ok=True)
    (made / "vmlinux").write_bytes(uncompressed((unpacked[kernel] / "boot" / f"vmlinuz-{version}").read_bytes()))
    _initrd(scratch, made / "initrd", modules, unpacked["busybox-static"])
    disk = ["-q", "-d", str(root), "-L", "root", "-O", "^has_journal", str(made / "root.ext4"), f"{DISK_MIB}M"]
    run(["mkfs.ext4", *disk], step="make the disk", timeout=300)


def _unpacked(scratch: Path, package: str) -> Path:
    """A package's files, without installing it on this machine: a kernel's scripts would make it bootable here."""
    where = scratch / f"package-{package}"
    where.mkdir()
    script = f"cd '{where}' && apt-get download -q {package} && dpkg-deb -x {package}_*.deb ."
    if run(["sh", "-c", script], step=f"download {package}", check=False, timeout=600).returncode != 0:
        # Old package lists name files that are gone.
        run(["apt-get", "update", "-q"], step="update package lists", timeout=600)
        run(["sh", "-c", script], step=f"download {package}", timeout=600)
    return where


def uncompressed(image: bytes) -> bytes:
    """The kernel inside a bzImage, so that no emulated processor has to unpack it. Raises LabError if it is not XZ."""
    at = image.find(XZ_MAGIC)
    while at >= 0:
        with contextlib.suppress(lzma.LZMAError):
            kernel = lzma.LZMADecompressor(lzma.FORMAT_XZ).decompress(image[at:])
            if kernel.startswith(b"\x7fELF"):
                return kernel
        at = image.find(XZ_MAGIC, at + 1)
    raise LabError("fleet: image: the kernel image has no XZ-compressed ELF file in it")


def _initrd(scratch: Path, target: Path, modules: Path, busybox: Path) -> None:
    tree = scratch / "initrd"
    for name in ("bin", "dev", "proc", "sys", "root"):
        (tree / name).mkdir(parents=True)
    shutil.copyfile(busybox / "bin/busybox", tree / "bin/busybox")
    (tree / "bin/busybox").chmod(0o755)
    needed = with_dependencies(modules)
    for number, path in enumerate(needed):
        shutil.copyfile(modules / path, tree / f"{number:02}.ko")
    (tree / "init").write_text(files.INIT)
    (tree / "init").chmod(0o755)
    script = f"cd '{tree}' && find . | cpio --quiet -o -H newc -R 0:0 >'{target}'"
    run(["sh", "-c", script], step="make the initial RAM disk")


def with_dependencies(modules: Path) -> list[str]:
    """Files of INITRD_MODULES and of what they need, in the order in which they can be loaded."""
    needs: dict[str, list[str]] = {}
    for line in (modules / "modules.dep").read_text().splitlines():
        path, _, rest = line.partition(":")
        needs[path] = rest.split()
    order: list[str] = []
    for name in INITRD_MODULES:
        for path in (each for each in needs if Path(each).name.partition(".")[0] == name):
            # depmod lists what a module needs from the last that has to be loaded to the first.
            order += [each for each in (*reversed(needs[path]), path) if each not in order]
    return order
