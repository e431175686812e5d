"""A random world, drawn from its seed: configuration, workload, faults."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random

from headway.core.ids import BatchKey, Capacity, Part, Tenant, VersionId
from headway.core.policy import BatchPolicy, ServerPolicy, Style
from headway.core.tenancy import RateLimit, TenantPolicy
from headway.core.units import MILLISECOND, NEVER, SECOND, Duration, Instant, ms, us
from headway.sim.costs import COSTS, noisy, on_grid, warm_up
from headway.sim.faults import NO_FAULTS, Faults
from headway.sim.sim_worker import Model
from headway.sim.stalls import Stalls
from headway.sim.workloads import Arrival, bursty, lognormal_length, on_off, poisson

MAX_PART_ROWS = 3
SPACED = 5
"""In one world of so many the first version runs on a device that makes waiting for company pay."""
AGAIN = 0.1
"""So many requests have the content of an earlier one."""
HELD = 5
"""In one world of so many it holds its batches for a long while."""
PAUSING = 6
"""In one world of so many what workers run next is handed over ahead of time, and they stand still now and then."""


@dataclass(slots=True)
class WorldPlan:
    """Everything random about a world that does not depend on what the core does.

    grid: all instants are multiples of it, so that things happen at the same time.
    admin_every: mean time between administrative events (0: none).
    """

    seed: int
    grid: Duration
    server: ServerPolicy
    policies: dict[VersionId, BatchPolicy]
    models: dict[VersionId, Model]
    keys: tuple[BatchKey, ...]
    arrivals: Iterator[Arrival]
    closed_loop_clients: int
    faults: Faults
    admin_every: Duration
    heal_at: Instant

    @property
    def probe_parts(self) -> tuple[Part, ...]:
        return (Part(1, 1),)


def plan_world(seed: int) -> WorldPlan:
    rng = Random(f"{seed} plan")
    grid = rng.choice((us(1), us(250), MILLISECOND, MILLISECOND, ms(5)))
    tenants = tuple((f"tenant-{n}", rng.choice((0.5, 1.0, 1.0, 4.0))) for n in range(rng.randint(1, 4)))
    versions = [VersionId("model", number) for number in range(1, rng.choice((1, 1, 2, 3)) + 1)]
    policies = {version: random_policy(rng, grid) for version in versions}
    devices = _share_a_device(Random(f"{seed} devices"), policies)
    _vary_padding(Random(f"{seed} padding"), policies)
    _vary_shedding(Random(f"{seed} shedding"), policies)
    _vary_idempotence(Random(f"{seed} idempotence"), policies)
    models = {version: _model(rng, policies[version], grid) for version in versions}
    if seed % SPACED == 0:
        _space_departures(policies, models, versions[0], grid)
    if seed % HELD == 1:
        policies[versions[0]] = replace(policies[versions[0]], hold=True, max_queue_delay=20 * grid)
    keys = tuple(BatchKey(*version, f"sig-{n}") for version in versions for n in range(rng.choice((1, 2, 3, 3, 24))))
    count = rng.choice((40, 120, 120, 250))
    duration = _duration(rng, count, keys, models)
    broken = rng.random() < 0.7
    pausing = Random(f"{seed} pausing")
    for model in models.values():
        model.relief = pausing.random() < 0.7
        if seed % PAUSING == 3:
            model.hand_over = model.hand_over or grid
    return WorldPlan(
        seed=seed,
        grid=grid,
        server=_limit(
            Random(f"{seed} limits"), replace(_server_policy(rng, tenants), devices=devices), duration, count
        ),
        policies=policies,
        models=models,
        keys=keys,
        arrivals=_arrivals(Random(f"{seed} arrivals"), grid, keys, policies, tenants, count, duration),
        closed_loop_clients=rng.choice((0, 0, 0, 3, 20)),
        faults=_faulty(seed, grid, _faults(rng, grid, duration), models, policies, duration) if broken else NO_FAULTS,
        admin_every=rng.choice((0, duration // 5 + 1, duration // 25 + 1)) if broken else 0,
        heal_at=duration,
    )


def _space_departures(
    policies: dict[VersionId, BatchPolicy], models: dict[VersionId, Model], version: VersionId, grid: Duration
) -> None:
    """Several workers, a run time that hardly depends on the batch, and a short queue delay."""
    cost = COSTS["launch"]
    policies[version] = replace(policies[version], style=Style.BATCH, hold=False, max_queue_delay=grid)
    measurements = warm_up(cost, 32, 256)
    models[version] = Model(on_grid(cost, grid), workers=4, measurements=measurements, load_time=0)


def _vary_shedding(rng: Random, policies: dict[VersionId, BatchPolicy]) -> None:
    """Where nobody is refused for being late more lateness is seen."""
    for version, policy in policies.items():
        policies[version] = replace(policy, shed=rng.random() < 0.3)


def _vary_padding(rng: Random, policies: dict[VersionId, BatchPolicy]) -> None:
    """Some versions run their rows end to end; the answers of some would change with padding."""
    for version, policy in policies.items():
        unpadded, equal = rng.choice(((False, False), (False, False), (True, False), (False, True)))
        policies[version] = replace(policy, unpadded=unpadded, equal_lengths=equal)


def _vary_idempotence(rng: Random, policies: dict[VersionId, BatchPolicy]) -> None:
    """What some versions do must not be done twice."""
    for version, policy in policies.items():
        policies[version] = replace(policy, idempotent=rng.random() < 0.8)


def _share_a_device(rng: Random, policies: dict[VersionId, BatchPolicy]) -> tuple[tuple[str, int], ...]:
    """In half of the worlds the versions run on one device of few cores. Returns the devices with a limit."""
    if rng.random() < 0.5:
        return ()
    for version, policy in policies.items():
        if rng.random() < 0.8:
            cores = 0 if policy.style is Style.SEQUENCE else rng.choice((0, 1, 1, 2, 3))
            policies[version] = replace(policy, device="cpu", cores=cores)
    return (("cpu", rng.randint(1, 4)),)


def random_policy(rng: Random, grid: Duration, keep: BatchPolicy | None = None) -> BatchPolicy:
    """keep: the version's rules so far. Style, device and padding stay; what it has admitted must stay admissible."""
    style = keep.style if keep else rng.choice((Style.BATCH, Style.BATCH, Style.BATCH, Style.SEQUENCE))
    rows = rng.choice((MAX_PART_ROWS, 4, 8, 32))
    tokens, size = rng.choice(((0, 0), (0, 300), (256, 0), (1024, 100)))
    return BatchPolicy(
        device=keep.device if keep else "",
        unpadded=keep is not None and keep.unpadded,
        equal_lengths=keep is not None and keep.equal_lengths,
        cores=keep.cores if keep else 1,
        idempotent=keep is None or keep.idempotent,
        style=style,
        max_batch_size=rows,
        max_batch_tokens=tokens,
        max_batch_bytes=size,
        max_batch_time=rng.choice((0, 0, ms(20))),
        slo=(slo := rng.choice((0, 0, ms(20), ms(100), ms(1000)))),
        max_queue_delay=rng.choice((0, 1, 5, 20)) * grid,
        derive_delay=bool(slo) and rng.random() < 0.7,
        hold=rng.random() < 0.3,
        deadline_margin=rng.choice((0, ms(1))),
        hang_floor=keep.hang_floor if keep else rng.choice((ms(50), ms(500))),
        max_queued_requests=rng.choice((100_000, 100_000, 30, 5)),
        max_queued_rows=rng.choice((1_000_000, 1_000_000, 40)),
    )


