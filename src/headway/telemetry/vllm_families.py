"""The same counts under the names that vLLM gives them, for dashboards, load tools and routers that know those.

One line per model and metric: `model_name` is the model, all its versions and workers together; `engine` is always 0.
As there, gauges and tokens are of requests and the cache of tokens. Where headway counts otherwise, HELP says so.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from headway.telemetry.counters import Counters
from headway.telemetry.families import add_histogram
from headway.telemetry.generation_families import preemptions
from headway.telemetry.generations import FIRST_BOUNDS, GAP_BOUNDS, WHOLE_BOUNDS, LanguageCounts
from headway.telemetry.histogram import SECOND, Histogram
from headway.telemetry.sources import Views

LABELS = ("model_name", "engine")
ENGINE = "0"

HISTOGRAMS = (
    ("vllm:time_to_first_token_seconds", "first", "Histogram of time to first token in seconds, of each answer."),
    ("vllm:inter_token_latency_seconds", "gaps", "Histogram of inter-token latency in seconds."),
    ("vllm:time_per_output_token_seconds", "gaps", "The same by its older name."),
    ("vllm:e2e_request_latency_seconds", "whole", "Histogram of request latency in seconds, of completed requests."),
)
BOUNDS = {"first": FIRST_BOUNDS, "gaps": GAP_BOUNDS, "whole": WHOLE_BOUNDS}


def vllm_families(counters: Counters, views: Views) -> Iterator[Metric]:
    """Nothing where no language model is served."""
    models: dict[str, list[LanguageCounts]] = {}
    for (model, _), counts in counters.generations.versions.items():
        models.setdefault(model, []).append(counts)
    if models:
        yield from _gauges(models, counters, views)
        yield from _sums(models, counters)
        yield from _histograms(models)


def _gauges(models: dict[str, list[LanguageCounts]], counters: Counters, views: Views) -> Iterator[Metric]:
    running = GaugeMetricFamily(
        "vllm:num_requests_running", "Number of requests in model execution batches.", labels=LABELS
    )
    waiting = GaugeMetricFamily(
        "vllm:num_requests_waiting",
        "Number of requests waiting to be processed, in the scheduler and in engines.",
        labels=LABELS,
    )
    usage = GaugeMetricFamily(
        "vllm:kv_cache_usage_perc", "Fraction of used KV cache blocks, from 0 to 1, without cached ones.", labels=LABELS
    )
    runs, waits = dict.fromkeys(models, 0), dict.fromkeys(models, 0)
    for view in views():
        if view.version in counters.generations.versions:
            runs[view.version.model] += view.running_sequences - view.waiting_sequences
            waits[view.version.model] += view.waiting_requests + view.waiting_sequences
    for model, versions in models.items():
        used, cached, free = (
            sum([counts.now(name) for counts in versions]) for name in ("kv_used", "kv_cached", "kv_free")
        )
        running.add_metric((model, ENGINE), runs[model])
        waiting.add_metric((model, ENGINE), waits[model])
        usage.add_metric((model, ENGINE), used / (used + cached + free) if used else 0.0)
    yield from (running, waiting, usage)


def _sums(models: dict[str, list[LanguageCounts]], counters: Counters) -> Iterator[Metric]:
    prompts = CounterMetricFamily("vllm:prompt_tokens", "Number of prefill tokens processed.", labels=LABELS)
    outputs = CounterMetricFamily("vllm:generation_tokens", "Number of generation tokens processed.", labels=LABELS)
    preempted = CounterMetricFamily("vllm:num_preemptions", "Cumulative number of preemptions.", labels=LABELS)
    queries = CounterMetricFamily("vllm:prefix_cache_queries", "Prefix cache queries, in tokens.", labels=LABELS)
    hits = CounterMetricFamily("vllm:prefix_cache_hits", "Prefix cache hits, in tokens.", labels=LABELS)
    success = CounterMetricFamily(
        "vllm:request_success",
        "Requests by why they ended: stop, length, abort (cancelled or expired) or error.",
        labels=(*LABELS, "finished_reason"),
    )
    tokens = dict.fromkeys(models, (0, 0))
    for version in counters.generations.versions:
        prompt, output = tokens[version[0]]
        tenants = counters.versions[version].tenants.values()
        tokens[version[0]] = (
            prompt + sum([requests.prompt_tokens for requests in tenants]),
            output + sum([requests.output_tokens for requests in tenants]),
        )
    for model, versions in models.items():
        labels = (model, ENGINE)
        prompts.add_metric(labels, tokens[model][0])
        outputs.add_metric(labels, tokens[model][1])
        preempted.add_metric(labels, sum([sum(preemptions(counts).values()) for counts in versions]))
        queries.add_metric(labels, sum([counts.since("asked") for counts in versions]))
        hits.add_metric(labels, sum([counts.since("hits") for counts in versions]))
        for reason in versions[0].finished:
            success.add_metric((*labels, reason), sum([counts.finished[reason] for counts in versions]))
    yield from (prompts, outputs, preempted, queries, hits, success)


def _histograms(models: dict[str, list[LanguageCounts]]) -> Iterator[Metric]:
    for name, field, help in HISTOGRAMS:
        family = HistogramMetricFamily(name, help, labels=LABELS)
        for model, versions in models.items():
            whole = Histogram(BOUNDS[field])
            for counts in versions:
                of_version = getattr(counts, field)
                whole.add_counted(of_version.counts, of_version.total)
            add_histogram(family, (model, ENGINE), whole, SECOND)
        yield family
