"""Others who own the fabric ports: netplan, NetworkManager, systemd-networkd."""

from __future__ import annotations

from sparkd.core.checks.outcome import Outcome, Seen, judged, unknown
from sparkd.core.hardware import OwnerFacts, Profile
from sparkd.core.model import Finding


def dhcp_on_fabric(node: str, profile: Profile) -> Finding:
    return Finding(
        "dhcp-on-fabric",
        node,
        "warn",
        profile.device,
        f"{described(profile)} asks for an address by DHCP",
        "no DHCP on a fabric port: nobody answers there, and each retry flushes addresses and routes",
        removal(profile),
    )


def profile_on_fabric(node: str, profile: Profile) -> Finding:
    sets = f" and sets {', '.join(profile.addresses)}" if profile.addresses else ""
    return Finding(
        "profile-on-fabric",
        node,
        "warn",
        profile.device,
        f"{described(profile)} owns the port{sets}",
        "fabric ports that nothing but sparkd configures",
        f'{removal(profile)}; or go by it: address_plan = "adopt" in sparkd.toml',
    )


def described(profile: Profile) -> str:
    """The writer with its file, e.g. "netplan's /etc/netplan/50-fabric.yaml (modified 2026-07-01 12:03 UTC)"."""
    when = f" (modified {profile.modified})" if profile.modified else ""
    return f"{profile.owner}'s {profile.path}{when}"


def removal(profile: Profile) -> str:
    if profile.path.startswith("/run/") and "netplan-" in profile.path:
        return f"take {profile.device} out of the file in /etc/netplan from which it was made, then netplan apply"
    if profile.owner == "netplan":
        return f"take {profile.device} out of {profile.path}, then netplan apply"
    if profile.owner == "NetworkManager":
        return f"remove {profile.path} or its interface-name {profile.device}, then nmcli connection reload"
    return f"take {profile.device} out of {profile.path}, then networkctl reload"


def writer(owners: OwnerFacts | None, device: str, address: str) -> str:
    """Who is likely to have put `address` (with or without prefix length) on `device`; "" when no file tells.

    A file that names the address comes first, then one with DHCP, then any other that owns the port.
    """
    profiles = [profile for profile in owners.profiles if profile.device == device] if owners is not None else []
    bare = address.partition("/")[0]
    exact = [p for p in profiles if bare in {own.partition("/")[0] for own in p.addresses}]
    likely = exact or [p for p in profiles if p.dhcp] or [p for p in profiles if p.dhcp is None]
    return described(likely[0]) if likely else ""


def check_dhcp(seen: Seen) -> Outcome:
    owners = seen.hardware.owners
    if owners is None:
        return unknown(seen.hardware.why("owners"))
    findings = [dhcp_on_fabric(seen.node, profile) for profile in owners.profiles if profile.dhcp]
    return judged(findings, _fine(owners, "no profile with DHCP on a fabric port"), _doubts(owners))


def check_profiles(seen: Seen) -> Outcome:
    owners = seen.hardware.owners
    if owners is None:
        return unknown(seen.hardware.why("owners"))
    static = [profile for profile in owners.profiles if profile.dhcp is False]
    if seen.adopt:
        return judged([], f"{len(static)} profiles on fabric ports, adopted", _doubts(owners))
    findings = [profile_on_fabric(seen.node, profile) for profile in static]
    return judged(findings, _fine(owners, "no profile on a fabric port"), _doubts(owners))


def _sealed(owners: OwnerFacts) -> list[str]:
    return [profile.path for profile in owners.profiles if profile.dhcp is None] + list(owners.unreadable)


def _left_alone(owners: OwnerFacts) -> bool:
    """Whoever would act on the files runs, and says that it manages no fabric port."""
    return bool(owners.managers) and not any(manager.devices for manager in owners.managers)


def _doubts(owners: OwnerFacts) -> list[str]:
    sealed = _sealed(owners)
    if not sealed or _left_alone(owners):
        return []
    managed = [f"{', '.join(m.devices)} managed by {m.name}" for m in owners.managers if m.devices]
    return [f"{', '.join(sealed)} cannot be read by this user", *managed]


def _fine(owners: OwnerFacts, words: str) -> str:
    if not _sealed(owners):
        return words
    names = " and ".join(manager.name for manager in owners.managers)
    return f"{words} that can be read; {names} leave the fabric ports alone"