def _server_policy(rng: Random, tenants: tuple[tuple[Tenant, float], ...]) -> ServerPolicy:
    named = tuple((name, TenantPolicy(weight=weight)) for name, weight in tenants)
    return ServerPolicy(
        max_queued_bytes=rng.choice((1 << 30, 1 << 30, 2_000)),
        patience=rng.choice((ServerPolicy().patience, (ms(1), ms(10)), (0,))),
        tenants=named if rng.random() < 0.7 else (),
    )


def _limit(rng: Random, server: ServerPolicy, duration: Duration, count: int) -> ServerPolicy:
    """In a third of the worlds named tenants have limits, of about what they send."""
    if rng.random() < 0.66:
        return server
    rate = count * SECOND / duration / 4
    return replace(
        server, tenants=tuple((tenant, of._replace(limits=_limits(rng, rate))) for tenant, of in server.tenants)
    )


def _limits(rng: Random, rate: float) -> tuple[RateLimit, ...]:
    """rate: requests per second."""
    kinds = (
        RateLimit(requests_per_second=rate * rng.choice((0.3, 1, 3)), burst=rng.choice((0.02, 0.2))),
        RateLimit(tokens_per_second=50 * rate * rng.choice((0.3, 1, 3)), burst=0.2),
        RateLimit(concurrent=rng.choice((1, 3, 10)), beyond=rng.choice((0, 8))),
        RateLimit(concurrent=2, requests_per_second=rate, up_to=64),
    )
    return tuple(rng.sample(kinds, rng.choice((0, 1, 1, 2))))


