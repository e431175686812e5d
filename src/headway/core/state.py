"""Everything the scheduler knows, and the one way in which a request ends."""

from __future__ import annotations

from headway.core.device import Device
from headway.core.effects import AbortSequence, Effect, ResolveRequest, WithdrawPart
from headway.core.errors import InvariantViolation
from headway.core.ids import RequestId, VersionId, WorkerId
from headway.core.limits import Limits
from headway.core.linger import Linger
from headway.core.outcomes import Outcome
from headway.core.policy import BatchPolicy, ServerPolicy, Style
from headway.core.pool import Pool
from headway.core.requests import DONE, GONE, RUNNING, WAITING, QueuedPart, Request
from headway.core.room import Room
from headway.core.tenancy import Tenancy
from headway.core.timers import Deadlines, QueueTimers
from headway.core.units import Duration, Instant
from headway.core.workers import Worker


class State:
    """requests: those without an outcome.  workers: those that are not stopped or lost.
    devices: by name; a version that shares none has one of its own, named after it.
    touched: devices for which something may be able to leave, since the last decision.
    groups: how many were made of what is tried again by itself.
    effects: of the call of `handle` that is under way.
    """

    __slots__ = (
        "bytes",
        "deadlines",
        "devices",
        "draining",
        "effects",
        "groups",
        "limits",
        "next_batch",
        "now",
        "policy",
        "pools",
        "pressure",
        "requests",
        "room",
        "seq",
        "tenancy",
        "timers",
        "touched",
        "workers",
    )

    def __init__(self) -> None:
        self.policy = ServerPolicy()
        self.tenancy = Tenancy()
        self.limits = Limits(self.tenancy)
        self.room = Room((self.policy.max_queued_bytes,), self.tenancy.weight)
        self.pools: dict[VersionId, Pool] = {}
        self.devices: dict[str, Device] = {}
        self.workers: dict[WorkerId, Worker] = {}
        self.requests: dict[RequestId, Request] = {}
        self.deadlines = Deadlines(self.requests)
        self.timers = QueueTimers()
        self.touched: dict[str, Device] = {}
        self.effects: list[Effect] = []
        self.now: Instant = 0
        self.bytes = 0
        self.draining = False
        self.pressure = False
        self.seq = 0
        self.groups = 0
        self.next_batch = 0

    def touch(self, pool: Pool) -> None:
        self.touched[pool.device.name] = pool.device

    def govern(self, policy: ServerPolicy) -> None:
        """These rules hold from now on."""
        self.policy = policy
        self.tenancy.govern(policy.tenants, policy.others)
        self.room.limits = (policy.max_queued_bytes,)
        for room in (self.room, *(pool.room for pool in self.pools.values())):
            room.reweigh()

    def meter(self, request: Request) -> None:
        """It counts on the limits that hold now: after they, or all of the state, have changed."""
        for meter in request.meters:
            meter.open -= 1
        request.meters = self.limits.covering(request.tenant, max(part.length for part in request.parts), self.now)
        for meter in request.meters:
            meter.open += 1

    def open_pool(self, version: VersionId, policy: BatchPolicy) -> Pool:
        name = policy.device or str(version)
        device = self.devices.get(name)
        if device is None:
            cores = dict(self.policy.devices).get(name, 0)
            device = self.devices[name] = Device(name, len(self.devices), cores, self.tenancy)
        pool = self.pools[version] = device.pools[version] = Pool(version, device, policy)
        pool.now = self.now
        pool.pressure, pool.draining = self.pressure, self.draining
        return pool

    def reconsider(self, pool: Pool) -> None:
        """Reasons to leave, and their times, may have changed for all that waits."""
        pool.reconsider()
        for queue in pool.keys.values():
            self.timers.arm(pool, queue, self.now)
        self.touch(pool)

    def pool_of(self, version: VersionId, event: str) -> Pool:
        pool = self.pools.get(version)
        if pool is None:
            raise InvariantViolation(f"{event} for version {version}, which was never configured")
        return pool

    def resolve(self, request: Request, outcome: Outcome, detail: str = "", retry_after: Duration = 0) -> None:
        """Its one outcome. What of it waits leaves; what of it runs is given up."""
        if self.requests.pop(request.id, None) is None:
            raise InvariantViolation(f"request {request.id} gets a second outcome: {outcome.value}")
        self.bytes -= request.bytes
        self.room.leave(request, (request.bytes,), whole=True)
        for meter in request.meters:
            meter.open -= 1
        self.effects.append(ResolveRequest(request.id, outcome, detail, retry_after))
        if request.unfinished:
            self._abandon(request)
        if request.foreseen:
            self._learn(request, outcome)
        if request.pool.linger is not None:
            self._measure(request, outcome, request.pool.linger)
        request.parts = []  # or request and parts would keep each other until a garbage collection

    def refuse_waiting(self, pool: Pool, outcome: Outcome, detail: str, retry_after: Duration) -> None:
        """Every request of which something waits there, in order of arrival."""
        for request in dict.fromkeys(part.request for part in pool.waiting_parts()):
            self.resolve(request, outcome, detail, retry_after)

    def _learn(self, request: Request, outcome: Outcome) -> None:
        """How its forecast turned out. One that ran out of time would have taken longer than that."""
        outlook, took = request.pool.outlook, self.now - request.arrived
        gave_up = outcome is Outcome.DEADLINE_EXCEEDED or outcome is Outcome.DEADLINE_UNMEETABLE
        if outcome is Outcome.COMPLETED or (gave_up and took > outlook.expect(request.foreseen)):
            outlook.learn(request.foreseen, took)

    def _measure(self, request: Request, outcome: Outcome, linger: Linger) -> None:
        """Who waited for longer than the SLO and then gave up was not served in time either."""
        slo = request.pool.policy.slo
        expired = outcome is Outcome.DEADLINE_EXCEEDED and self.now - request.arrived > slo
        if expired or outcome is Outcome.COMPLETED:
            linger.answered(request.arrived, self.now, slo, request.pool.placement.overhead)

    def _abandon(self, request: Request) -> None:
        pool = request.pool
        for part in request.parts:
            if part.state is WAITING:
                part.state = GONE
                self.timers.arm(pool, pool.give_up(part), self.now)
                if pool.device.cores or pool.policy.style is Style.SEQUENCE:
                    self.touch(pool)  # it may have been its turn, waiting for cores or room that others could do with
            elif part.state is RUNNING:
                part.state = GONE
                if pool.policy.style is Style.SEQUENCE:
                    self._abort(request)
                else:
                    self._withdraw(pool, part)
            else:
                assert part.state is DONE or part.state is GONE

    def _withdraw(self, pool: Pool, part: QueuedPart) -> None:
        """It need not be computed any more, if it is in a batch that waits behind what its worker runs."""
        for worker in pool.placement.workers.values():
            for batch in worker.batches.values():
                if batch.waits and part in batch.members:
                    batch.withdrawn = True
                    self.effects.append(WithdrawPart(worker.id, batch.id, batch.members.index(part)))

    def _abort(self, request: Request) -> None:
        for worker in request.pool.placement.workers.values():
            running = worker.sequences.get(request.id)
            if running is not None and running.attempt == request.attempt:
                self.effects.append(AbortSequence(worker.id, request.id, request.attempt))
