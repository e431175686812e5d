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


class Stepped(msgspec.Struct, tag="stepped"):
    """engine -> runtime: what has come of a step, or of an order.

    values: of each in `emitted`, its results.  The core is told in the order of the fields.
    """

    worker: int
    report: EngineReported
    emitted: tuple[TokensEmitted, ...] = ()
    values: tuple[tuple[Result, ...], ...] = ()
    finished: tuple[SequenceFinished, ...] = ()
    failed: tuple[SequenceFailed, ...] = ()
    returned: tuple[SequenceReturned, ...] = ()
