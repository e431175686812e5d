"""The observer of the hot path: it counts into plain ints and lists and returns.

The books are kept from what goes into the core and what comes out: a request is received when its
arrival is handled and has an outcome when ResolveRequest says so, so that
received = completed + refused + expired + cancelled + failed + in flight, at every moment.
Labels cannot grow with traffic: versions come from VersionConfigured, tenants from the configuration,
everything else is counted under "other".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from headway.core.effects import DeliverTokens, DispatchBatch, Effect, ResolveRequest
from headway.core.events import Event, RequestArrived, TokensEmitted, VersionConfigured
from headway.core.ids import RequestId, VersionId, WorkerId
from headway.core.outcomes import Outcome
from headway.core.units import Duration, Instant
from headway.runtime.observer import BatchInfo, ReplyInfo
from headway.telemetry.causes import cause_kind
from headway.telemetry.failures import Failures
from headway.telemetry.generations import Generations
from headway.telemetry.histogram import DURATION_BOUNDS, ROW_BOUNDS, Histogram
from headway.telemetry.phases import Phases
from headway.wire.engine import EngineCounts
from headway.wire.generation import Result
from headway.wire.messages import Submit

OTHER = "other"
DEFAULT = "default"
"""The tenant of whoever names none."""
UNKNOWN_VERSION = VersionId(OTHER, 0)
GONE = ("stopped", "lost")

SloOf: TypeAlias = Callable[[str, str], Duration]
"""Tenant and model -> the latency that is aimed for, in nanoseconds; 0 = none."""


def no_slo(tenant: str, model: str) -> Duration:
    return 0


class RequestCounts:
    """Requests of one version and tenant. outcomes: by Outcome's value.
    slo: nanoseconds that are aimed for, 0 = none.  in_slo: replies written within it, or all where there is none.
    prompt_tokens, output_tokens: of a language model: of prompts that were answered, and of the answers."""

    __slots__ = ("in_slo", "outcomes", "output_tokens", "prompt_tokens", "received", "slo", "tokens")

    def __init__(self, slo: Duration) -> None:
        self.received = 0
        self.outcomes: dict[str, int] = {}
        self.tokens = 0
        self.slo = slo
        self.in_slo = 0
        self.prompt_tokens = 0
        self.output_tokens = 0


class TenantTimes:
    """Of one tenant's completed requests, of all versions, whose reply was written; in nanoseconds.
    latency: from the last byte of a request to the last of its reply.  queue: the part of it until its dispatch."""

    __slots__ = ("latency", "queue")

    def __init__(self) -> None:
        self.latency = Histogram(DURATION_BOUNDS)
        self.queue = Histogram(DURATION_BOUNDS)


class SizeCounts:
    """Batches of one number of rows that succeeded; nanoseconds as their workers report them."""

    __slots__ = ("batches", "execute", "finish", "hand_over")

    def __init__(self) -> None:
        self.batches = self.hand_over = self.execute = self.finish = 0


class VersionCounts:
    """What is counted per version. busy: nanoseconds of its workers.  lost: by kind of cause.

    sizes: by rows of the batch.  ran: instant of the last call of the core before a batch that succeeded was
    counted, 0 = none was.  failed_time: nanoseconds from the last byte of a request to an outcome that is no success.
    """

    def __init__(self, tenants: Mapping[str, Duration]) -> None:
        """tenants: those with labels of their own, and the SLO of each."""
        self.tenants = {tenant: RequestCounts(slo) for tenant, slo in tenants.items()}
        self.batches: dict[str, int] = {}
        self.batches_failed = 0
        self.batch_rows = Histogram(ROW_BOUNDS)
        self.sizes: dict[int, SizeCounts] = {}
        self.ran: Instant = 0
        self.failed_time = 0
        self.padded_tokens = 0
        self.real_tokens = 0
        self.busy = 0
        self.lost: dict[str, int] = {}
        self.phases = Phases()

    def tenant(self, name: str) -> RequestCounts:
        return self.tenants.get(name) or self.tenants[OTHER]


class Counters:
    """Implements headway.runtime.observer.Observer.

    tenants: those that have labels of their own, besides the default one.  slo_of: each tenant's for each model.
    open: requests without an outcome, and where they are counted.  times: by tenant.  failures: and what was done.
    generations: of language models.
    """

    def __init__(self, tenants: Iterable[str] = (), slo_of: SloOf = no_slo) -> None:
        self.times: dict[str, TenantTimes] = {name: TenantTimes() for name in [*tenants, DEFAULT, OTHER]}
        self._slo_of = slo_of
        self.versions: dict[tuple[str, int], VersionCounts] = {}
        self.open: dict[RequestId, RequestCounts] = {}
        self.workers: dict[WorkerId, tuple[VersionId, str]] = {}
        self.failures = Failures()
        self.generations = Generations()
        self._now: Instant = 0
        self._unknown = self._known(UNKNOWN_VERSION)
        self._watched: dict[type, Callable[[Any], object]] = {
            VersionConfigured: lambda event: self._known(event.version),
            RequestArrived: self._arrived,
            TokensEmitted: self._emitted,
            ResolveRequest: self._resolved,
            DispatchBatch: self._dispatched,
            DeliverTokens: self._delivered,
        }
        for watched in (self.failures.watched, self.generations.watched):
            for kind, count in watched.items():
                other = self._watched.get(kind)
                self._watched[kind] = count if other is None else _both(other, count)

    def configure(self, tenants: Iterable[str], slo_of: SloOf) -> None:
        """From now on these have labels of their own too. Those that had one keep it: what was counted stays."""
        self._slo_of = slo_of
        for tenant in tenants:
            self.times.setdefault(tenant, TenantTimes())
        for (model, _), counts in self.versions.items():
            for tenant, slo in self._slos(model).items():
                counts.tenants.setdefault(tenant, RequestCounts(slo)).slo = slo

    def label(self, tenant: str) -> str:
        """Its name, if it is configured."""
        return tenant if tenant in self.times else OTHER

    def shown(self) -> dict[tuple[str, int], VersionCounts]:
        """Versions that the page of metrics shows: those configured, and the unknown one once somebody asked for it."""
        asked = any(requests.received for requests in self._unknown.tenants.values())
        return {version: counts for version, counts in self.versions.items() if asked or counts is not self._unknown}

    # -- Observer --------------------------------------------------------------------------------

    def handled(self, now: Instant, events: Sequence[Event], effects: Sequence[Effect]) -> None:
        self._now = now
        watched = self._watched
        for event in events:
            if count := watched.get(type(event)):
                count(event)
        for effect in effects:
            if count := watched.get(type(effect)):
                count(effect)

    def replied(self, reply: ReplyInfo) -> None:
        """The outcome was counted when the core gave it; the phases are when all of them are known."""
        self.generations.replied(reply)
        if reply.outcome is not Outcome.COMPLETED:
            times = reply.timings
            spent = times.parse + times.queue + times.hand_over + times.execute + times.back
            self._version((reply.model, reply.version)).failed_time += spent

    def written(self, reply: ReplyInfo) -> None:
        """All phases of a request at once, so that they add up over the same requests."""
        if reply.outcome is not Outcome.COMPLETED or reply.reply is None:
            return
        times = reply.timings
        counts = self._version((reply.model, reply.version))
        durations = times.parse, times.queue, times.hand_over, times.execute, times.back, reply.reply
        counts.phases.add(durations)
        total = sum(durations)
        requests = counts.tenant(reply.tenant)
        if not requests.slo or total <= requests.slo:
            requests.in_slo += 1
        of_tenant = self.times.get(reply.tenant) or self.times[OTHER]
        of_tenant.latency.add(total)
        of_tenant.queue.add(times.queue)

    def batch_done(self, batch: BatchInfo) -> None:
        counts = self._version((batch.model, batch.version))
        counts.busy += batch.hand_over + batch.execute + batch.finish
        if batch.failed:
            counts.batches_failed += 1
            return
        counts.batch_rows.add(batch.rows)
        size = counts.sizes.get(batch.rows)
        if size is None:
            size = counts.sizes[batch.rows] = SizeCounts()
        size.batches += 1
        size.hand_over += batch.hand_over
        size.execute += batch.execute
        size.finish += batch.finish
        counts.ran = self._now
        counts.padded_tokens += batch.padded_tokens
        counts.real_tokens += batch.real_tokens

    def worker_state(self, worker: WorkerId, version: VersionId, state: str, cause: str) -> None:
        if state in GONE:
            self.workers.pop(worker, None)
        else:
            self.workers[worker] = (version, state)
        if state == "lost":
            _count(self._known(version).lost, cause_kind(cause))

    def asked(self, submit: Submit) -> None:
        counts = self.versions.get(submit.key[:2])
        if counts is not None:
            self.generations.asked(submit, counts.tenant(submit.tenant))

    def generated(self, request: RequestId, values: Sequence[Result], now: Instant) -> None:
        self.generations.generated(request, values, now)

    def engine(self, worker: WorkerId, counts: EngineCounts) -> None:
        self.generations.engine(worker, counts)

    # -- events and effects (`_value_` is what an enum's slower property `value` reads) -------------

    def _arrived(self, event: RequestArrived) -> None:
        counts = self._version(event.key[:2]).tenant(event.tenant)
        counts.received += 1
        self.open[event.request] = counts

    def _resolved(self, effect: ResolveRequest) -> None:
        _count(self.open.pop(effect.request).outcomes, effect.outcome._value_)

    def _dispatched(self, effect: DispatchBatch) -> None:
        _count(self._version(effect.key[:2]).batches, effect.reason._value_)

    def _delivered(self, effect: DeliverTokens) -> None:
        counts = self.open.get(effect.request)
        if counts is not None:
            counts.tokens += effect.count

    def _emitted(self, event: TokensEmitted) -> None:
        if not event.service:
            self.generations.told(event)  # engines tell of what they charge by themselves
            return
        worker = self.workers.get(event.worker)
        if worker is not None:
            self._version(worker[0]).busy += event.service

    # -- labels ----------------------------------------------------------------------------------

    def _version(self, version: tuple[str, int]) -> VersionCounts:
        return self.versions.get(version) or self._unknown

    def _known(self, version: VersionId) -> VersionCounts:
        counts = self.versions.get(version)
        if counts is None:
            counts = self.versions[version] = VersionCounts(self._slos(version.model))
        return counts

    def _slos(self, model: str) -> dict[str, Duration]:
        return {tenant: self._slo_of(tenant, model) for tenant in self.times}


def _both(one: Callable[[Any], object], other: Callable[[Any], object]) -> Callable[[Any], object]:
    def count(what: Any) -> None:
        one(what)
        other(what)

    return count


def _count(counts: dict[str, int], name: str) -> None:
    counts[name] = counts.get(name, 0) + 1
