"""Log probabilities as the model has them: before temperature, penalties, bias and bans."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

PIECE = 512
"""Rows of a prompt whose logits exist at one time: memory does not grow with prompt x vocabulary."""


class Logprob(NamedTuple):
    """Of one token. top: the most probable, in order, with theirs; of equal ones the smaller id first."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...]


def logprobs(logits: Tensor, tokens: Sequence[int], counts: Sequence[int]) -> list[Logprob]:
    """Row by row: of that token, and so many of the most probable beside it."""
    if not len(tokens):
        return []
    values = logits.float()
    normaliser = values.logsumexp(-1, keepdim=True)
    wanted = torch.tensor(tokens, device=logits.device).unsqueeze(1)
    chosen = (values.gather(1, wanted) - normaliser).squeeze(1).tolist()
    most = min(max(counts), logits.shape[1])
    tops: list[list[tuple[int, float]]] = [[] for _ in tokens]
    if most:
        best, ids = values.topk(most)
        tops = [
            sorted(zip(row_ids, row_values, strict=True), key=lambda pair: (-pair[1], pair[0]))
            for row_ids, row_values in zip(ids.tolist(), (best - normaliser).tolist(), strict=True)
        ]
    return [
        Logprob(token, value, tuple(top[:count]))
        for token, value, top, count in zip(tokens, chosen, tops, counts, strict=True)
    ]


def prompt_logprobs(
    hidden: Tensor, head: Callable[[Tensor], Tensor], targets: Sequence[int], count: int
) -> list[Logprob]:
    """Of the prompt's tokens that follow those positions. hidden: positions by width.  head: their logits.
    targets: the token after each; may be one fewer, where the chunk's last position is followed by none yet."""
    told: list[Logprob] = []
    for start in range(0, len(targets), PIECE):
        piece = targets[start : start + PIECE]
        told += logprobs(head(hidden[start : start + len(piece)]), piece, [count] * len(piece))
    return told