def _model(rng: Random, policy: BatchPolicy, grid: Duration) -> Model:
    cost = COSTS[rng.choice(list(COSTS))]
    exact = cost
    if rng.random() < 0.5:
        cost = noisy(cost, Random(rng.random()), rng.choice((0.05, 0.3)))
    capacity = Capacity()
    if policy.style is Style.SEQUENCE:
        cost = noisy(_step_cost, Random(rng.random()), 0.1)
        capacity = Capacity(batch_slots=0, sequences=rng.choice((1, 2, 8)))
    return Model(
        on_grid(cost, grid),
        workers=rng.randint(1, 3),
        capacity=capacity,
        measurements=warm_up(exact, 32, 256) if rng.random() < 0.7 else (),
        load_time=rng.choice((0, 1, 20)) * grid,
        hand_over=rng.choice((0, 0, 1)) * grid,
        unpadded=policy.unpadded,
    )


def _step_cost(rows: int, length: int) -> Duration:
    """One token step of an engine."""
    return ms(2) + us(100) * rows


def _duration(rng: Random, count: int, keys: tuple[BatchKey, ...], models: dict[VersionId, Model]) -> Duration:
    """How long the requests take to arrive: from a third to three times what the workers could do unbatched."""
    per_key = [models[key.version_id] for key in keys]
    work = sum(count / len(keys) * model.cost(1, 44) / model.workers for model in per_key) / len(models)
    return round(work / rng.choice((0.3, 0.7, 1.0, 3.0)))


