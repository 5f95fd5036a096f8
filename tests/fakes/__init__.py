"""Stand-ins for everything outside the process. They hold state and refuse what the kernel or systemd would refuse;
tests/contract runs the same tests on them and on the real thing."""

from tests.fakes.hello import FakeHellos, FakeRoom
from tests.fakes.host import FakeClock, FakeHost, FakeNotifier, FakeRankFiles, FakeRoce
from tests.fakes.links import FakeLinks
from tests.fakes.peers import FakeMesh, FakePeers
from tests.fakes.rails import FakeRails
from tests.fakes.store import FakeDisk, FakeStore
from tests.fakes.units import FakeUnits

__all__ = [
    "FakeClock",
    "FakeDisk",
    "FakeHellos",
    "FakeHost",
    "FakeLinks",
    "FakeMesh",
    "FakeNotifier",
    "FakePeers",
    "FakeRails",
    "FakeRankFiles",
    "FakeRoce",
    "FakeRoom",
    "FakeStore",
    "FakeUnits",
]
