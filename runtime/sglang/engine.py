"""The story of one rank of SGLang: started as a child, followed until it serves, watched until it or the rank ends.

One thread and one poll set do everything: the launcher stays for as long as the model is served, and its memory is
memory that the model does not have.
"""

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from runtime.environment import RankEnvironment
from runtime.exits import ExitCode, RankFailure
from runtime.log import PRIORITIES, divert, goes_to_journal, log
from runtime.notify import Progress, Stage
from runtime.sglang import stacks
from runtime.sglang.child import Child, kill_all
from runtime.sglang.command import asked, bind_address, command, engine_environ
from runtime.sglang.config import EngineConfig, read_engine_config
from runtime.sglang.deadlines import Deadlines
from runtime.sglang.follow import Follower
from runtime.sglang.memory import oom_kills
from runtime.sglang.ports import demand_free
from runtime.sglang.processes import Process, alive, descendants, is_worker
from runtime.sglang.record import directory
from runtime.sglang.relay import Relay
from runtime.sglang.shared import Shared
from runtime.sglang.stages import Step
from runtime.sglang.transport import SYSFS, Connections, TransportProof, devices
from runtime.sglang.verdict import End, verdict
from runtime.sglang.watch import Watch

# Within the unit's TimeoutStopSec=10, after which systemd would kill the launcher and whatever it has not ended.
STOP_SECONDS = 8.0
LINGER_SECONDS = 0.5
REPORT_SECONDS = 1.0
# For the stacks that the processes print themselves.
STACKS_SECONDS = 2.0
_STUCK = frozenset({ExitCode.INIT_STUCK, ExitCode.LOAD_STALLED, ExitCode.HUNG})


def run_sglang(
    environment: RankEnvironment,
    progress: Progress,
    environ: Mapping[str, str] = os.environ,
    sysfs: Path = SYSFS,
    stop_seconds: float = STOP_SECONDS,
) -> ExitCode:
    """Run a rank of SGLang until it is told to stop; it then has ``stop_seconds`` to end in order.

    :raises BadEnvironment: its configuration cannot be used.
    :raises RankFailure: the engine did not come up, is not what was asked for, ended, or stands still.
    """
    config = read_engine_config(environ)
    shared = Shared(environment.rank)
    wanted = shared.environment(asked(environ, config))
    relay = Relay()
    # Whoever reads standard error may be slow; the engine writes to a pipe that only this process empties.
    before = divert(relay)  # type: ignore[arg-type]
    try:
        return Rank(environment, progress, config, environ, wanted, shared, relay, sysfs, stop_seconds).run()
    finally:
        relay.finish()
        divert(before or sys.stderr)
        shared.close()


