"""The values in force for one version, and who decided each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from headway.config.explain import Source, narrow, origin
from headway.config.settings import MEBIBYTE, ModelSettings, Settings
from headway.core.policy import BatchPolicy, Style
from headway.core.units import MILLISECOND, NEVER, SECOND, ms
from headway.core.views import VersionDetail
from headway.registry.placement import CPU
from headway.registry.spec import VersionSpec
from headway.wire.safety import UNBATCHED, SafetyReport

BY_MODEL, AUTOMATIC, BUILT_IN, BY_FILE = "the model", "automatic", "built in", "the file found"
BY_SAFETY = "batch safety"
"""What was found when the version was loaded decides: it is told below."""
BY_MEMORY = "the worker's memory"
BY_TENANTS = "a tenant's slo_ms"
FROM_SLO = "slo_ms"
"""What was measured decides, within the SLO: its parts are told beside."""


class InForce(msgspec.Struct, frozen=True):
    """One value.  origin: "default", the file or command line that says it, or one of the words above.
    unit: "" for what has none.  note: what the value means where that is not plain."""

    name: str
    value: Any
    unit: str
    origin: str
    note: str = ""


class Deciders(msgspec.Struct, frozen=True):
    """Who says what of the model's settings and of the server's, each the strongest first."""

    model: Sequence[Source]
    server: Sequence[Source]


def values(
    spec: VersionSpec,
    threads: int,
    detail: VersionDetail,
    settings: Settings,
    by: Deciders,
    report: SafetyReport = SafetyReport(),  # noqa: B008 - it is frozen
) -> Iterator[InForce]:
    """detail: the core's own, so that what is shown is what is done.  threads: of each worker.
    report: what batching does to the answers."""
    policy = detail.policy
    if policy.style is Style.BATCH:
        yield from caps(spec, detail, narrow("batching", by.model), report)
        yield from company(spec, policy, by.model)
    yield from bounds(spec, policy, narrow("batching", by.model))
    yield slo(spec, policy, by.model)
    yield from failures(policy, by.model)
    yield from server_wide(settings, by.server)
    yield from workers(spec, threads, detail, by.model)


def caps(
    spec: VersionSpec, detail: VersionDetail, batching: Sequence[Source], report: SafetyReport
) -> Iterator[InForce]:
    """What ends a batch, and what it may wait for."""
    policy = detail.policy
    said = origin("max_batch_size", batching)
    if policy.max_batch_size < spec.settings.batching.max_batch_size:
        said = BY_SAFETY if report.mode == UNBATCHED else BY_MODEL
    yield InForce("max_batch_size", policy.max_batch_size, "rows", said)
    tokens = policy.max_batch_tokens
    said = origin("max_batch_tokens", batching) if tokens == spec.settings.batching.max_batch_tokens else BY_MEMORY
    yield InForce("max_batch_tokens", tokens, "padded tokens", said, "" if tokens else "no cap")
    payload = policy.max_batch_bytes / MEBIBYTE
    note = "payload, as it travels to the worker" if payload else "no cap"
    yield InForce("max_batch_mb", payload, "MiB", origin("max_batch_mb", batching), note)
    yield batch_time(policy, batching)
    meaning = "a part batch waits so long even beside an idle worker" if policy.hold else "the longest wait for company"
    delay = round(detail.view.max_queue_delay / MILLISECOND, 4)
    said = FROM_SLO if detail.linger else origin("max_queue_delay_ms", batching)
    yield InForce("max_queue_delay_ms", delay, "ms", said, meaning)
    yield InForce("hold", policy.hold, "", origin("hold", batching))
    margin = policy.deadline_margin / MILLISECOND
    yield InForce("deadline_margin_ms", margin, "ms", BUILT_IN, "taken off every latest safe start")


def company(spec: VersionSpec, policy: BatchPolicy, model: Sequence[Source]) -> Iterator[InForce]:
    """Who may share a batch."""
    settings = spec.settings
    yield InForce("batch_safety", settings.batch_safety, "", origin("batch_safety", model))
    yield InForce("batch_invariant", settings.batch_invariant, "", origin("batch_invariant", model))
    if policy.unpadded:
        yield InForce("unpadded", True, "", BY_MODEL, "the rows of a batch run end to end; tokens are real ones")
    if policy.equal_lengths:
        yield InForce("equal_lengths", True, "", BY_SAFETY, "rows of different lengths do not share a batch")


def batch_time(policy: BatchPolicy, batching: Sequence[Source]) -> InForce:
    said = origin("max_batch_ms", batching)
    if policy.max_batch_time:
        return InForce("max_batch_ms", policy.max_batch_time / MILLISECOND, "ms", said, "predicted run time")
    limit = policy.time_limit(0)
    if limit == NEVER:
        return InForce("max_batch_ms", 0, "ms", said, "no cap, since batches are held")
    half = "half of slo_ms, " if limit == policy.slo // 2 else ""
    note = f"{half}predicted run time; or twice its first row alone, if that is more"
    return InForce("max_batch_ms", limit / MILLISECOND, "ms", AUTOMATIC, note)


def bounds(spec: VersionSpec, policy: BatchPolicy, batching: Sequence[Source]) -> Iterator[InForce]:
    requests, rows = policy.max_queued_requests, policy.max_queued_rows
    yield InForce("max_queued_requests", requests, "requests", origin("max_queued_requests", batching))
    yield InForce("max_queued_rows", rows, "rows", origin("max_queued_rows", batching))


def slo(spec: VersionSpec, policy: BatchPolicy, model: Sequence[Source]) -> InForce:
    """What the version is run by."""
    own = spec.settings.slo_ms
    if policy.slo == ms(own):
        return InForce("slo_ms", own, "ms", origin("slo_ms", model), "" if own else "none")
    note = f"the tightest of all tenants'; the model's own is {own:g}" if own else "the tightest of all tenants'"
    return InForce("slo_ms", round(policy.slo / MILLISECOND, 4), "ms", BY_TENANTS, note)


def failures(policy: BatchPolicy, model: Sequence[Source]) -> Iterator[InForce]:
    """What is done about them."""
    note = "" if policy.idempotent else "what has begun is never begun again"
    yield InForce("idempotent", policy.idempotent, "", origin("idempotent", model), note)
    note = "that die while they run nothing but one request, then it is given up"
    yield InForce("max_attempts", policy.max_attempts, "workers", origin("max_attempts", model), note)
    floor = policy.hang_floor / SECOND
    note = "at least, without an answer: suspected; twice: killed" if floor else "never"
    yield InForce("hang_s", floor, "s", origin("hang_s", model), note)
    refused = policy.quarantine / SECOND
    note = "content that kills workers is refused" if refused else "no content is refused"
    yield InForce("quarantine_s", refused, "s", origin("quarantine_s", model), note)


def server_wide(settings: Settings, server: Sequence[Source]) -> Iterator[InForce]:
    said = origin("max_queued_mb", narrow("limits", server))
    yield InForce("limits.max_queued_mb", settings.limits.max_queued_mb, "MiB", said, "of all versions together")
    said = origin("request_timeout_s", narrow("server", server))
    yield InForce(
        "server.request_timeout_s", settings.server.request_timeout_s, "s", said, "deadline of who names none"
    )


def workers(spec: VersionSpec, threads: int, detail: VersionDetail, model: Sequence[Source]) -> Iterator[InForce]:
    settings = spec.settings
    yield InForce("executor", spec.executor, "", origin("executor", model) if settings.executor else BY_FILE)
    yield InForce("device", settings.device, "", origin("device", model))
    yield InForce("instances", settings.instances, "", origin("instances", model))
    shared = "" if settings.threads else "its share of the cores"
    yield InForce("threads", threads, "per worker", origin("threads", model) if settings.threads else AUTOMATIC, shared)
    yield cores(settings, detail, model)
    if detail.policy.style is Style.SEQUENCE:
        yield InForce("max_sequences", settings.sequences(spec.executor), "per worker", origin("max_sequences", model))


def cores(settings: ModelSettings, detail: VersionDetail, model: Sequence[Source]) -> InForce:
    """What a batch takes of its device while it runs."""
    name, unit = "cores", "per running batch"
    if detail.policy.style is Style.SEQUENCE:
        return InForce(name, detail.takes, unit, BUILT_IN, "streaming models take none")
    said = AUTOMATIC if settings.cores is None else origin("cores", model)
    if not detail.takes:
        note = "it waits for nobody's turn, and nobody for it"
    elif detail.takes < detail.policy.cores:
        note = f"all there are of {detail.device.name}, which are fewer than {detail.policy.cores}"
    elif settings.cores is None:
        note = "its threads" if settings.device == CPU else f"a turn of {detail.device.name}"
    else:
        note = f"of {detail.device.name}"
    return InForce(name, detail.takes, unit, said, note)
