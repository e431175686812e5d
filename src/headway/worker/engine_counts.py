"""What an engine says of itself besides its results, now and then."""

from __future__ import annotations

from headway.core.units import Instant, ms
from headway.llm.plan.state import State
from headway.wire.engine import EngineCounts

EVERY = ms(100)


class CountsReport:
    """state: of the engine's planner."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._told = EngineCounts()
        self._told_at: Instant | None = None

    def due(self, now: Instant) -> EngineCounts | None:
        """What there is to tell at the end of a step, or of an order: None where something was told less than EVERY
        ago, unless the engine has fallen idle since: then nothing may come after it for long."""
        idle = not self._state.sequences
        if not idle and self._told_at is not None and now - self._told_at < EVERY:
            return None
        counts = counts_of(self._state)
        if counts == self._told:
            return None
        self._told, self._told_at = counts, now
        return counts


def counts_of(state: State) -> EngineCounts:
    pool, cache, counts = state.pool, state.cache, state.counts
    size = state.block_size
    running = state.running.values()
    return EngineCounts(
        running=len(running),
        waiting=len(state.sequences) - len(running),
        kv_used=pool.in_use,
        kv_cached=pool.idle_count,
        kv_free=pool.free,
        unfilled=sum([len(sequence.blocks) * size - sequence.computed for sequence in running]),
        steps=counts.steps,
        computed=counts.computed,
        recomputed=counts.recomputed,
        preempted_growth=counts.preemptions["growth"],
        preempted_class=counts.preemptions["class"],
        preempted_reclaim=counts.preemptions["reclaim"],
        evicted=pool.evicted["room"] + pool.evicted["shrunk"],
        asked=cache.asked,
        hits=cache.hits,
    )
