"""Seeded random worlds: a random configuration, workload and faults; then heal, and require progress.

    python -m headway.sim.worlds --seeds 200 --seed 1
    python -m headway.sim.worlds --seed 123          # replay one

A world is a function of its seed alone, so is the digest of everything that the core did in it.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random

from headway.core.effects import Effect
from headway.core.events import DrainStarted, Event, MemoryPressureChanged, ServerConfigured, VersionConfigured
from headway.core.ids import VersionId
from headway.core.outcomes import Outcome
from headway.core.scheduler import Scheduler
from headway.core.units import NEVER, SECOND, Instant
from headway.sim import many_worlds
from headway.sim.chaos import Chaos
from headway.sim.clients import Clients
from headway.sim.driver import Driver
from headway.sim.faults import NO_FAULTS
from headway.sim.fleet import Fleet
from headway.sim.oracles import Oracle, OracleViolation
from headway.sim.plans import WorldPlan, plan_world
from headway.sim.stalls import NO_STALLS
from headway.sim.workloads import Arrival

PROBES = 4
"""Requests sent to each version after healing, with all the time in the world: they must complete."""

MINUTE = 60 * SECOND
LONGEST_OPEN = 5 * MINUTE
"""That a version is refused whose workers died."""


@dataclass(slots=True)
class Digest:
    """An observer: a fingerprint of everything the core did and when."""

    hash: hashlib._Hash = field(default_factory=hashlib.sha256)

    def observe(self, now: Instant, events: list[Event], effects: list[Effect], scheduler: Scheduler) -> None:
        if effects:
            self.hash.update(f"{now}{effects}".encode())


@dataclass(slots=True)
class Restorer:
    """An observer that now and then replaces the core by one restored from its snapshot."""

    every: int
    driver: Driver | None = None

    def observe(self, now: Instant, events: list[Event], effects: list[Effect], scheduler: Scheduler) -> None:
        if self.driver is not None and self.every and self.driver.calls % self.every == 0:
            self.driver.scheduler = type(scheduler).restore(json.loads(json.dumps(scheduler.snapshot())))


@dataclass(frozen=True, slots=True)
class WorldResult:
    seed: int
    digest: str
    calls: int
    requests: int
    outcomes: dict[Outcome, int]

    @property
    def played(self) -> many_worlds.Played:
        counts = Counter({outcome.value: count for outcome, count in self.outcomes.items()})
        return many_worlds.Played(counts + Counter(requests=counts.total()), self.digest)


class WorldFailed(AssertionError):
    """An oracle was breached, or the core raised. Says how to see it again."""


def run_world(seed: int, new_scheduler: Callable[[], Scheduler] = Scheduler, restore_every: int = 0) -> WorldResult:
    """Raises WorldFailed. restore_every: calls between two replacements of the core by its own restored snapshot."""
    try:
        return World(plan_world(seed), new_scheduler, restore_every).run()
    except Exception as error:
        raise WorldFailed(f"world {seed}: {type(error).__name__}: {error}\nreplay: {replay_line(seed)}") from error


def replay_line(seed: int) -> str:
    hash_seed = os.environ.get("PYTHONHASHSEED", "random")
    return f"PYTHONHASHSEED={hash_seed} python -m headway.sim.worlds --seed {seed}   (or: make sim SEED={seed})"


class World:
    """One plan, played."""

    def __init__(self, plan: WorldPlan, new_scheduler: Callable[[], Scheduler], restore_every: int) -> None:
        self.plan = plan
        self.oracle = Oracle()
        self.digest = Digest()
        restorer = Restorer(restore_every)
        self.driver = Driver(new_scheduler(), (self.oracle, self.digest, restorer))
        self.driver.stalls = plan.faults.stalls
        restorer.driver = self.driver
        self.fleet = Fleet(self.driver, plan.models, Random(f"{plan.seed} fleet"), plan.faults)
        self.clients = Clients(self.driver, Random(f"{plan.seed} clients"), plan.grid)
        self.chaos = Chaos(self.driver, self.fleet, Random(f"{plan.seed} chaos"), plan)

    def run(self) -> WorldResult:
        self._configure()
        self._play()
        self._heal()
        self._probe()
        self._drain()
        self.oracle.finish(self.driver.scheduler)
        if len(self.driver.requests):
            raise OracleViolation(f"the clients still wait for {list(self.driver.requests)}")
        return WorldResult(
            self.plan.seed,
            self.digest.hash.hexdigest(),
            self.driver.calls,
            self.clients.sent,
            dict(self.oracle.outcomes),
        )

    def _configure(self) -> None:
        self.driver.tell(ServerConfigured(self.plan.server))
        for version, policy in self.plan.policies.items():
            self.driver.tell(VersionConfigured(version, policy))
        self.fleet.start()

    def _play(self) -> None:
        if self.plan.closed_loop_clients:
            self.clients.closed_loop(self.plan.arrivals, self.plan.closed_loop_clients, self.plan.grid)
        else:
            self.clients.open_loop(self.plan.arrivals)
        self.chaos.start()
        self.driver.run(until=self.plan.heal_at)

    def _heal(self) -> None:
        """No more faults. Versions that were drained, and a server that goes down, stay so."""
        self.chaos.stop()
        self.fleet.faults = NO_FAULTS
        self.driver.stalls = NO_STALLS
        self.driver.tell(MemoryPressureChanged(False))
        self.driver.run()

    def _probe(self) -> None:
        """What the faults left behind must not keep a healthy server from serving."""
        self.driver.now += LONGEST_OPEN
        for each in (1, PROBES):  # one alone first: it closes a circuit that was open
            completed = self._completed
            self._let_a_minute_begin()
            sent = self._send_probes(each)
            self.driver.run()
            self._all_completed(sent, completed, "to a healed server")

    def _drain(self) -> None:
        """What was let in before the server goes down is still answered, and at once."""
        completed = self._completed
        self._let_a_minute_begin()
        sent = self._send_probes(PROBES)
        self.driver.run(until=self.driver.now)
        self.driver.tell(DrainStarted())
        self.driver.run()
        self._all_completed(sent, completed, "let in before the drain")

    def _let_a_minute_begin(self) -> None:
        """So that what follows does not begin at the last timer, which may have been for nothing."""
        self.driver.now = (self.driver.now // MINUTE + 1) * MINUTE

    @property
    def _completed(self) -> int:
        return self.oracle.outcomes.get(Outcome.COMPLETED, 0)

    def _all_completed(self, sent: int, before: int, whose: str) -> None:
        completed = self._completed - before
        if completed != sent:
            self.oracle.fail(f"of {sent} requests {whose} only {completed} completed")

    def _send_probes(self, each: int) -> int:
        """To every version that is in service, which are to let all in, late for the SLO or not. Returns how many."""
        serving = [version for version in self.plan.policies if not self.chaos.is_draining(version)]
        for version in serving:
            self.driver.tell(VersionConfigured(version, replace(self.plan.policies[version], shed=False)))
            for _ in range(each):
                self.clients.send(self._probe_arrival(version))
        return each * len(serving)

    def _probe_arrival(self, version: VersionId) -> Arrival:
        key = next(key for key in self.plan.keys if key.version_id == version)
        return Arrival(self.driver.now, key, self.plan.probe_parts, patience=NEVER)


def main(arguments: list[str] | None = None) -> int:
    parser = many_worlds.options("headway.sim.worlds", __doc__)
    parser.add_argument(
        "--restore-every", type=int, default=0, help="calls between restores from a snapshot (0: never)"
    )
    chosen = parser.parse_args(arguments)
    return many_worlds.play(
        chosen, lambda seed: run_world(seed, restore_every=chosen.restore_every).played, WorldFailed
    )


if __name__ == "__main__":
    sys.exit(main())
