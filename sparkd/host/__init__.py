"""One file per door to the machine: netlink, sysfs, procfs, systemd, the state directory, the clock, notifications."""
