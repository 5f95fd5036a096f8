"""PCI, kernel, driver, memory and limits: a healthy Spark with one thing spoiled, and the exact finding."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sparkd.core import checks
from sparkd.core.checks.memory import check_memory_back
from sparkd.core.model import Finding, Severity
from tests.checks.spark import NODE, Spark

KHO_EXPECTED = (
    "a kernel without kexec handover (KHO): its scratch memory cannot be registered for RDMA (ibv_reg_mr_iova2 fails "
    "with ENOMEM)"
)
KHO_FIX = (
    "add kho=off to GRUB_CMDLINE_LINUX in /etc/default/grub, run update-grub and reboot; or boot kernel 6.17.0-1031 or "
    "6.17.0-1032 with driver 580.173.02"
)
ALL_FOUR = "4 mlx5 functions (0000:01:00.0, 0000:01:00.1, 0002:01:00.0, 0002:01:00.1)"
RESCAN = "rescan the PCI bus (echo 1 > /sys/bus/pci/rescan), or reboot with the cables attached; "
UNIT = "/usr/lib/systemd/system/sparkd-rank@.service"


@pytest.fixture
def spark(tmp_path: Path) -> Spark:
    return Spark(tmp_path)


def finding(id_: str, severity: Severity, subject: str, observed: str, expected: str, fix: str) -> Finding:
    return Finding(id_, NODE, severity, subject, observed, expected, fix)


def only(result: checks.CheckResult) -> Finding:
    assert result.verdict == "fail", result
    assert len(result.findings) == 1, result
    return result.findings[0]


# cx7-functions-missing, pcie-narrow


def test_functions_taken_off_by_hotplug(spark: Spark) -> None:
    spark.put("etc/nvidia/cx7-hotplug-enabled")
    spark.remove("sys/bus/pci/devices/0000:01:00.1")
    spark.remove("sys/bus/pci/devices/0002:01:00.1")
    assert only(spark.check("cx7-functions-missing")) == finding(
        "cx7-functions-missing",
        "refuse",
        "ConnectX-7",
        "2 of 4: 0000:01:00.1, 0002:01:00.1 not on the bus",
        ALL_FOUR,
        f"{RESCAN}/etc/nvidia/cx7-hotplug-enabled exists: a neighbour's reboot takes functions off the bus. That file "
        "is your choice (it saves 17-20 W) and sparkd leaves it alone",
    )
    assert (spark.root / "etc/nvidia/cx7-hotplug-enabled").exists()


def test_functions_missing_without_hotplug(spark: Spark) -> None:
    spark.remove("sys/bus/pci/devices/0002:01:00.0")
    found = only(spark.check("cx7-functions-missing"))
    assert found.observed == "3 of 4: 0002:01:00.0 not on the bus"
    assert found.fix == (
        f"{RESCAN}/etc/nvidia/cx7-hotplug-enabled does not exist, so it was no hot-plug: look for mlx5_core in the "
        "kernel's log"
    )


def test_a_function_without_its_driver_is_missing_too(spark: Spark) -> None:
    spark.remove("sys/bus/pci/devices/0002:01:00.1/driver")
    assert only(spark.check("cx7-functions-missing")).observed == "3 of 4: 0002:01:00.1 without its driver mlx5_core"


def test_no_function_at_all(spark: Spark) -> None:
    for address in ("0000:01:00.0", "0000:01:00.1", "0002:01:00.0", "0002:01:00.1"):
        spark.remove(f"sys/bus/pci/devices/{address}")
    assert only(spark.check("cx7-functions-missing")).observed == (
        "0 of 4: 0000:01:00.0, 0000:01:00.1, 0002:01:00.0, 0002:01:00.1 not on the bus"
    )
    assert spark.check("pcie-narrow").verdict == "unknown"


def test_a_virtual_function_does_not_stand_in_for_a_real_one(spark: Spark) -> None:
    spark.link("sys/bus/pci/devices/0000:01:00.1/physfn", "../0000:01:00.0")
    assert only(spark.check("cx7-functions-missing")).observed == "3 of 4: 0000:01:00.1 not on the bus"


@pytest.mark.parametrize(
    ("speed", "width", "observed"),
    [
        ("16.0 GT/s PCIe", "4", "16 GT/s x4"),
        ("32.0 GT/s PCIe", "2", "32 GT/s x2"),
        ("2.5 GT/s PCIe", "1", "2.5 GT/s x1"),
    ],
)
def test_a_narrow_or_slow_function(spark: Spark, speed: str, width: str, observed: str) -> None:
    spark.put("sys/bus/pci/devices/0002:01:00.1/current_link_speed", f"{speed}\n")
    spark.put("sys/bus/pci/devices/0002:01:00.1/current_link_width", f"{width}\n")
    assert only(spark.check("pcie-narrow")) == finding(
        "pcie-narrow",
        "warn",
        "enP2p1s0f1np1 (0002:01:00.1)",
        observed,
        "32 GT/s x4",
        "update the firmware (fwupdmgr refresh, fwupdmgr upgrade), shut down and take the power off for a minute",
    )


@pytest.mark.parametrize(("file", "text"), [("current_link_speed", "Unknown\n"), ("current_link_width", "63\n")])
def test_a_function_that_does_not_tell_its_link_is_in_doubt(spark: Spark, file: str, text: str) -> None:
    spark.put(f"sys/bus/pci/devices/0000:01:00.0/{file}", text)
    result = spark.check("pcie-narrow")
    assert (result.verdict, result.why) == ("unknown", "enp1s0f0np0 (0000:01:00.0) does not tell its link")


def test_what_is_narrow_is_told_next_to_what_is_in_doubt(spark: Spark) -> None:
    spark.put("sys/bus/pci/devices/0000:01:00.0/current_link_speed", "Unknown\n")
    spark.put("sys/bus/pci/devices/0000:01:00.1/current_link_width", "1\n")
    result = spark.check("pcie-narrow")
    assert only(result).subject == "enp1s0f1np1 (0000:01:00.1)"
    assert result.why.endswith("enp1s0f0np0 (0000:01:00.0) does not tell its link")


# kho-kernel, kernel-known-bad


def test_kernel_7_without_kho_off(spark: Spark) -> None:
    spark.kernel("7.0.0-1004-nvidia")
    assert only(spark.check("kho-kernel")) == finding(
        "kho-kernel",
        "refuse",
        "kernel",
        "kernel 7.0.0-1004-nvidia with no kho=off on its command line",
        KHO_EXPECTED,
        KHO_FIX,
    )


@pytest.mark.parametrize(
    ("release", "kho", "config", "verdict"),
    [
        ("7.0.0-1004-nvidia", "kho=off", None, "pass"),
        ("7.0.0-1004-nvidia", "kho=0", None, "pass"),
        ("7.0.0-1004-nvidia", "kho=on kho=off", None, "pass"),
        ("7.0.0-1004-nvidia", "kho=off kho=on", None, "fail"),
        ("7.0.0-1004-nvidia", "kho_scratch=off", None, "fail"),
        ("7.0.0-1004-nvidia", "-- kho=off", None, "fail"),
        ("7.2.1", "", None, "fail"),
        ("10.0.0", "", None, "fail"),
        ("6.17.0-1032-nvidia", "", None, "pass"),
        ("6.19.7", "", None, "pass"),
        ("7.0.0", "", "# CONFIG_KEXEC_HANDOVER is not set\n", "pass"),
        ("7.0.0", "", "CONFIG_KEXEC_HANDOVER=y\n# CONFIG_KEXEC_HANDOVER_ENABLE_DEFAULT is not set\n", "pass"),
        ("7.0.0", "kho=on", "CONFIG_KEXEC_HANDOVER=y\n# CONFIG_KEXEC_HANDOVER_ENABLE_DEFAULT is not set\n", "fail"),
        ("7.0.0", "", "CONFIG_KEXEC_HANDOVER=y\nCONFIG_KEXEC_HANDOVER_ENABLE_DEFAULT=y\n", "fail"),
        ("nvidia", "", None, "unknown"),
    ],
)
def test_kernels_and_their_switches(spark: Spark, release: str, kho: str, config: str | None, verdict: str) -> None:
    spark.kernel(release, kho, config)
    assert spark.check("kho-kernel").verdict == verdict


def test_a_configuration_that_cannot_be_read_counts_as_nvidias(spark: Spark) -> None:
    spark.kernel("7.0.0", config="")
    spark.seal("boot/config-7.0.0")
    assert spark.check("kho-kernel").verdict == "fail"


@pytest.mark.parametrize(
    ("total", "free", "verdict"),
    [
        (0, 0, "pass"),
        (0, 5242880, "fail"),
        (131072, 131072, "pass"),
        (131072, 131080, "pass"),
        (131072, 8388608, "fail"),
    ],
)
def test_free_cma_memory_far_above_all_cma_memory(spark: Spark, total: int, free: int, verdict: str) -> None:
    spark.meminfo(MemTotal=100, MemFree=100, MemAvailable=100, SwapTotal=1, CmaTotal=total, CmaFree=free)
    result = spark.check("kho-kernel")
    assert result.verdict == verdict
    if verdict == "fail":
        assert only(result).observed == f"CmaFree {free} kB far above CmaTotal {total} kB"


def test_a_kernel_without_cma(spark: Spark) -> None:
    spark.meminfo(MemTotal=100, MemFree=100, MemAvailable=100, SwapTotal=1)
    assert spark.check("kho-kernel").verdict == "pass"


def test_the_kernel_that_is_known_to_fail(spark: Spark) -> None:
    spark.kernel("6.17.0-1008-nvidia")
    assert only(spark.check("kernel-known-bad")) == finding(
        "kernel-known-bad",
        "refuse",
        "kernel",
        "6.17.0-1008-nvidia is known to fail",
        "kernel 6.17.0-1031 or 6.17.0-1032",
        "install kernel 6.17.0-1031 or 6.17.0-1032 with driver 580.173.02 and reboot",
    )
    spark.kernel("6.17.0-1008-nvidia-64k")
    assert spark.check("kernel-known-bad").verdict == "fail"
    for good in ("6.17.0-10081-nvidia", "6.17.0-1009-nvidia", "6.17.1-1008-nvidia"):
        spark.kernel(good)
        assert spark.check("kernel-known-bad").verdict == "pass", good


# memory


def test_no_swap_and_no_swappiness(spark: Spark) -> None:
    spark.meminfo(MemTotal=100, MemFree=100, MemAvailable=100, SwapTotal=0)
    spark.put("proc/sys/vm/swappiness", "0\n")
    expected = "swap, and a swappiness above 0"
    fix = (
        "without swap the machine wedges when memory runs out, instead of slowing down: swapon a file or partition, "
        "sysctl -w vm.swappiness=60"
    )
    assert spark.check("swap-off").findings == (
        finding("swap-off", "warn", "swap", "no swap (SwapTotal 0 kB)", expected, fix),
        finding("swap-off", "warn", "vm.swappiness", "0", expected, fix),
    )


def test_swappiness_that_is_not_told(spark: Spark) -> None:
    spark.remove("proc/sys/vm/swappiness")
    assert spark.check("swap-off").why == "vm.swappiness cannot be read"
    assert spark.check("swap-off").verdict == "unknown"


def held(spark: Spark) -> None:
    spark.meminfo(
        MemTotal=127598748, MemFree=17000000, MemAvailable=20971520, SwapTotal=1, Cached=3000000, AnonPages=1572864
    )


def test_memory_that_a_rank_took_with_it(spark: Spark) -> None:
    held(spark)
    assert only(spark.check("memory-not-back")) == finding(
        "memory-not-back",
        "refuse",
        "memory",
        "20.0 GiB of 121.7 GiB available though no rank runs; processes hold 1.5 GiB",
        "at least 60.8 GiB available",
        "stop what holds the memory (ps aux --sort=-rss); if no process does, the driver does: reboot the node",
    )


def test_memory_of_a_rank_that_runs(spark: Spark) -> None:
    held(spark)
    assert spark.check("memory-not-back", ranks_alive=True).verdict == "pass"
    unsure = spark.check("memory-not-back", ranks_alive=None)
    assert (unsure.verdict, unsure.why) == (
        "unknown",
        "20.0 GiB available, and it is not known whether a rank is alive",
    )


def test_memory_that_has_come_back_since_the_hardware_was_looked_at(spark: Spark) -> None:
    held(spark)
    seen = replace(spark.seen(ranks_alive=False), available=115343360)
    assert check_memory_back(seen).verdict == "pass"


def copied(spark: Spark) -> None:
    spark.meminfo(MemTotal=127598748, MemFree=2097152, MemAvailable=115343360, SwapTotal=1, Cached=116391936, Shmem=0)


def test_a_page_cache_full_of_a_copy(spark: Spark) -> None:
    copied(spark)
    assert only(spark.check("page-cache-counts")) == finding(
        "page-cache-counts",
        "warn",
        "page cache",
        "108.0 GiB of the page cache count as used to CUDA (MemFree 2.0 GiB, MemAvailable 110.0 GiB)",
        "less than 8.0 GiB of page cache before a start",
        "none needed for a rank, before which sparkd-drop-caches@.service drops it; by hand, as root: sync; "
        "echo 1 > /proc/sys/vm/drop_caches",
    )


def test_the_page_cache_of_a_serving_rank(spark: Spark) -> None:
    copied(spark)
    assert spark.check("page-cache-counts", ranks_alive=True).verdict == "pass"
    assert spark.check("page-cache-counts", ranks_alive=None).verdict == "unknown"


def test_memory_of_tmpfs_is_no_page_cache(spark: Spark) -> None:
    spark.meminfo(
        MemTotal=127598748, MemFree=90000000, MemAvailable=120000000, SwapTotal=1, Cached=30000000, Shmem=29000000
    )
    assert spark.check("page-cache-counts").verdict == "pass"


# memlock-low, nccl-conf-residue

EXPECTED_MEMLOCK = "unlimited: RDMA pins nearly all of a rank"


def limits(spark: Spark, pid: int, soft: str, hard: str) -> None:
    spark.put(
        f"proc/{pid}/limits",
        "Limit                     Soft Limit           Hard Limit           Units     \n"
        "Max open files            1048576              1048576              files     \n"
        f"Max locked memory         {soft:<20} {hard:<20} bytes     \n",
    )


def test_a_rank_with_a_low_limit(spark: Spark) -> None:
    limits(spark, 4711, "8388608", "unlimited")
    assert only(spark.check("memlock-low", rank_pid=4711)) == finding(
        "memlock-low",
        "refuse",
        "rank with pid 4711",
        "8388608 bytes",
        EXPECTED_MEMLOCK,
        "see LimitMEMLOCK in systemctl cat sparkd-rank@.service, then sparkctl down and up",
    )
    limits(spark, 4711, "unlimited", "unlimited")
    result = spark.check("memlock-low", rank_pid=4711)
    assert (result.verdict, result.why) == ("pass", "pid 4711 has unlimited")


def test_a_rank_that_has_just_ended_has_no_limits(spark: Spark) -> None:
    result = spark.check("memlock-low", rank_pid=4711)
    assert (result.verdict, result.why) == ("pass", f"{UNIT} asks for infinity")


def test_a_drop_in_that_lowers_the_limit(spark: Spark) -> None:
    drop_in = "etc/systemd/system/sparkd-rank@.service.d/override.conf"
    spark.put(drop_in, "[Service]\n# LimitMEMLOCK=infinity\nLimitMEMLOCK=64M:infinity\n")
    assert only(spark.check("memlock-low")) == finding(
        "memlock-low",
        "refuse",
        "sparkd-rank@.service",
        f"/{drop_in}: LimitMEMLOCK=64M",
        EXPECTED_MEMLOCK,
        f"take LimitMEMLOCK out of /{drop_in}, then systemctl daemon-reload",
    )
    spark.put("run/systemd/system/sparkd-rank@.service.d/z.conf", "[Service]\nLimitMEMLOCK=infinity\n")
    assert spark.check("memlock-low").verdict == "pass"


def test_a_unit_that_sets_no_limit(spark: Spark) -> None:
    spark.put("etc/systemd/system/sparkd-rank@.service", "[Service]\nExecStart=/usr/lib/sparkd/rank\n")
    found = only(spark.check("memlock-low"))
    assert found.observed == "/etc/systemd/system/sparkd-rank@.service: no LimitMEMLOCK"
    assert found.fix.startswith("set LimitMEMLOCK=infinity in /etc/systemd/system/sparkd-rank@.service, then")


def test_nothing_tells_the_limit(spark: Spark) -> None:
    spark.remove("usr/lib/systemd/system/sparkd-rank@.service")
    result = spark.check("memlock-low")
    assert (result.verdict, result.why) == ("not-applicable", "no rank runs and sparkd-rank@.service is not installed")


def test_settings_of_nccl_that_were_left_behind(spark: Spark) -> None:
    spark.put("etc/nccl.conf", "# tuned\nNCCL_DEBUG=WARN\nNCCL_IB_USE_INLINE=1\n")
    spark.put("var/cache/sparkd-rank/.nccl.conf", "NCCL_IB_PREPOST_RECEIVE_WORK_REQUESTS = 1\nNCCL_IB_USE_INLINE=0\n")
    assert spark.check("nccl-conf-residue").findings == tuple(
        finding(
            "nccl-conf-residue",
            "warn",
            f"{path}:{line}",
            f"{key}=1",
            f"{key} unset or 0: it freezes small all-reduces",
            f"take line {line} out of {path}; sparkd's ranks override it with 0, other programs do not",
        )
        for path, line, key in (
            ("/etc/nccl.conf", 3, "NCCL_IB_USE_INLINE"),
            ("/var/cache/sparkd-rank/.nccl.conf", 1, "NCCL_IB_PREPOST_RECEIVE_WORK_REQUESTS"),
        )
    )


def test_an_nccl_conf_that_is_switched_off_or_commented_out(spark: Spark) -> None:
    spark.put("etc/nccl.conf", "#NCCL_IB_USE_INLINE=1\n # NCCL_IB_USE_INLINE=1\nNCCL_IB_USE_INLINE=0\nNCCL_ALGO\n")
    assert spark.check("nccl-conf-residue").verdict == "pass"


def test_an_nccl_conf_that_cannot_be_read(spark: Spark) -> None:
    spark.put("etc/passwd", "sparkd-rank:x:990:990::/srv/rank:/bin/false\n")
    spark.seal("srv/rank/.nccl.conf")
    result = spark.check("nccl-conf-residue")
    assert (result.verdict, result.why) == ("unknown", "/srv/rank/.nccl.conf cannot be read")
    spark.put("etc/nccl.conf", "NCCL_IB_USE_INLINE=1\n")
    assert spark.check("nccl-conf-residue").verdict == "fail"
