"""What it costs to count: microseconds per request of telemetry's observer on the hot path.

    python benchmarks/observer.py

Two loads: every request in a batch of its own (the most calls per request there can be), and batches of
eight. The fastest of many short slices is shown, so that other work on the machine does not count.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from headway.core.effects import DispatchBatch, Reason, ResolveRequest
from headway.core.events import BatchCompleted, Event, ReplyWritten, RequestArrived, VersionConfigured
from headway.core.ids import BatchKey, Part, PartRef, VersionId
from headway.core.outcomes import Outcome
from headway.core.policy import BatchPolicy
from headway.runtime.observer import BatchInfo, ReplyInfo
from headway.telemetry.counters import Counters
from headway.wire.messages import Timings

KEY = BatchKey("m", 1, "s")
TIMES = Timings(31_000, 2_000_000, 40_000, 5_000_000, 70_000)
REQUESTS = 80
SLICES = 2_000


def calls_of(counters: Counters, size: int) -> list[Callable[[], None]]:
    """What the runtime calls for REQUESTS requests in batches of `size`, ready to be called."""
    calls: list[Callable[[], None]] = []
    for first in range(0, REQUESTS, size):
        ids = range(first, first + size)
        arrivals: list[Event] = [RequestArrived(i, "default", KEY, (Part(1, 44),)) for i in ids]
        dispatch = DispatchBatch(1, first, KEY, tuple(PartRef(i, 0) for i in ids), Reason.IDLE)
        resolved = [ResolveRequest(i, Outcome.COMPLETED) for i in ids]
        written: list[Event] = [ReplyWritten(i, 5) for i in ids]
        replies = [ReplyInfo(i, "m", 1, "default", Outcome.COMPLETED, 1, 0, TIMES, 90_000) for i in ids]
        batch = BatchInfo(1, "m", 1, size, 44 * size, 44 * size, 1, 2, 3, 9, Reason.IDLE, False)

        def one_batch(
            arrivals: list[Event] = arrivals,
            dispatch: DispatchBatch = dispatch,
            resolved: list[ResolveRequest] = resolved,
            written: list[Event] = written,
            replies: list[ReplyInfo] = replies,
            batch: BatchInfo = batch,
        ) -> None:
            counters.handled(0, arrivals, [dispatch])
            counters.batch_done(batch)
            counters.handled(1, [BatchCompleted(1, batch.worker, 5)], resolved)
            for reply in replies:
                counters.replied(reply)
            for reply in replies:
                counters.written(reply)
            counters.handled(2, written, [])

        calls.append(one_batch)
    return calls


def microseconds_per_request(size: int) -> float:
    counters = Counters()
    counters.handled(0, [VersionConfigured(VersionId("m", 1), BatchPolicy())], [])
    calls = calls_of(counters, size)
    best = float("inf")
    for _ in range(SLICES):
        began = time.perf_counter()
        for call in calls:
            call()
        best = min(best, time.perf_counter() - began)
    return best / REQUESTS * 1e6


if __name__ == "__main__":
    for batch_size in (1, 8):
        print(f"batches of {batch_size}: {microseconds_per_request(batch_size):.2f} us per request")
