"""What a simulation of language model engines showed: as values, as JSON, as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from headway.core.ids import Tenant
from headway.core.units import SECOND
from headway.sim.llm.engine import Engine
from headway.sim.llm.recorder import COMPLETED, Recorder, TenantRecord
from headway.sim.report import Latency, summarise


@dataclass(frozen=True, slots=True)
class TenantFigures:
    """service: priced tokens that were computed for it; share: of all.  in_time: share of its requests whose first
    token came before its deadline."""

    requests: int
    weight: float
    first_token: Latency
    between_tokens: Latency
    end_to_end: Latency
    prompt_tokens: int
    output_tokens: int
    service: int
    share: float
    in_time: float
    ends: dict[str, int]
    refused: dict[str, int]


@dataclass(frozen=True, slots=True)
class LargestGap:
    """Between two tenants that both had something waiting, over any interval: priced tokens / weight."""

    ahead: Tenant
    behind: Tenant
    service: float
    since_s: float
    until_s: float


@dataclass(frozen=True, slots=True)
class LlmReport:
    """Of sequences: a request with n choices is n of them.

    duration_s: from the first arrival to the last end.  first_token, between_tokens, end_to_end: of all sequences that
    came so far, whatever became of them.  longest_gap: between two tokens of one sequence: what a reader notices, where
    the gaps of all are mostly those of streams that nothing disturbs.
    input_tokens_per_s: prompt tokens of sequences that began to answer, those found in the cache included.
    busy: share of the time that the devices worked.  step: how long steps took.
    kv_mean, kv_peak: shares of the pool that were held; the mean is over the time that the devices worked.
    kv_unfilled: of what was held, the share of places that held nothing: in the last block of each sequence, and of
    prompts that were not computed yet.
    preempted: share of sequences that ever were; preempted_once: share of those that were just once.
    recomputed_tokens: computed again because blocks were lost.
    cache_hit_rate: share of the tokens of admitted sequences that were found in the prefix cache.
    step_error: mean error of the time that the scheduler predicted for a step, as a share.
    digest: equal for two runs that went alike.  wall_s: what the simulation itself took.
    """

    requests: int
    duration_s: float
    first_token: Latency
    between_tokens: Latency
    longest_gap: Latency
    end_to_end: Latency
    requests_per_s: float
    input_tokens_per_s: float
    output_tokens_per_s: float
    in_time: float
    ends: dict[str, int]
    refused: dict[str, int]
    busy: float
    steps: int
    step: Latency
    step_error: float
    kv_mean: float
    kv_peak: float
    kv_unfilled: float
    preemptions: dict[str, int]
    preempted: float
    preempted_once: float
    recomputed_tokens: int
    cache_hit_rate: float
    evictions: dict[str, int]
    deferred: int
    largest_gap: LargestGap | None
    tenants: dict[Tenant, TenantFigures]
    digest: str
    wall_s: float

    def as_json(self) -> dict[str, object]:
        return asdict(self)


def report(recorder: Recorder, engines: Sequence[Engine], wall_s: float = 0.0) -> LlmReport:
    records = list(recorder.tenants.values())
    duration = max(1, recorder.ended - max(0, recorder.began))
    service = sum(record.service for record in records)
    ends = _sum(record.ends for record in records)
    sequences = max(1, ends.total())
    states = [engine.scheduler.state for engine in engines]
    hit = sum(state.cache.hits for state in states)
    asked = sum(state.cache.asked for state in states)
    busy = sum(engine.busy for engine in engines)
    ever = sum(count for times, count in recorder.preempted.items() if times)
    gap = recorder.gaps.worst
    there = max([recorder.ended, *(engine.ends for engine in engines)]) - max(0, recorder.began)
    return LlmReport(
        requests=sum(record.arrived for record in records),
        duration_s=round(duration / SECOND, 6),
        first_token=summarise([value for record in records for value in record.first_tokens]),
        between_tokens=summarise([value for record in records for value in record.gaps]),
        longest_gap=summarise([value for record in records for value in record.stalls]),
        end_to_end=summarise([value for record in records for value in record.answers]),
        requests_per_s=_rate(sum(ends[why] for why in COMPLETED), duration),
        input_tokens_per_s=_rate(sum(record.prompt for record in records), duration),
        output_tokens_per_s=_rate(sum(record.output for record in records), duration),
        in_time=_in_time(records),
        ends=dict(sorted(ends.items())),
        refused=dict(sorted(_sum(record.refused for record in records).items())),
        busy=round(busy / (len(engines) * max(1, there)), 4),
        steps=len(recorder.step_times),
        step=summarise(list(recorder.step_times)),
        step_error=round(sum(state.steps.error for state in states) / len(states), 4),
        kv_mean=round(recorder.kv_time / max(1, busy), 4),
        kv_peak=round(recorder.kv_peak, 4),
        kv_unfilled=round(recorder.unfilled_time / recorder.kv_time, 4) if recorder.kv_time else 0.0,
        preemptions=dict(_sum(Counter(state.counts.preemptions) for state in states)),
        preempted=round(ever / sequences, 4),
        preempted_once=round(recorder.preempted[1] / ever, 4) if ever else 1.0,
        recomputed_tokens=sum(state.counts.recomputed for state in states),
        cache_hit_rate=round(hit / asked, 4) if asked else 0.0,
        evictions=dict(_sum(Counter(state.pool.evicted) for state in states)),
        deferred=sum(state.counts.deferred for state in states),
        largest_gap=None
        if gap is None
        else LargestGap(
            gap.ahead, gap.behind, round(gap.service, 1), round(gap.since / SECOND, 3), round(gap.until / SECOND, 3)
        ),
        tenants={record.name: _figures(record, service) for record in sorted(records, key=lambda record: record.name)},
        digest=recorder.digest,
        wall_s=round(wall_s, 3),
    )


def _figures(record: TenantRecord, service: int) -> TenantFigures:
    return TenantFigures(
        requests=record.arrived,
        weight=record.weight,
        first_token=summarise(list(record.first_tokens)),
        between_tokens=summarise(list(record.gaps)),
        end_to_end=summarise(list(record.answers)),
        prompt_tokens=record.prompt,
        output_tokens=record.output,
        service=record.service,
        share=round(record.service / max(1, service), 4),
        in_time=_in_time([record]),
        ends=dict(sorted(record.ends.items())),
        refused=dict(sorted(record.refused.items())),
    )


def _in_time(records: Iterable[TenantRecord]) -> float:
    """Of all that arrived, refusals included."""
    arrived = in_time = 0
    for record in records:
        arrived += record.ends.total() + record.refused.total()
        in_time += len(record.first_tokens) - record.late
    return round(in_time / max(1, arrived), 4)


def _rate(count: int, duration: int) -> float:
    return round(count * SECOND / duration, 2)


def _sum(counters: Iterable[Counter[str]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for counter in counters:
        total.update(counter)
    return total


def as_table(report: LlmReport) -> str:
    """For a terminal."""
    once = f", of those {report.preempted_once:.1%} once" if report.preempted else ""
    rows: list[tuple[str, str]] = [
        ("requests", f"{report.requests} in {report.duration_s:.1f} s of virtual time"),
        (
            "throughput",
            f"{report.requests_per_s:g} completed/s, {report.input_tokens_per_s:.0f} prompt and"
            f" {report.output_tokens_per_s:.0f} output tokens/s",
        ),
        ("first token", _latency(report.first_token)),
        ("between tokens", _latency(report.between_tokens)),
        ("longest gap", _latency(report.longest_gap)),
        ("end to end", _latency(report.end_to_end)),
        ("ends", _counts(report.ends) + (f"; refused: {_counts(report.refused)}" if report.refused else "")),
        ("in time", f"{report.in_time:.1%} of first tokens"),
        ("steps", f"{report.steps}, {_latency(report.step)}; predicted within {report.step_error:.1%}"),
        ("device", f"{report.busy:.1%} busy"),
        (
            "KV blocks",
            f"{report.kv_mean:.1%} held on average, {report.kv_peak:.1%} at most;"
            f" {report.kv_unfilled:.1%} of their places hold nothing",
        ),
        (
            "preempted",
            f"{report.preempted:.2%} of sequences{once};"
            f" {_counts(report.preemptions)}; {report.recomputed_tokens} tokens again",
        ),
        (
            "prefix cache",
            f"{report.cache_hit_rate:.1%} of prompt tokens found; evicted {_counts(report.evictions)};"
            f" deferred {report.deferred}",
        ),
    ]
    if report.largest_gap is not None:
        gap = report.largest_gap
        rows.append(
            (
                "largest gap",
                f"{gap.service:.0f} priced tokens / weight: {gap.ahead} ahead of {gap.behind}"
                f" from {gap.since_s:g} to {gap.until_s:g} s",
            )
        )
    elif len(report.tenants) > 1:
        rows.append(("largest gap", "none: no two tenants were served while both had something waiting"))
    rows.append(("simulated in", f"{report.wall_s:.1f} s"))
    width = max(len(name) for name, _ in rows)
    lines = [f"{name:<{width}}  {value}" for name, value in rows]
    if len(report.tenants) > 1:
        lines += ["", *_tenants(report.tenants)]
    return "\n".join(lines)


def as_comparison(reports: dict[str, LlmReport]) -> str:
    """Several runs of one load, a line for each. Latencies in ms."""
    width = max(map(len, reports))
    head = (
        f"{'':<{width}}  first p50       p99  between p50     p99  end p50  output/s  KV mean  peak  preempted  found"
        "  largest gap"
    )
    lines = [head]
    for name, each in reports.items():
        gap = f"{each.largest_gap.service:11.0f}" if each.largest_gap else f"{'':11}"
        lines.append(
            f"{name:<{width}}  {each.first_token.p50_ms:9.0f}  {each.first_token.p99_ms:8.0f}"
            f"  {each.between_tokens.p50_ms:11.1f}  {each.between_tokens.p99_ms:6.0f}  {each.end_to_end.p50_ms:7.0f}"
            f"  {each.output_tokens_per_s:8.0f}  {each.kv_mean:7.1%}  {each.kv_peak:4.0%}  {each.preempted:9.2%}"
            f"  {each.cache_hit_rate:5.1%}  {gap}"
        )
    return "\n".join(lines)


def _tenants(tenants: dict[Tenant, TenantFigures]) -> list[str]:
    width = max(6, *map(len, tenants))
    head = f"{'tenant':<{width}}  weight  requests  service  share   first p50      p99 ms   between p99 ms   in time"
    lines = [head]
    for name, each in tenants.items():
        lines.append(
            f"{name:<{width}}  {each.weight:6g}  {each.requests:8d}  {each.service:7d}  {each.share:5.1%}"
            f"  {each.first_token.p50_ms:10.1f}  {each.first_token.p99_ms:10.1f}"
            f"  {each.between_tokens.p99_ms:15.1f}  {each.in_time:8.1%}"
        )
    return lines


def _latency(latency: Latency) -> str:
    return f"p50 {latency.p50_ms:.1f}  p90 {latency.p90_ms:.1f}  p99 {latency.p99_ms:.1f} ms"


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items()) or "none"
