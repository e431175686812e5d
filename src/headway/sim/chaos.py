"""What happens to a server from outside: workers die or are drained, rules change, memory runs short."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from headway.core.events import (
    CapacityChanged,
    DrainStarted,
    MemoryPressureChanged,
    ServerConfigured,
    VersionConfigured,
    VersionDrained,
)
from headway.core.ids import VersionId
from headway.core.losses import Loss
from headway.core.policy import Style
from headway.core.units import Duration
from headway.sim.driver import Driver
from headway.sim.engines import SimEngine
from headway.sim.fleet import Fleet
from headway.sim.plans import WorldPlan, random_policy


class Disturbances:
    """Workers die and are drained at random, until `over()`."""

    def __init__(self, driver: Driver, fleet: Fleet, rng: Random, over: Callable[[], bool]) -> None:
        self._driver = driver
        self._fleet = fleet
        self._rng = rng
        self._over = over

    def start(self) -> None:
        self._keep_doing(self._lose_one, self._fleet.faults.time_to_loss)
        self._keep_doing(self._drain_one, self._fleet.faults.time_to_drain)
        self._keep_doing(self._lose_a_device, self._fleet.faults.time_to_device_loss)

    def _keep_doing(self, action: Callable[[], None], mean: Duration) -> None:
        """At exponential intervals on the grid; a mean of 0 is never."""
        if not mean:
            return

        def happen() -> None:
            if not self._over():
                action()
                self._keep_doing(action, mean)

        grid = self._fleet.faults.grid
        gap = 1 + round(self._rng.expovariate(1 / mean) / grid)
        self._driver.at(self._driver.now + gap * grid, happen)

    def _lose_one(self) -> None:
        workers = self._fleet.living()
        if workers:
            from_outside = self._rng.random() < self._fleet.faults.blameless
            self._fleet.lose(self._rng.choice(workers), "killed", Loss.KILLED if from_outside else Loss.CRASHED)

    def _drain_one(self) -> None:
        workers = self._fleet.living()
        if workers:
            self._fleet.drain(self._rng.choice(workers))

    def _lose_a_device(self) -> None:
        """All that runs the version, and what shares its device with it."""
        workers = self._fleet.living()
        if workers:
            self._fleet.lose_device(self._rng.choice(workers).version)


class Chaos(Disturbances):
    """What an operator and the host do, on top; until `stop`."""

    def __init__(self, driver: Driver, fleet: Fleet, rng: Random, plan: WorldPlan) -> None:
        super().__init__(driver, fleet, rng, over=lambda: self._stopped)
        self._plan = plan
        self._stopped = False
        self._memory_high = False
        self._server_drains = False
        self._drained: dict[VersionId, None] = {}

    def start(self) -> None:
        super().start()
        self._keep_doing(self._administer, self._plan.admin_every)

    def stop(self) -> None:
        self._stopped = True

    def is_draining(self, version: VersionId) -> bool:
        return self._server_drains or version in self._drained

    def _administer(self) -> None:
        actions = [self._toggle_memory] * 6 + [self._reconfigure] * 4 + [self._change_capacity] * 2
        self._rng.choice([*actions, self._reconfigure_server, self._drain_version, self._drain_server])()

    def _toggle_memory(self) -> None:
        self._memory_high = not self._memory_high
        self._driver.tell(MemoryPressureChanged(self._memory_high))
        if self._memory_high:  # it flushes what waits, and then has nothing left to do but refuse
            self._driver.at(self._driver.now + 2 * self._plan.grid, self._relax)

    def _relax(self) -> None:
        if self._memory_high:
            self._toggle_memory()

    def _reconfigure(self) -> None:
        """New rules for a version; one that was drained is in service again."""
        version = self._rng.choice(list(self._plan.policies))
        self._drained.pop(version, None)
        policy = random_policy(self._rng, self._plan.grid, self._plan.policies[version])
        self._driver.tell(VersionConfigured(version, policy))

    def _reconfigure_server(self) -> None:
        self._driver.tell(ServerConfigured(replace(self._plan.server, patience=(self._plan.grid, 0))))

    def _change_capacity(self) -> None:
        """An engine reports more or less room."""
        engines = [
            worker
            for worker in self._fleet.living()
            if worker.up and self._plan.policies[worker.version].style is Style.SEQUENCE
        ]
        if engines:
            worker = self._rng.choice(engines)
            model = self._plan.models[worker.version]
            if isinstance(worker.holder, SimEngine) and model.engine is not None:
                worker.holder.resize(self._rng.randint(model.engine.blocks // 4, model.engine.blocks))
                return
            changed = model.capacity._replace(sequences=self._rng.randint(1, 2 * model.capacity.sequences))
            self._driver.tell(CapacityChanged(worker.worker, changed))

    def _drain_version(self) -> None:
        version = self._rng.choice(list(self._plan.policies))
        self._drained[version] = None
        self._driver.tell(VersionDrained(version))

    def _drain_server(self) -> None:
        if self._rng.random() < 0.2:
            self._server_drains = True
            self._driver.tell(DrainStarted())
