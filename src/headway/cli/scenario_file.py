"""Scenario files of `headway simulate --scenario`: TOML to a `TenantScenario`. Described in docs/simulate.md."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice, repeat
from pathlib import Path
from random import Random
from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from headway.config.check import decode
from headway.config.errors import ConfigError, Problem
from headway.config.load import read_toml
from headway.config.settings import MAX_QUEUE_DELAY_MS
from headway.config.tenants import LimitSettings
from headway.core.policy import BatchPolicy, ServerPolicy
from headway.core.tenancy import TenantPolicy
from headway.core.units import NEVER, Duration, ms, seconds
from headway.runtime.policies import rate_limit
from headway.sim.costs import COSTS
from headway.sim.tenants import PAUSE, TenantLoad, TenantScenario, burst, lengths, replayed, requests
from headway.sim.workloads import MAX_LENGTH, Arrival, bursty, on_off, poisson, read_trace

Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Span = Annotated[float, Meta(ge=0)]
Share = Annotated[float, Meta(gt=0)]

WANTS: dict[str, tuple[str, ...]] = {
    "poisson": ("rate",),
    "gamma": ("rate",),
    "on-off": ("rate",),
    "burst": ("count",),
    "closed": ("clients",),
    "trace": ("file",),
}
"""kind of load -> what it cannot do without."""


class Load(Struct, frozen=True, forbid_unknown_fields=True):
    """What a tenant sends.

    kind: how requests come. poisson, gamma (clumps, see cv) and on-off (bursts between silences) at `rate` a second on
        average; burst: `count` at once, at start_s; closed: `clients` of whom each sends its next request when it has
        its answer; trace: a `file`'s times and lengths, played `speed` times as fast.
    cv: of the gaps of gamma; 1 is Poisson.  on_s, off_s: mean lengths of on-off.
    think_ms, pause_ms: of a closed loop's client, after an answer and after a refusal.
    length: of every row, in tokens; 0 = lognormal with a median of 44, at most 256.
    rows: of every request, one part.  priority: its class.
    start_s, stop_s: when the load begins and ends; stop_s = 0: with the scenario.
    """

    kind: Literal["poisson", "gamma", "on-off", "burst", "closed", "trace"]
    rate: Span = 0
    cv: Share = 4
    on_s: Share = 1
    off_s: Share = 1
    count: Count = 0
    clients: Count = 0
    think_ms: Span = 0
    pause_ms: Span = PAUSE / ms(1)
    file: str = ""
    speed: Share = 1
    length: Annotated[int, Meta(ge=0, le=MAX_LENGTH)] = 0
    rows: Positive = 1
    priority: Count = 1
    start_s: Span = 0
    stop_s: Span = 0


class Tenant(Struct, frozen=True, forbid_unknown_fields=True):
    """Names as in a server's configuration. load: a list of tables, `[[tenants.NAME.load]]`."""

    weight: Share = 1
    limits: tuple[LimitSettings, ...] = ()
    max_queued_requests: Count = 0
    default_deadline_ms: Span = 0
    slo_ms: Span = 0
    load: tuple[Load, ...] = ()


class Change(Struct, frozen=True, forbid_unknown_fields=True):
    """From at_s on a tenant has another weight."""

    at_s: Span
    tenant: str
    weight: Share


class Batches(Struct, frozen=True, forbid_unknown_fields=True):
    """As in a server's configuration, of the one version that all tenants use."""

    max_batch_size: Positive = 32
    max_batch_tokens: Count = 0
    max_batch_ms: Span = 0
    max_queue_delay_ms: Span = MAX_QUEUE_DELAY_MS
    slo_ms: Span = 0
    max_queued_requests: Positive = 100_000


class ScenarioFile(Struct, frozen=True, forbid_unknown_fields=True):
    """A whole file. since_s: nothing before counts in the report. device: shape of the service time.
    noise: sigma of its lognormal factor. hand_over_ms: what a batch, and its answer, spends on the way."""

    tenants: dict[str, Tenant]
    duration_s: Share = 60
    since_s: Span = 0
    seed: int = 1
    device: Literal["cpu", "gpu", "kernels", "launch"] = "cpu"
    noise: Annotated[float, Meta(ge=0, le=2)] = 0
    workers: Positive = 1
    hand_over_ms: Span = 0
    batching: Batches = field(default_factory=Batches)
    changes: tuple[Change, ...] = ()


