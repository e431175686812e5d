"""The tokens of a step: one for each row that samples, by its own request's parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from headway.llm.sample.adjust import adjust
from headway.llm.sample.counter import uniforms
from headway.llm.sample.draw import Cuts, draw
from headway.llm.sample.history import History
from headway.llm.sample.logprobs import Logprob, logprobs

NOTHING: Mapping[int, Tensor] = {}


class Sampled(NamedTuple):
    """token: None where none can come: all are banned, or the logits are not numbers. logprob: where it is wanted."""

    token: int | None
    logprob: Logprob | None


def sample(logits: Tensor, rows: Sequence[History], allowed: Mapping[int, Tensor] = NOTHING) -> list[Sampled]:
    """logits: rows by vocabulary, of any floating type; not changed. allowed: by row, which tokens its grammar lets
    come (booleans). The histories are not changed: whoever takes a token says so with `append`."""
    if len(logits) != len(rows):
        raise ValueError(f"{len(logits)} rows of logits for {len(rows)} sequences")
    if not rows:
        return []
    changed = [i for i, row in enumerate(rows) if i in allowed or row.changes_logits]
    tokens: list[int | None]
    if not changed:
        tokens = _choose(logits, rows)
    else:
        tokens = [None] * len(rows)
        copy = logits[changed].to(torch.float32, copy=True)
        adjust(copy, [rows[i] for i in changed], {n: allowed[i] for n, i in enumerate(changed) if i in allowed})
        others = dict.fromkeys(range(len(rows)))
        for i in changed:
            del others[i]
        kept = list(others)
        for source, members in ((copy, changed), (logits[kept], kept)):
            for i, token in zip(members, _choose(source, [rows[i] for i in members]), strict=True):
                tokens[i] = token
    told = _told(logits, rows, tokens)
    return [Sampled(token, told.get(i)) for i, token in enumerate(tokens)]


def _choose(logits: Tensor, rows: Sequence[History]) -> list[int | None]:
    if not rows:
        return []
    greatest, first = logits.max(-1)  # of equal ones the first
    finite = greatest.isfinite()
    drawn = torch.tensor([row.params.temperature > 0 for row in rows], device=logits.device) & finite
    at = torch.nonzero(drawn).flatten()
    if len(at):
        members = [rows[i] for i in at.tolist()]
        part = logits if len(members) == len(rows) else logits[at]
        first[at] = draw(part, greatest[at], _cuts(members, logits.shape[1], logits.device))
    return [token if fine else None for token, fine in zip(first.tolist(), finite.tolist(), strict=True)]


def _cuts(rows: Sequence[History], size: int, device: torch.device) -> Cuts:
    params = [row.params for row in rows]
    u = uniforms([p.seed for p in params], [row.choice for row in rows], [row.position for row in rows])
    return Cuts(
        torch.tensor([p.temperature for p in params], dtype=torch.float64, device=device),
        torch.tensor([min(p.top_k, size) or size for p in params], device=device),
        torch.tensor([p.top_p for p in params], dtype=torch.float64, device=device),
        torch.tensor([p.min_p for p in params], dtype=torch.float64, device=device),
        torch.from_numpy(u).to(device),
    )


def _told(logits: Tensor, rows: Sequence[History], tokens: Sequence[int | None]) -> dict[int, Logprob]:
    wanted: list[tuple[int, int, int]] = []
    for i, (row, token) in enumerate(zip(rows, tokens, strict=True)):
        if token is not None and row.params.logprobs is not None:
            wanted.append((i, token, row.params.logprobs))
    if not wanted:
        return {}
    part = logits[[i for i, _, _ in wanted]]
    found = logprobs(part, [token for _, token, _ in wanted], [count for _, _, count in wanted])
    return dict(zip([i for i, _, _ in wanted], found, strict=True))
