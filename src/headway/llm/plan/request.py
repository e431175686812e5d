"""What is asked of an engine: plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from headway.core.ids import RequestId, Tenant
from headway.core.units import NEVER, Duration, Instant


class SequenceId(NamedTuple):
    """One choice of a request. Ids are the server's own, never a client's, and never used twice."""

    request: RequestId
    choice: int = 0


@dataclass(frozen=True, slots=True)
class SequenceRequest:
    """What is asked for.

    prompt: token ids, at least one.  output: those that were produced already, by an engine that gave it up or died.
    max_tokens: to be produced in all, `output` included; 0 = only the prompt is computed, for its log probabilities.
    stops: token ids that end it.
    choices: answers to the same prompt; each is a sequence. One computes the prompt, the others find it.
    priority: class, 0 = most urgent.
    first_by: when its first token is worthless.  itl: between its tokens at most, in ns; 0 = as the policy says.
    adapter: whose keys and values it has, besides the model's; "" = none.
    salt: who may share its prefix: "" = its own tenant; or what tenants that trust each other have agreed on.
    read_cache: False where every position of the prompt is wanted anew (log probabilities of the prompt): of several
        choices by the first.
    paid: tokens of the prompt that the tenant was charged for already, or got for nothing, in another engine.
    attempt: the first here. One that comes back while a plan has a row of it that is void must not be taken for that.
    """

    id: RequestId
    tenant: Tenant
    prompt: list[int]
    max_tokens: int
    priority: int = 0
    first_by: Instant = NEVER
    itl: Duration = 0
    stops: tuple[int, ...] = ()
    choices: int = 1
    salt: str = ""
    read_cache: bool = True
    output: tuple[int, ...] = ()
    paid: int = 0
    attempt: int = 0
    adapter: str = ""