class Rank:
    """One start of the engine."""

    def __init__(
        self,
        environment: RankEnvironment,
        progress: Progress,
        config: EngineConfig,
        environ: Mapping[str, str],
        wanted: Mapping[str, str],
        shared: Shared,
        relay: Relay,
        sysfs: Path,
        stop_seconds: float,
    ) -> None:
        now = time.monotonic()
        self._environment = environment
        self._progress = progress
        self._config = config
        self._environ = engine_environ(environ, wanted)
        self._relay = relay
        self._journal = goes_to_journal(environ)
        self._stop = False
        self._stop_seconds = stop_seconds
        self._reported_at = 0.0
        self._oom_kills = oom_kills()
        self._poll = select.poll()
        connections = Connections(environment.rank, environment.world_size)
        self._deadlines = Deadlines(config.launch, now)
        self._follower = Follower(connections, self._deadlines, self._pass_on, self._entered)
        hcas = devices(wanted)
        proof = TransportProof(environment, config.launch.transport, hcas, connections, sysfs)
        self._watch = Watch(
            environment,
            config,
            wanted,
            shared,
            directory(environ),
            progress,
            self._follower,
            self._deadlines,
            proof,
            self._poll,
        )

    def run(self) -> ExitCode:
        """See :func:`run_sglang`."""
        environment = self._environment
        self._progress.report(Stage.INIT, "starting the engine")
        demand_free(bind_address(environment), "SPARKD_API")
        if environment.rank == 0:
            demand_free(environment.rendezvous, "SPARKD_RENDEZVOUS")
        argv = command(environment, self._config)
        log.info("profile %s, SGLang %s: %s", self._config.profile, self._config.version, _shown(argv))
        with self._signals() as wakeup:
            child = Child(argv, self._environ)
            self._poll.register(child.output, select.POLLIN)
            self._poll.register(wakeup, select.POLLIN)
            try:
                return self._live(child, wakeup)
            finally:
                self._watch.close()
                self._finish(child, wakeup)
                child.close()

    def _live(self, child: Child, wakeup: int) -> ExitCode:
        try:
            while self._goes_on(child):
                self._watch.look(child.pid, time.monotonic())
                self._turn(child, wakeup, self._watch.pause(time.monotonic()))
        except RankFailure as failure:
            log.error("%s", failure.sentence)
            if failure.code in _STUCK:
                self._evidence(child, wakeup)
            raise
        if self._stop:
            return self._end(child, wakeup)
        self._finish(child, wakeup)
        now = oom_kills()
        struck = now - self._oom_kills if now is not None and self._oom_kills is not None else 0
        stage = Stage.READY if self._watch.ready else self._follower.stages.now.stage
        raise verdict(End(child.status or 0, stage, self._follower.errors.found, struck))

    def _goes_on(self, child: Child) -> bool:
        # SGLang's main process takes seconds to leave after a scheduler has ended, and the group waits for it.
        return child.status is None and not self._stop and not self._follower.errors.fatal

    def _turn(self, child: Child, wakeup: int, seconds: float) -> None:
        """One wait for anything to happen, ``seconds`` at most, and what follows of it at once."""
        self._progress.alive()
        if self._relay.pending:
            self._poll.register(2, select.POLLOUT)
        events = self._poll.poll(max(0, int(seconds * 1000)))
        if self._relay.pending:
            self._poll.unregister(2)
            self._relay.flush()
        ready = {number for number, _ in events}
        if wakeup in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(wakeup, 4096)
            child.reap()
        if child.output in ready and not self._follower.read(child.output, time.monotonic()):
            # Every writer is gone; the end of the main process is told by SIGCHLD.
            self._poll.unregister(child.output)

    def _pass_on(self, level: int, line: str) -> None:
        # As the engine wrote it: a traceback is known by how its lines begin.
        priority = f"<{PRIORITIES[level]}>" if self._journal else ""
        self._relay.write(f"{priority}{line}\n")
        self._relay.flush()

    def _entered(self, step: Step, now: float) -> None:
        self._deadlines.entered(step.stage, now)
        moved = step.count is None or step.count[0] in (0, step.count[1])
        # Each status wakes systemd, the daemon and whoever watches.
        if self._watch.ready or not (moved or now - self._reported_at >= REPORT_SECONDS):
            return
        self._reported_at = now
        self._progress.report(step.stage, step.text, step.count)

    def _finish(self, child: Child, wakeup: int) -> None:
        """Nothing of the engine is left after this, and everything that it has said has been taken."""
        kill_all(child, lambda seconds: self._turn(child, wakeup, seconds), log.warning)
        self._follower.read(child.output, time.monotonic())
        self._follower.finish(time.monotonic())

    def _end(self, child: Child, wakeup: int) -> ExitCode:
        log.info("told to stop")
        self._progress.stopping()
        self._watch.close()
        child.terminate()
        end = time.monotonic() + self._stop_seconds
        lingering = False
        while (below := descendants(os.getpid())) and (left := end - time.monotonic()) > 0:
            # Once its schedulers are gone a main process has nothing to save, and may wait a minute for a zombie.
            if self._watch.ready and not lingering and not any(is_worker(process) for process in alive(below)):
                lingering = True
                end = min(end, time.monotonic() + LINGER_SECONDS)
            self._turn(child, wakeup, min(left, 0.1))
            child.reap()
        if lingering:
            return ExitCode.OK
        if left_over := descendants(os.getpid()):
            log.warning("killing what is left after %g s: %s", self._stop_seconds, _names(left_over))
        return ExitCode.OK

    def _evidence(self, child: Child, wakeup: int) -> None:
        processes = descendants(os.getpid())
        stacks.dump(processes, log.warning)
        if pyspy := stacks.find_pyspy(self._environ.get("PATH", "")):
            for process in processes:
                stacks.dump_python(pyspy, process.pid, log.warning)
                self._progress.alive()
        # Last the main process, whose end would take the others along before they have printed anything.
        others = {process.pid for process in processes} - {child.pid}
        stacks.ask_for_python_stacks(others)
        end = time.monotonic() + STACKS_SECONDS
        while (left := end - time.monotonic()) > 0 and others & {
            process.pid for process in alive(descendants(os.getpid()))
        }:
            self._turn(child, wakeup, min(left, 0.05))

    @contextlib.contextmanager
    def _signals(self) -> Iterator[int]:
        """A descriptor that becomes readable on SIGCHLD, SIGTERM, SIGINT, and SIGUSR1 and 2: to drain, and to serve."""
        reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        handlers: dict[signal.Signals, Callable[..., object]] = {
            signal.SIGCHLD: lambda *_: None,
            signal.SIGTERM: self._told,
            signal.SIGINT: self._told,
            signal.SIGUSR1: lambda *_: self._watch.drain(True),
            signal.SIGUSR2: lambda *_: self._watch.drain(False),
        }
        saved = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        try:
            yield reading
        finally:
            for number, handler in saved.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(before)
            os.close(reading)
            os.close(writing)

    def _told(self, *_: object) -> None:
        self._stop = True


def _shown(argv: tuple[str, ...]) -> str:
    """The command for the log, with the values of keys left out."""
    shown: list[str] = []
    secret = False
    for item in argv:
        name, sign, _ = item.partition("=")
        hidden = secret and not item.startswith("--")
        secret = name.startswith("--") and name.endswith(("-key", "-password", "-token"))
        shown.append("..." if hidden else f"{name}=..." if secret and sign else item)
    return " ".join(shown)


def _names(processes: list[Process]) -> str:
    return ", ".join(f"{process.title} (pid {process.pid})" for process in processes)