def read_scenario(path: Path, *, seed: int | None = None, checked: bool = False) -> TenantScenario:
    """Raises ConfigError with every problem and its place. seed: instead of the file's."""
    file, problems = decode(read_toml(path), ScenarioFile, str(path))
    if file is not None:
        problems = [Problem(str(path), place, text) for place, text in _wrong(file, path.parent)]
    if file is None or problems:
        raise ConfigError(problems)
    chosen = file.seed if seed is None else seed
    batching = file.batching
    return TenantScenario(
        loads=tuple(_loads(file, chosen, path.parent)),
        duration=seconds(file.duration_s),
        since=seconds(file.since_s),
        policy=BatchPolicy(
            max_batch_size=batching.max_batch_size,
            max_batch_tokens=batching.max_batch_tokens,
            max_batch_time=ms(batching.max_batch_ms),
            max_queue_delay=ms(batching.max_queue_delay_ms),
            max_queued_requests=batching.max_queued_requests,
            slo=ms(batching.slo_ms),
        ),
        server=ServerPolicy(),
        changes=tuple(_changes(file)),
        cost=COSTS[file.device],
        noise=file.noise,
        workers=file.workers,
        hand_over=ms(file.hand_over_ms),
        seed=chosen,
        checked=checked,
    )


def _wrong(file: ScenarioFile, folder: Path) -> Iterator[tuple[str, str]]:
    """(place, what is wrong) of what no single setting shows."""
    if not file.tenants:
        yield "tenants", "expected at least one tenant, [tenants.NAME]"
    if file.since_s >= file.duration_s:
        yield "since_s", f"expected less than duration_s, {file.duration_s:g}; got {file.since_s:g}"
    for number, change in enumerate(file.changes):
        if change.tenant not in file.tenants:
            yield f"changes[{number}].tenant", f"expected one of {', '.join(file.tenants)}; got {change.tenant!r}"
    for name, tenant in file.tenants.items():
        if not tenant.load:
            yield f"tenants.{name}.load", "expected what it sends, one [[tenants.NAME.load]] or several; got none"
        for number, load in enumerate(tenant.load):
            place = f"tenants.{name}.load[{number}]"
            for setting in WANTS[load.kind]:
                if not getattr(load, setting):
                    yield f"{place}.{setting}", f"expected a value: {load.kind} needs it"
            if load.start_s >= file.duration_s:
                yield f"{place}.start_s", f"expected less than duration_s, {file.duration_s:g}; got {load.start_s:g}"
            if 0 < load.stop_s <= load.start_s:
                yield f"{place}.stop_s", f"expected more than start_s, {load.start_s:g}; got {load.stop_s:g}"
            if load.file and not (folder / load.file).is_file():
                yield f"{place}.file", f"{folder / load.file} is not there"


def _changes(file: ScenarioFile) -> Iterator[tuple[int, str, TenantPolicy]]:
    for change in file.changes:
        policy = _policy(file.tenants[change.tenant])
        yield seconds(change.at_s), change.tenant, policy._replace(weight=change.weight)


def _policy(tenant: Tenant) -> TenantPolicy:
    slos = (("", ms(tenant.slo_ms)),) if tenant.slo_ms else ()
    return TenantPolicy(tenant.weight, tuple(map(rate_limit, tenant.limits)), tenant.max_queued_requests, slos)


def _loads(file: ScenarioFile, seed: int, folder: Path) -> Iterator[TenantLoad]:
    for name, tenant in file.tenants.items():
        patience = ms(tenant.default_deadline_ms) if tenant.default_deadline_ms else NEVER
        for number, load in enumerate(tenant.load):
            rng = Random(f"{seed} {name} {number}")
            yield TenantLoad(
                name,
                _arrivals(load, rng, patience, folder),
                _policy(tenant),
                clients=load.clients if load.kind == "closed" else 0,
                think=ms(load.think_ms),
                pause=ms(load.pause_ms),
                start=seconds(load.start_s),
                stop=seconds(load.stop_s) if load.stop_s else NEVER,
            )


def _arrivals(load: Load, rng: Random, patience: Duration, folder: Path) -> Iterator[Arrival]:
    if load.kind == "trace":
        return replayed(read_trace(folder / load.file), load.speed, patience)
    gaps = _gaps(load, rng)
    if load.count:
        gaps = islice(gaps, load.count)
    return requests(gaps, _length(load, rng), patience=patience, priority=load.priority, rows=load.rows)


def _gaps(load: Load, rng: Random) -> Iterator[Duration]:
    if load.kind == "poisson":
        return poisson(rng, load.rate)
    if load.kind == "gamma":
        return bursty(rng, load.rate, load.cv)
    if load.kind == "on-off":
        return on_off(rng, load.rate, seconds(load.on_s), seconds(load.off_s))
    return burst(load.count) if load.kind == "burst" else repeat(0)


def _length(load: Load, rng: Random) -> Callable[[], int]:
    return (lambda: load.length) if load.length else lengths(rng)
