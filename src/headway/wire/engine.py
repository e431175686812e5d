"""Messages to and from a worker that is an engine: it holds many sequences and plans its steps itself."""

from __future__ import annotations

import msgspec

from headway.core.events import EngineReported, SequenceFailed, SequenceFinished, SequenceReturned, TokensEmitted
from headway.wire.generation import Generation, Result


class Start(msgspec.Struct, tag="start"):
    """runtime -> engine (control lane): generate.

    left: ns from now until its first token is worthless; 0 = it never is.  prefix: as in RequestArrived.
    counter, paid: as in AdmitSequence.  output: of its only choice, tokens that its client has already.
    """

    worker: int
    request: int
    attempt: int
    tenant: str
    priority: int
    counter: int
    paid: int
    left: int
    generation: Generation
    prefix: tuple[tuple[int, int], ...] = ()
    output: tuple[int, ...] = ()


class Counters(msgspec.Struct, tag="counters"):
    """runtime -> engine (control lane): of tenants, as UpdateCounters has them."""

    worker: int
    number: int
    counters: tuple[tuple[str, int], ...]


class GiveBack(msgspec.Struct, tag="give_back"):
    """runtime -> engine (control lane): give this sequence back if it waits."""

    worker: int
    request: int
    attempt: int


class EngineCounts(msgspec.Struct, frozen=True, array_like=True):
    """What only an engine knows of itself; nothing is decided by it.

    Now: running, waiting: sequences; who was preempted waits.  kv_used, kv_cached, kv_free: blocks that are held, that
    nobody holds but whose content is kept, and the others: all there are together.
    unfilled: tokens that the blocks held by sequences have room for beyond what is computed.
    Since it began: steps.  computed: tokens, and recomputed: those of them whose blocks were lost to preemption.
    preempted_growth, preempted_class, preempted_reclaim: sequences, by why: for want of a block, for a more urgent
    class, for a tenant that claims its share.  evicted: blocks whose content was given up.
    asked, hits: tokens that were looked for in the prefix cache, and found.
    """

    running: int = 0
    waiting: int = 0
    kv_used: int = 0
    kv_cached: int = 0
    kv_free: int = 0
    unfilled: int = 0
    steps: int = 0
    computed: int = 0
    recomputed: int = 0
    preempted_growth: int = 0
    preempted_class: int = 0
    preempted_reclaim: int = 0
    evicted: int = 0
    asked: int = 0
    hits: int = 0


class Stepped(msgspec.Struct, tag="stepped"):
    """engine -> runtime: what has come of a step, or of an order.

    values: of each in `emitted`, its results.  The core is told in the order of the fields.
    counts: now and then, and always when the engine has fallen idle; for whoever measures.
    """

    worker: int
    report: EngineReported
    emitted: tuple[TokensEmitted, ...] = ()
    values: tuple[tuple[Result, ...], ...] = ()
    finished: tuple[SequenceFinished, ...] = ()
    failed: tuple[SequenceFailed, ...] = ()
    returned: tuple[SequenceReturned, ...] = ()
    counts: EngineCounts | None = None
