"""What holds for all tests."""

import os

from hypothesis import HealthCheck, settings

# Machines that run these tests are small and shared: how long an example takes says nothing about the code. On CI the
# examples are the same in each run, so that a red run means that the change is at fault.
settings.register_profile(
    "sparkd",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=os.environ.get("CI") == "true",
)
settings.load_profile("sparkd")
