"""What may be drawn, and how likely: the definitions, one token after another, in Python's own numbers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from headway.llm.sample.params import SamplingParams


def adjusted(
    logits: Sequence[float], params: SamplingParams, prompt: Sequence[int] = (), output: Sequence[int] = ()
) -> list[float]:
    """Logits after penalties, bias and bans."""
    values = list(logits)
    produced = Counter(output)
    for token in range(len(values)):
        if token in produced or token in prompt:
            values[token] = (
                values[token] / params.repetition if values[token] > 0 else values[token] * params.repetition
            )
        values[token] -= params.frequency * produced[token]
        values[token] -= params.presence if produced[token] else 0.0
    for token, bias in params.logit_bias:
        values[token] += bias
    for token in params.bad + (params.stops if len(output) < params.min_tokens else ()):
        values[token] = -math.inf
    return values


def distribution(values: Sequence[float], params: SamplingParams) -> dict[int, float]:
    """Of adjusted logits: the probability of each token that may come."""
    order = sorted(range(len(values)), key=lambda token: (-values[token], token))
    order = [token for token in order if values[token] > -math.inf]
    if params.temperature == 0:
        return {order[0]: 1.0}
    best = values[order[0]]
    weights = {token: math.exp((values[token] - best) / params.temperature) for token in order}
    order = [token for token in order if weights[token] >= params.min_p]
    if params.top_k:
        order = order[: params.top_k]
    if params.top_p < 1:
        whole = math.fsum(weights[token] for token in order)
        kept, before = [], 0.0
        for token in order:
            if before >= params.top_p * whole:
                break
            kept.append(token)
            before += weights[token]
        order = kept
    whole = math.fsum(weights[token] for token in order)
    return {token: weights[token] / whole for token in order}