def _arrivals(
    rng: Random,
    grid: Duration,
    keys: tuple[BatchKey, ...],
    policies: dict[VersionId, BatchPolicy],
    tenants: tuple[tuple[Tenant, float], ...],
    count: int,
    duration: Duration,
) -> Iterator[Arrival]:
    rate = count * SECOND / duration
    burst = max(1, duration // 10)
    gaps = rng.choice((poisson(rng, rate), bursty(rng, rate, 4), on_off(rng, rate, burst, burst)))
    deadlines = rng.choice(((NEVER,), (NEVER, ms(20), ms(200)), (ms(5), ms(20), ms(50))))
    max_parts = rng.choice((1, 1, 4, 12))
    cancelled = rng.choice((0, 0, 0.1, 0.4))
    lengths = rng.choice(((1,), (8, 64), None))
    contents = Random(f"{rng.random()} contents")
    seen: list[int] = []
    at = 0
    for _ in range(count):
        at += next(gaps)
        arrival = Arrival(
            at=-(-at // grid) * grid,
            key=rng.choice(keys),
            parts=tuple(_part(rng, lengths) for _ in range(rng.randint(1, max_parts))),
            tenant=rng.choice(tenants)[0],
            priority=rng.choice((0, 1, 1, 2, 5)),
            patience=_snap(rng.choice(deadlines), grid),
            bytes=rng.randrange(200),
            outputs=rng.randint(1, 20),
            content=contents.choice(seen) if seen and contents.random() < AGAIN else contents.randrange(1, 1 << 30),
        )
        seen.append(arrival.content)
        if policies[arrival.key.version_id].style is Style.SEQUENCE:
            arrival.parts = arrival.parts[:1]
        if rng.random() < cancelled:
            arrival.cancel_after = rng.randrange(0, 30) * grid
        yield arrival


def _part(rng: Random, lengths: tuple[int, ...] | None) -> Part:
    rows = rng.choice((1, 1, 1, 1, 2, MAX_PART_ROWS))
    return Part(rows, lognormal_length(rng) if lengths is None else rng.choice(lengths))


def _snap(patience: Duration, grid: Duration) -> Duration:
    return NEVER if patience == NEVER else max(1, patience // grid) * grid


def _faulty(
    seed: int,
    grid: Duration,
    faults: Faults,
    models: dict[VersionId, Model],
    policies: dict[VersionId, BatchPolicy],
    duration: Duration,
) -> Faults:
    """Each kind has a generator of its own, so that another one more leaves the worlds as they are."""
    faults = _stalled(Random(f"{seed} stalls"), grid, faults)
    faults = _pausing(Random(f"{seed} pauses"), faults, seed)
    return _breaking(Random(f"{seed} breaking"), faults, models, policies, duration)


def _pausing(rng: Random, faults: Faults, seed: int) -> Faults:
    """In half of the broken worlds workers stand still, for less or more than they are given."""
    often, most = rng.choice((0, 0, 0.02, 0.1)), rng.choice((ms(150), SECOND, 5 * SECOND))
    if seed % PAUSING == 3:
        often = max(often, 0.1)
    return replace(faults, pauses=often, pause=most)


def _breaking(
    rng: Random,
    faults: Faults,
    models: dict[VersionId, Model],
    policies: dict[VersionId, BatchPolicy],
    duration: Duration,
) -> Faults:
    """In a third of the broken worlds a device breaks that versions share."""
    for version, model in models.items():
        model.device = policies[version].device
    return replace(faults, time_to_device_loss=rng.choice((0, 0, duration // 4 + 1)))


def _faults(rng: Random, grid: Duration, duration: Duration) -> Faults:
    """Each kind is absent in half of the worlds, so that no fault hides behind another."""

    def maybe(*probabilities: float) -> float:
        return rng.choice((0.0,) * len(probabilities) + probabilities)

    return Faults(
        batch_fails=maybe(0.02, 0.2),
        part_fails=maybe(0.02, 0.2),
        sequence_fails=maybe(0.01, 0.05),
        slow=maybe(0.02, 0.2),
        hang=maybe(0.01, 0.05),
        duplicate=maybe(0.05, 0.5),
        stale=maybe(0.5, 1.0),
        misdirected=maybe(0.05, 0.3),
        load_fails=maybe(0.1, 0.5),
        gap=maybe(0.2, 1.0),
        time_to_loss=rng.choice((0, duration // 5 + 1, duration // 30 + 1)),
        time_to_drain=rng.choice((0, 0, duration // 5 + 1)),
        memory=rng.choice((0, 0, 0, 100, 400)),
        raises=maybe(0.02, 0.1),
        kills=maybe(0.01, 0.05),
        blameless=rng.choice((0.0, 0.5, 1.0)),
        grid=grid,
    )


def _stalled(rng: Random, grid: Duration, faults: Faults) -> Faults:
    """In a third of the worlds the server's loop stands still now and then, at times as long as it runs."""
    if rng.random() < 0.66:
        return faults
    lasts = rng.choice((1, 3, 20)) * grid
    return replace(faults, stalls=Stalls(every=lasts * rng.choice((1, 20)), lasts=lasts))
