"""What the sampler knows of a sequence: its parameters, and which tokens it has had."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from headway.llm.sample.params import SamplingParams


class History:
    """One choice of a request. Made anew, from prompt and output, when it goes on after a preemption or elsewhere:
    the output never becomes prompt.

    position: of the next token in the output, from 0.
    """

    __slots__ = ("_counts", "_ids", "_index", "choice", "params", "position")

    def __init__(
        self, params: SamplingParams, prompt: Sequence[int], output: Sequence[int] = (), choice: int = 0
    ) -> None:
        self.params = params
        self.choice = choice
        self.position = 0
        known = sorted(dict.fromkeys(prompt)) if params.repetition != 1.0 else []
        self._index = {token: number for number, token in enumerate(known)}
        self._ids = np.array(known + [0] * 64, np.int64)
        self._counts = np.zeros(len(self._ids), np.int64)
        for token in output:
            self.append(token)

    def append(self, token: int) -> None:
        """It was produced."""
        self.position += 1
        if not self.params.penalised:
            return
        number = self._index.setdefault(token, len(self._index))
        if number == len(self._ids):
            self._ids = np.concatenate((self._ids, np.zeros_like(self._ids)))
            self._counts = np.concatenate((self._counts, np.zeros_like(self._counts)))
        self._ids[number] = token
        self._counts[number] += 1

    def had(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Tokens that penalties apply to, and how often each was produced: 0 for those of the prompt alone, which are
        here only where repetitions are penalised."""
        size = len(self._index)
        return self._ids[:size], self._counts[:size]

    @property
    def banned(self) -> tuple[int, ...]:
        """Tokens that may not come now."""
        params = self.params
        return params.bad + params.stops if self.position < params.min_tokens else params.bad

    @property
    def changes_logits(self) -> bool:
        params = self.params
        return params.penalised or bool(params.logit_bias) or bool(self.banned)
