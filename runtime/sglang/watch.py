"""What is looked at while the engine runs: its deadlines, its processes, its answers, and whether it is as asked."""

import os
import re
import select
import time
from collections.abc import Mapping
from pathlib import Path

from runtime.environment import RankEnvironment
from runtime.exits import ExitCode, RankFailure
from runtime.log import log
from runtime.notify import Progress, Stage
from runtime.sglang.asking import Asking
from runtime.sglang.command import ask_address
from runtime.sglang.config import EngineConfig
from runtime.sglang.deadlines import Deadlines, Work
from runtime.sglang.effective import Effective
from runtime.sglang.follow import Follower
from runtime.sglang.health import Ask, Opening, Vitals, served_model
from runtime.sglang.plugin.sparkd_drain import NAME as DRAIN_PLUGIN
from runtime.sglang.plugins import Plugins
from runtime.sglang.ports import joined, listening, reaching
from runtime.sglang.processes import Process, again, bytes_read, descendants, titled
from runtime.sglang.record import keep
from runtime.sglang.shared import Shared
from runtime.sglang.smoking import Outcome, Smoke
from runtime.sglang.stages import Landmark
from runtime.sglang.standing import StandingStill
from runtime.sglang.transport import TransportProof

LOOK_SECONDS = 1.0
# Once ready, the processes that are known are looked at each time, and for new ones only so often.
SEARCH_SECONDS_READY = 5.0
UNANSWERED_SECONDS = 45.0
SMOKE_SECONDS = 60.0
QUIET_SECONDS = 2.0
# The ring stops as soon as nothing runs.
DRAIN_SECONDS = 0.1


