"""Which engine of several: by what its cache holds of the prompt, by room, by load.

Who would begin soonest, counted in tokens to be computed until then: those that the engine has ahead, and those of the
prompt that are not in its cache. So a cache draws as much as it saves, and no more. An engine with room goes before one
that has none, whatever its cache holds.

Very long prompts go to engines of their own as far as these have room: beside one all steps are long.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from headway.core.engine import Engine
from headway.core.ids import WorkerId
from headway.core.policy import Style
from headway.core.units import Instant

if TYPE_CHECKING:
    from headway.core.pool import Pool
    from headway.core.requests import QueuedPart
    from headway.core.workers import Worker

ELEPHANT_STEPS = 4
ELEPHANT_PART = 1 / 8
"""Of an engine's pool. An elephant takes so many steps of prefill, or so much of the pool, or more."""
THEIR_PART = 4
"""Of so many engines one is the elephants', and at least one where there are several."""


class Option(NamedTuple):
    """An engine, and what it would be to one request.

    takes: it may be handed the request at all.  has_room: and could begin it at once.
    held: tokens of the prompt that its cache holds.  ahead: tokens that it has yet to compute of other prompts.
    running: its sequences.  blocks: free.
    step_tokens: that it computes in a step at most.  pool_tokens: that its pool holds.
    """

    engine: WorkerId
    takes: bool
    has_room: bool
    held: int
    ahead: int
    running: int
    blocks: int
    step_tokens: int
    pool_tokens: int


def choose(tokens: int, options: Sequence[Option]) -> WorkerId | None:
    """For a request of so many known tokens. options: all engines that could ever hold it, whether they take it now or
    not. None: nobody takes it now."""
    theirs = elephants_own(options)

    def worth(option: Option) -> tuple[bool, bool, int, int, int, WorkerId]:
        kept_off = is_elephant(tokens, option) and bool(theirs) and option.engine not in theirs
        left = max(0, tokens - option.held)
        return (not option.has_room, kept_off, option.ahead + left, option.running, -option.blocks, option.engine)

    takers = [option for option in options if option.takes]
    return min(takers, key=worth).engine if takers else None


def elephants_own(options: Sequence[Option]) -> list[WorkerId]:
    """Engines that very long prompts go to first: the youngest."""
    count = max(1, len(options) // THEIR_PART) if len(options) > 1 else 0
    return sorted((option.engine for option in options), reverse=True)[:count]


def is_elephant(tokens: int, option: Option) -> bool:
    """Whether so many tokens, or those of them that its cache does not hold, are very long for this engine."""
    steps = tokens - option.held >= ELEPHANT_STEPS * option.step_tokens
    return steps or tokens >= ELEPHANT_PART * option.pool_tokens


# -- in a pool -------------------------------------------------------------------------------


def pick(pool: Pool, now: Instant) -> Worker | None:
    """The worker that what is next in the pool would go to. None: nobody takes it now. One that could never hold it is
    for telling it so: no other could."""
    engines = engines_of(pool)
    queue = pool.agenda.first() if engines else None
    head = None if queue is None else queue.head()
    if head is None:
        return pool.placement.pick(now)
    able = [(worker, engine) for worker, engine in engines if not engine.never(tokens_of(head))]
    if not able:
        return engines[0][0]
    chosen = choose(tokens_of(head), [_option(worker, engine, head) for worker, engine in able])
    return None if chosen is None else pool.placement.workers[chosen]


def never(pool: Pool, tokens: int) -> str:
    """Why none of the pool's engines could ever hold so many tokens; "" = one could, or nobody knows."""
    if pool.policy.style is not Style.SEQUENCE:
        return ""
    stories = [engine.never(tokens) for _, engine in engines_of(pool)]
    return stories[0] if stories and all(stories) else ""


def engines_of(pool: Pool) -> list[tuple[Worker, Engine]]:
    """Those that may be handed something."""
    return [(worker, worker.engine) for worker in pool.placement.free.values() if worker.engine is not None]


def tokens_of(part: QueuedPart) -> int:
    """That are known of it: its prompt, and what it has produced."""
    return part.length + part.request.emitted


def _option(worker: Worker, engine: Engine, part: QueuedPart) -> Option:
    tokens, request, capacity = tokens_of(part), part.request, engine.capacity
    return Option(
        worker.id,
        engine.takes(tokens, request.priority),
        engine.holds(tokens),
        engine.held(request.prefix),
        engine.ahead,
        len(worker.sequences),
        engine.blocks,
        capacity.step_tokens,
        capacity.kv_blocks * capacity.block_size,
    )
