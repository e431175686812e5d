"""Counts of language models as metric families, in headway's own names. Called at scrape only."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from headway.telemetry.counters import Counters
from headway.telemetry.families import TENANT, VERSION, add_histogram
from headway.telemetry.generations import LanguageCounts
from headway.telemetry.histogram import SECOND
from headway.telemetry.sources import Views

WORKER = (*VERSION, "worker")


def generation_families(counters: Counters) -> Iterator[Metric]:
    """Of requests and their answers. Nothing where no language model is served."""
    if not counters.generations.versions:
        return
    prompts = CounterMetricFamily(
        "headway_prompt_tokens", "Tokens of prompts, counted when the first token of an answer came.", labels=TENANT
    )
    outputs = CounterMetricFamily("headway_output_tokens", "Tokens of answers that were passed on.", labels=TENANT)
    first = HistogramMetricFamily(
        "headway_time_to_first_token_seconds",
        "From the last byte of a request to the first token of each of its answers.",
        labels=VERSION,
    )
    gaps = HistogramMetricFamily(
        "headway_inter_token_seconds",
        "From each token of an answer to the next, as they were passed on: with the first tokens, as many as there "
        "are tokens.",
        labels=VERSION,
    )
    whole = HistogramMetricFamily(
        "headway_generation_seconds",
        "From the last byte of a request to the end of all its answers, of completed requests.",
        labels=VERSION,
    )
    finished = CounterMetricFamily(
        "headway_generations",
        "Requests by why they ended: stop and length were completed, abort cancelled or expired, error failed.",
        labels=(*VERSION, "reason"),
    )
    for version, counts in counters.generations.versions.items():
        labels = (version[0], str(version[1]))
        for tenant, requests in counters.versions[version].tenants.items():
            prompts.add_metric((*labels, tenant), requests.prompt_tokens)
            outputs.add_metric((*labels, tenant), requests.output_tokens)
        add_histogram(first, labels, counts.first, SECOND)
        add_histogram(gaps, labels, counts.gaps, SECOND)
        add_histogram(whole, labels, counts.whole, SECOND)
        for reason, count in counts.finished.items():
            finished.add_metric((*labels, reason), count)
    yield from (prompts, outputs, first, gaps, whole, finished)


def engine_families(counters: Counters, views: Views) -> Iterator[Metric]:
    """What engines say of themselves, at most a tenth of a second old while they compute; and what waits for them."""
    if not counters.generations.versions:
        return
    sequences = GaugeMetricFamily(
        "headway_engine_sequences",
        "Sequences in the engine: running, or waiting for room; one for each answer to a request.",
        labels=(*WORKER, "state"),
    )
    blocks = GaugeMetricFamily(
        "headway_engine_kv_blocks",
        "Blocks of the engine's memory: used by sequences, cached (content of nobody, evicted when wanted), free.",
        labels=(*WORKER, "state"),
    )
    unfilled = GaugeMetricFamily(
        "headway_engine_unfilled_tokens",
        "Tokens that used blocks have room for beyond what is computed.",
        labels=WORKER,
    )
    for version, counts in counters.generations.versions.items():
        for worker, told in counts.engines.items():
            labels = (version[0], str(version[1]), str(worker))
            sequences.add_metric((*labels, "running"), told.running)
            sequences.add_metric((*labels, "waiting"), told.waiting)
            blocks.add_metric((*labels, "used"), told.kv_used)
            blocks.add_metric((*labels, "cached"), told.kv_cached)
            blocks.add_metric((*labels, "free"), told.kv_free)
            unfilled.add_metric(labels, told.unfilled)
    waiting = GaugeMetricFamily(
        "headway_sequences_waiting",
        "Of headway_sequences_running those that wait in engines: no step has begun with them, or they were preempted.",
        labels=VERSION,
    )
    for view in views():
        if view.version in counters.generations.versions:
            waiting.add_metric((view.version.model, str(view.version.version)), view.waiting_sequences)
    yield from (sequences, blocks, unfilled, waiting)
    yield from _sums(counters)


SUMS = (
    ("steps", "headway_engine_steps", "Steps that were planned."),
    ("computed", "headway_engine_computed_tokens", "Tokens that steps computed, of prompts and answers."),
    (
        "recomputed",
        "headway_engine_recomputed_tokens",
        "Computed tokens that were lost as their sequence was preempted.",
    ),
    ("evicted", "headway_engine_evicted_blocks", "Blocks of the prefix cache whose content was given up for others."),
    ("asked", "headway_prefix_cache_asked_tokens", "Tokens that were looked for in the prefix cache."),
    ("hits", "headway_prefix_cache_hit_tokens", "Tokens of them that were found, and not computed again."),
)


def _sums(counters: Counters) -> Iterator[Metric]:
    versions = [((v[0], str(v[1])), counts) for v, counts in counters.generations.versions.items()]
    for field, name, help in SUMS:
        family = CounterMetricFamily(name, help, labels=VERSION)
        for labels, counts in versions:
            family.add_metric(labels, counts.since(field))
        yield family
    preempted = CounterMetricFamily(
        "headway_preemptions",
        "Sequences that lost their blocks: for the growth of others, for a more urgent class, or as a tenant claims "
        "its share (reclaim).",
        labels=(*VERSION, "reason"),
    )
    told = CounterMetricFamily(
        "headway_engine_results",
        "Results that engines told of: headway_tokens_delivered_total, and those of requests that were over by then.",
        labels=VERSION,
    )
    for labels, counts in versions:
        for reason, count in preemptions(counts).items():
            preempted.add_metric((*labels, reason), count)
        told.add_metric(labels, counts.told)
    yield from (preempted, told)


def preemptions(counts: LanguageCounts) -> dict[str, int]:
    return {reason: counts.since(f"preempted_{reason}") for reason in ("growth", "class", "reclaim")}