class Watch:
    """``look`` is called between events and raises what ends the rank; ``pause`` says how long it may wait for them."""

    def __init__(
        self,
        environment: RankEnvironment,
        config: EngineConfig,
        wanted: Mapping[str, str],
        shared: Shared,
        results: Path | None,
        progress: Progress,
        follower: Follower,
        deadlines: Deadlines,
        proof: TransportProof,
        poll: select.poll,
    ) -> None:
        self._environment = environment
        self._config = config
        self._progress = progress
        self._follower = follower
        self._deadlines = deadlines
        self._proof = proof
        self._poll = poll
        self._endpoint = ask_address(environment)
        self._asking = Asking(self._endpoint, config, poll)
        self._opening = Opening(config.launch)
        self._vitals: Vitals | None = None
        self._effective = Effective(wanted)
        self._board = shared.board
        self._plugins = Plugins(config.launch.plugins, shared.proof)
        self._results = results
        self._main = 0
        self._told = ""
        self._standing = StandingStill()
        self._smoke: Smoke | None = None
        self._smoke_pid = 0
        self._smoked = ""
        self._idle = ""
        self._look_at = self._search_at = 0.0
        self._joined: frozenset[str] = frozenset()
        self._unanswered_since: float | None = None
        self._processes: list[Process] = []
        self.ready = False

    def close(self) -> None:
        self._asking.close()
        if self._smoke is not None:
            self._poll.unregister(self._smoke.output)
            self._smoke.close()
            self._smoke = None

    def pause(self, now: float) -> float:
        """Seconds until the next look has something to do."""
        return max(0.0, min(self._look_at - now, DRAIN_SECONDS if self._draining else LOOK_SECONDS))

    def drain(self, drain: bool) -> None:
        """Take no new requests, and tell how many run; or serve again. Of a rank that does not serve yet: nothing."""
        if self._board is not None and self._vitals is not None:
            self._board.shut = self._vitals.draining = drain

    @property
    def _draining(self) -> bool:
        return self._vitals is not None and self._vitals.draining

    def look(self, main: int, now: float) -> None:
        """:raises RankFailure: with what ends the rank."""
        if now >= self._look_at:
            self._look(main, now)
        if self._environment.rank == 0:
            self._ask(main, now)

    def _look(self, main: int, now: float) -> None:
        limits = self._config.launch
        self._look_at = now + min(LOOK_SECONDS, limits.hung_seconds / 10, limits.stall_seconds / 10)
        if now >= self._search_at:
            self._search_at = now + SEARCH_SECONDS_READY if self.ready else now
            self._search()
            self._effective.check(main, self._processes)
            if not self.ready and self._follower.stages.reached(Stage.FORMED):
                self._plugins.check(main, self._processes)
        else:
            self._processes = again(self._processes)
        self._standing.sample(self._processes, self.ready, now)
        if (standing := self._standing.longest(now, limits.hung_seconds)) is not None:
            raise RankFailure(ExitCode.HUNG, f"{self._stage()}: {standing.sentence(now)}")
        self._proof.check_early()
        if self.ready:
            if self._environment.rank != 0:
                self._tell(now)
            return
        work = Work(
            sum(bytes_read(process.pid) for process in self._processes),
            sum(process.cpu_seconds for process in self._processes),
        )
        self._deadlines.worked(work, now)
        if self._follower.stages.now.stage is Stage.RENDEZVOUS:
            self._meet(now)
        if (expired := self._deadlines.expired(now)) is not None:
            raise expired
        if self._environment.rank != 0 and self._works():
            self._become_ready(main, now)

    def _search(self) -> None:
        found = (process for process in descendants(os.getpid()) if process.pid != self._smoke_pid)
        self._processes = titled(found, self._processes)

    def _stage(self) -> Stage:
        return Stage.READY if self.ready else self._follower.stages.now.stage

    def _works(self) -> bool:
        """A rank above 0: the engine says that it waits for work.

        Its server starts only once its schedulers have reported that they are ready. Where the log is not understood,
        that somebody listens there, on a port that was free before, says the same. What it answers says nothing.
        """
        return Landmark.WAITING in self._follower.stages.landmarks or listening(self._endpoint)

    def _meet(self, now: float) -> None:
        """While the group forms: who has come, and whether rank 0 can be reached at all."""
        environment = self._environment
        if environment.rank == 0:
            if (found := joined(environment.rendezvous)) - self._joined:
                self._joined |= found
                self._deadlines.said(now)
                count = min(len(self._joined) + 1, environment.world_size)
                self._progress.report(
                    Stage.RENDEZVOUS, f"connected: {', '.join(sorted(self._joined))}", (count, environment.world_size)
                )
            return
        if reaching(environment.rendezvous) != "unanswered":
            self._unanswered_since = None
            return
        if self._unanswered_since is None:
            self._unanswered_since = now
        if (silent := now - self._unanswered_since) >= min(
            UNANSWERED_SECONDS, self._config.launch.init_stuck_seconds / 2
        ):
            raise RankFailure(
                ExitCode.RENDEZVOUS_FAILED,
                f"rendezvous: {environment.name(0)} does not answer at {environment.rendezvous} for {silent:.0f} s: "
                "look for a firewall between the management addresses, which has to allow peers by address",
            )

    def _ask(self, main: int, now: float) -> None:
        """Rank 0: what the engine answers, and what it is asked next."""
        for ask, answer in self._asking.step(now):
            if self._vitals is not None:
                self._vitals.answered(ask, answer, now)
            else:
                self._opening.answered(ask, answer, now)
        if self._vitals is not None:
            if self._vitals.alive_at == now:
                self._follower.errors.forget()
            if (hung := self._vitals.hung(now)) is not None:
                raise hung
            while (due := self._vitals.due(now)) is not None:
                seconds = self._config.launch.canary_timeout_seconds
                self._asking.ask(due, seconds, now)
                self._follower.quiet_until = now + min(seconds, QUIET_SECONDS)
            self._tell(now)
            return
        self._open(main, now)

    def _open(self, main: int, now: float) -> None:
        if (expired := self._opening.expired(now)) is not None:
            raise expired
        if not self._opening.done:
            serving = Landmark.SERVING in self._follower.stages.landmarks
            ask = self._opening.due(serving, now)
            if ask is not None:
                # /health_generate answers after 20 s at the latest, the first completion may compile kernels.
                limits = self._config.launch
                self._asking.ask(ask, limits.hung_seconds if ask is not Ask.HEALTH else 30.0, now)
            return
        if self._config.launch.smoke and not self._smoked:
            self._smoking(now)
            return
        self._become_ready(main, now)

    def _smoking(self, now: float) -> None:
        limits = self._config.launch
        if self._smoke is None:
            # What is not on the fabric that was asked for is not worth the tests.
            self._proof.check()
            url = f"http://{self._endpoint}"
            self._progress.report(Stage.WARMUP, f"smoke tests {', '.join(limits.smoke)}")
            model = served_model(self._config)
            self._smoke = Smoke(url, limits.smoke, model, max(SMOKE_SECONDS, limits.hung_seconds))
            self._smoke_pid = self._smoke.pid
            self._poll.register(self._smoke.output, select.POLLIN)
            return
        for line in self._smoke.read():
            self._deadlines.said(now)
            log.info("%s", line)
            self._progress.report(Stage.WARMUP, *_counted(line))
        outcome = self._smoke.outcome
        if outcome is None:
            return
        self._poll.unregister(self._smoke.output)
        self._smoke.close()
        self._smoke = None
        self._keep(outcome)
        if not outcome.ok and limits.smoke_required:
            raise RankFailure(ExitCode.SMOKE_FAILED, f"warmup: {outcome.sentence}")
        (log.info if outcome.ok else log.warning)("smoke: %s", outcome.sentence)
        self._smoked = outcome.sentence if outcome.ok else f"smoke failed: {outcome.sentence}"

    def _keep(self, outcome: Outcome) -> None:
        config = self._config
        told = {
            "at": time.time(),
            "profile": config.profile,
            "model": served_model(config),
            "required": config.launch.smoke_required,
        }
        try:
            if self._results is not None:
                keep(self._results, self._environment.epoch, outcome, told)
        except OSError as error:
            log.warning("the results of the smoke tests are not kept: %s", error)

    def _become_ready(self, main: int, now: float) -> None:
        self._main = main
        self._search()
        self._idle = self._proof.check()
        self._plugins.check(main, self._processes)
        if plugins := self._plugins.describe():
            log.info("plug-ins in every process that needs them: %s", plugins)
        for process in self._effective.unchecked(main, self._processes):
            log.warning("the environment of %s could not be read, so it was not checked", process)
        if self._idle:
            log.warning("%s since the start", self._idle)
        self.ready = True
        self._follower.errors.forget()
        if self._environment.rank == 0:
            self._vitals = Vitals(self._config.launch, "--enable-metrics" in self._config.arguments, now)
        log.info("ready")
        self._tell(now)

    def _tell(self, now: float) -> None:
        work = self._vitals.text(now) if self._vitals is not None else "waits for work"
        transport = self._follower.connections.text(self._config.launch.transport)
        failed = self._smoked if self._smoked.startswith("smoke failed") else ""
        # What changes by itself is told now and then, and what somebody waits for at once.
        drained = self._drained() if self._draining else ""
        told = f"{drained} {self._vitals is not None and self._vitals.silent}"
        changed, self._told = told != self._told, told
        parts = (drained, work, transport, self._idle, self._plugins.text(), failed)
        self._progress.ready(", ".join(part for part in parts if part), changed)

    def _drained(self) -> str:
        """As sparkd reads it."""
        assert self._board is not None
        assert self._vitals is not None
        if self._plugins.has(DRAIN_PLUGIN, self._main):
            return f"draining {self._board.running}"
        known = self._vitals.requests
        return "draining" if known is None else f"draining {known} and taking new requests"


def _counted(line: str) -> tuple[str, tuple[int, int] | None]:
    """Text and count of what the smoke tests report: ``smoke 2/9 arithmetic``."""
    match = re.fullmatch(r"smoke (\d+)/(\d+) (.*)", line)
    return (line, None) if match is None else (f"smoke {match[3]}", (int(match[1]), int(match[2])))
