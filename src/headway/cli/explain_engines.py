"""Engines on the page of `headway explain`: what runs, what waits, what binds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headway.cli.explain_columns import columns, figure

Told = dict[str, Any]

BINDS = {
    "nothing": "nobody waits",
    "sequences": "as many sequences as it takes",
    "kv_memory": "KV memory: its blocks are held, or kept for the growth of what runs",
    "step_time": "the step's time: there is room, and each step computes what it can",
}


def engines(told: Told | None) -> Iterator[str]:
    if told is None:
        return
    rows = [
        (
            f"worker {engine['worker']}",
            f"{engine['running_requests']} of {engine['max_sequences']}",
            str(engine["waiting_requests"]),
            share(engine["kv_blocks"]),
            BINDS[engine["binds"]],
        )
        for engine in told["engines"]
    ]
    if rows:
        yield from columns(("", "running", "waiting", "KV blocks used", "what binds"), rows)
    for name, heading in (("first_token", "first token"), ("inter_token", "between tokens")):
        if times := told[name]:
            mean, middle, rare = (figure(times[q]) for q in ("mean_ms", "p50_ms", "p99_ms"))
            yield f"{heading}: mean {mean} ms, p50 {middle}, p99 {rare}"
    cache, preempted = told["prefix_cache"], sum(told["preemptions"].values())
    if cache["asked_tokens"]:
        part = 100 * cache["hit_tokens"] / cache["asked_tokens"]
        yield f"{part:.0f} % of {cache['asked_tokens']} prompt tokens were found in the prefix cache"
    if preempted:
        yield f"{preempted} sequences were preempted, {told['recomputed_tokens']} tokens computed again"


def share(blocks: Told) -> str:
    if not blocks["of"]:
        return "none"
    cached = f", and {blocks['cached']} cached" if blocks["cached"] else ""
    return f"{100 * blocks['used'] / blocks['of']:.0f} % of {blocks['of']}{cached}"
