"""Logits as a request wants them: penalties, then bias, then what is banned (so that no bias brings it back)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from headway.llm.sample.history import History


def adjust(logits: Tensor, rows: Sequence[History], allowed: Mapping[int, Tensor]) -> None:
    """Changes them in place; float32, rows by vocabulary. allowed: by row, which tokens may come at all (booleans; a
    shorter one allows none beyond its end). All that is changed is changed token by token: it takes time by how many
    tokens are concerned, not by the vocabulary."""
    _penalise(logits, rows)
    _bias(logits, rows)
    at = [row * logits.shape[1] + token for row, history in enumerate(rows) for token in history.banned]
    if at:
        logits.view(-1)[torch.tensor(at, device=logits.device)] = -torch.inf
    for row, mask in allowed.items():
        logits[row, : len(mask)].masked_fill_(~mask[: logits.shape[1]], -torch.inf)
        logits[row, len(mask) :] = -torch.inf


def _penalise(logits: Tensor, rows: Sequence[History]) -> None:
    places, counts, strengths = [], [], []
    for row, history in enumerate(rows):
        params = history.params
        if not params.penalised:
            continue
        ids, count = history.had()
        places.append(ids + row * logits.shape[1])
        counts.append(count)
        strength = np.array((params.repetition, params.frequency, params.presence), np.float32)
        strengths.append(np.broadcast_to(strength, (len(ids), 3)))
    if not places:
        return
    at = torch.from_numpy(np.concatenate(places)).to(logits.device)
    count = torch.from_numpy(np.concatenate(counts)).to(logits.device)
    repetition, frequency, presence = torch.from_numpy(np.concatenate(strengths)).to(logits.device).unbind(1)
    value = logits.view(-1)[at]
    value = torch.where(value > 0, value / repetition, value * repetition)
    logits.view(-1)[at] = value - frequency * count - presence * (count > 0)


def _bias(logits: Tensor, rows: Sequence[History]) -> None:
    pairs = [
        (row * logits.shape[1] + token, bias)
        for row, history in enumerate(rows)
        for token, bias in history.params.logit_bias
    ]
    if pairs:
        at = torch.tensor([place for place, _ in pairs], device=logits.device)
        bias = torch.tensor([bias for _, bias in pairs], dtype=logits.dtype, device=logits.device)
        logits.view(-1).index_add_(0, at, bias)  # a token that is named twice gets both
