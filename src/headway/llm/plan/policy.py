"""What the operator decides about an engine, as values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from headway.core.units import MILLISECOND, Duration

UNIT = 1 << 20
"""Of a virtual token counter: one token at price 1 and weight 1. Counters are integers."""


class Admit(Enum):
    """How the blocks that a sequence will come to need are judged before it is admitted."""

    WORST_CASE = "worst_case"
    """As if everybody produced all that it may: nobody is ever preempted for want of blocks."""
    FUTURE_PEAK = "future_peak"
    """By the greatest use that is to come, lengths as they have turned out lately (Gong et al., "Past-Future
    Scheduler", ASPLOS 2025)."""
    ESTIMATE = "estimate"
    """By a part of what may yet be produced, which shrinks while all goes well and starts again after a
    preemption (as SGLang does)."""
    UNLIMITED = "unlimited"
    """Whatever fits now. A baseline: it thrashes."""


@dataclass(frozen=True, slots=True)
class Prices:
    """Of a token, in units of service. Prompt tokens that were found in the cache cost nothing."""

    prompt: int = 1
    output: int = 2


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Of a tenant, for those of its requests that have none of their own; in ns, 0 = none. first_token: from its
    arrival.  itl: between two tokens."""

    first_token: Duration = 0
    itl: Duration = 0


NO_DEADLINES = Deadlines()


@dataclass(frozen=True, slots=True)
class PlanPolicy:
    """max_sequences: that run at once.  max_step_tokens: of one step, decodes and prefill together.
    max_context: tokens of a sequence, prompt and output.
    tile: chunks of prompts are multiples of so many tokens, but for the last.
    max_partial_prefills: prompts under way that will not be through at the end of the step.
    oldest_part: of the prefill of a step, so much goes to the oldest prompt under way: 1 / oldest_part. A prompt of P
        tokens, the ones before it still having R to go, is through within oldest_part x (R + P) / prefill of a step.
    target_itl: between two tokens of a stream whose request says nothing of it, in ns.
    least_itl: that a request may ask for, in ns; 0 = half of target_itl. All that share a step have its time: one that
        wants it much shorter keeps others out.
    slack: a stream that is ahead of its target may wait for so many times the target for one token (at least 1). More
        than 1 makes steps with much prefill longer, and fewer.
    expected_output: tokens that an answer comes to on average, as long as few have ended (FUTURE_PEAK); 0 = nobody
        knows, and it counts with all that it may have.
    max_choices: answers to one prompt, of one request.
    prefix_cache: whether prompts share what others have computed.  defer: and wait for what another computes just now.
    """

    max_sequences: int = 256
    max_step_tokens: int = 2048
    max_context: int = 131_072
    tile: int = 32
    max_partial_prefills: int = 4
    oldest_part: int = 4
    target_itl: Duration = 50 * MILLISECOND
    least_itl: Duration = 0
    slack: float = 1.0
    admit: Admit = Admit.FUTURE_PEAK
    expected_output: int = 256
    prices: Prices = Prices()
    max_choices: int = 128
    prefix_cache: bool = True
    defer: bool = True

    def __post_init__(self) -> None:
        """ValueError where they contradict each other."""
        if self.max_step_tokens < self.max_sequences + self.tile:
            raise ValueError("max_step_tokens must hold a token of each sequence and one tile of prefill")
        sizes = (self.max_sequences, self.tile, self.max_partial_prefills, self.oldest_part, self.max_choices)
        if min(*sizes, self.target_itl) < 1:
            raise ValueError("sizes must be at least 1")
        if self.expected_output < 0:
            raise ValueError("expected_output must be at least 0")
        if not 0 <= self.least_itl <= self.target_itl:
            raise ValueError("least_itl must be at least 0 and at most target_itl")

    @property
    def promised_itl(self) -> Duration:
        """Between two tokens, that a request may ask for at the least, in ns."""
        return self.least_itl or self.target_itl // 2
