"""One token a row from logits, by inverse CDF in float64, without sorting the vocabulary.

What may come is cut in this order: min_p, top_k, top_p of what those leave. Of equal logits the smaller token id comes
first, so that top_k leaves exactly k.

Rows without top_k and top_p: the CDF runs over the vocabulary in order of ids, in blocks; a block is chosen by the
blocks' sums, a token by the CDF within. Other rows: it runs over the best so many, most probable first. Where those are
not certain to hold all that may come, the row is looked at again with more, at last with all of them, sorted. The
result is the same with any number that suffices, so it does not depend on the rows beside it. Weights are float32
exponentials, each block's added up in float32 and the blocks in float64: a probability is right to about 1e-7 of
itself, and a weight below e^-103 of the greatest is 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

BLOCK = 256
"""Tokens of a block of the CDF; the rows of the work buffer are padded to it, so that all are aligned alike."""
SEARCHED = 32
"""Tokens of a block that is looked at for the best tokens only if its greatest is one of the greatest."""
WIDTHS = (64, 256, 1024)
"""How many of the best are looked at, before all are sorted."""


@dataclass(frozen=True, slots=True)
class Cuts:
    """Of each row, as float64, but top_k, int64, where "all" is as many as there are tokens. u: in [0, 1)."""

    temperature: Tensor
    top_k: Tensor
    top_p: Tensor
    min_p: Tensor
    u: Tensor

    def of(self, rows: Tensor) -> Cuts:
        return Cuts(self.temperature[rows], self.top_k[rows], self.top_p[rows], self.min_p[rows], self.u[rows])


def draw(logits: Tensor, greatest: Tensor, cuts: Cuts) -> Tensor:
    """Token ids of rows whose temperature is above 0. logits: not changed.  greatest: of each row, and finite."""
    rows, size = logits.shape
    scaled = _scaled(logits, greatest, cuts.temperature)
    limited = cuts.top_k < size
    nucleus = cuts.top_p < 1.0
    tokens = torch.zeros(rows, dtype=torch.int64, device=logits.device)
    mass = torch.ones(rows, dtype=torch.float64, device=logits.device)
    summed = torch.nonzero(~limited).flatten()
    if len(summed):
        part = cuts.of(summed)
        weights = scaled[summed] if len(summed) < rows else scaled.clone() if bool(nucleus.any()) else scaled
        floor = _floor(part.min_p)
        if bool((part.min_p > 0).any()):
            weights.masked_fill_(weights < floor, -torch.inf)
        sums = weights.exp_().view(len(summed), -1, BLOCK).sum(-1).cumsum(-1, dtype=torch.float64)
        mass[summed] = sums[:, -1]
        whole = ~nucleus[summed]
        if bool(whole.all()):
            tokens[summed] = _from_all(weights, sums, part.u)
        elif bool(whole.any()):
            at = torch.nonzero(whole).flatten()
            tokens[summed[at]] = _from_all(weights[at], sums[at], part.u[at])
    open_rows = torch.nonzero(limited | nucleus).flatten()
    for width in (*WIDTHS, size):
        if not len(open_rows):
            break
        best = scaled[open_rows] if len(open_rows) < rows else scaled
        found, sure = _from_best(best, min(width, size), size, cuts.of(open_rows), mass[open_rows])
        tokens[open_rows[sure]] = found[sure]
        open_rows = open_rows[~sure]
    return tokens


def _scaled(logits: Tensor, greatest: Tensor, temperature: Tensor) -> Tensor:
    """(logit - greatest) / temperature, padded with -inf to whole blocks; float32."""
    rows, size = logits.shape
    padded = torch.full((rows, -(-size // BLOCK) * BLOCK), -torch.inf, dtype=torch.float32, device=logits.device)
    body = padded[:, :size]
    body.copy_(logits)
    body.sub_(greatest.float().unsqueeze(1)).div_(temperature.float().unsqueeze(1))
    return padded


def _floor(min_p: Tensor) -> Tensor:
    """What a scaled logit must come to; -inf where min_p is 0."""
    return min_p.log().float().unsqueeze(1)


def _from_all(weights: Tensor, sums: Tensor, u: Tensor) -> Tensor:
    """sums: of weights by blocks, added up."""
    target = u * sums[:, -1]
    block = torch.searchsorted(sums, target.unsqueeze(1), right=True).clamp_(max=sums.shape[1] - 1)
    before = torch.where(block > 0, sums.gather(1, (block - 1).clamp(min=0)), 0.0)
    inside = weights.view(len(weights), -1, BLOCK).gather(1, block.unsqueeze(2).expand(-1, 1, BLOCK)).squeeze(1)
    added = inside.double().cumsum(-1)
    last = (added < added[:, -1:]).sum(-1)  # where rounding takes the target past the end: the last that has a weight
    at = torch.searchsorted(added, target.unsqueeze(1) - before, right=True).squeeze(1)
    return block.squeeze(1) * BLOCK + torch.minimum(at, last)


def _from_best(scaled: Tensor, width: int, size: int, cuts: Cuts, mass: Tensor) -> tuple[Tensor, Tensor]:
    """Token ids from the `width` best, and where they are sure to be right. mass: of all that min_p leaves, where
    top_k does not say."""
    values, ids = _best(scaled, width, size)
    kept = ((values >= _floor(cuts.min_p)) & (values > -torch.inf)).sum(-1)
    kept = torch.minimum(kept, cuts.top_k)
    added = values.double().exp_().cumsum(-1)
    limited = cuts.top_k < size
    inner = torch.where(limited, added.gather(1, (kept - 1).unsqueeze(1)).squeeze(1), mass)
    before = torch.nn.functional.pad(added[:, :-1], (1, 0))
    nucleus = (before < (cuts.top_p * inner).unsqueeze(1)).sum(-1)
    kept = torch.where(cuts.top_p < 1.0, torch.minimum(kept, nucleus), kept)
    last = (kept - 1).unsqueeze(1)
    target = (cuts.u.unsqueeze(1) * added.gather(1, last)).contiguous()
    at = torch.minimum(torch.searchsorted(added, target, right=True), last)
    # Of tokens equal to the least of the best, some may have been left out: right is what ends before those.
    sure = values.gather(1, last).squeeze(1) > values[:, -1]
    limit_known = ~limited | (cuts.top_k <= width)
    return ids.gather(1, at).squeeze(1), (sure & limit_known) | (width == size)


def _best(scaled: Tensor, width: int, size: int) -> tuple[Tensor, Tensor]:
    """The greatest values of each row and their ids, in order; of equal ones the smaller id first. All that are greater
    than the last of them are among them."""
    if width == size:
        values, ids = scaled[:, :size].sort(dim=-1, descending=True, stable=True)
        return values, ids
    blocks = scaled.view(len(scaled), -1, SEARCHED)
    if width * SEARCHED * 4 <= size:
        # A value above the width-th greatest of the blocks' maxima is in one of the blocks that have those.
        chosen = blocks.amax(-1).topk(width, sorted=False).indices
        inside = blocks.gather(1, chosen.unsqueeze(2).expand(-1, -1, SEARCHED)).flatten(1)
        values, at = inside.topk(width, sorted=False)
        ids = chosen.gather(1, at // SEARCHED) * SEARCHED + at % SEARCHED
    else:
        values, ids = scaled.topk(width, sorted=False)
    ids, order = ids.sort(-1)
    values, order = values.gather(1, order).sort(dim=-1, descending=True, stable=True)
    return values, ids.gather(1, order)
