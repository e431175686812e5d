"""When what waits should leave: by an idle worker at once or after a while, by a busy one ahead of time.

Vehicles on a line that leave as soon as they can bunch up: one takes the crowd, those behind it run
empty. So do workers where company costs next to nothing: of four that return at about the same time
the first takes what has piled up, the others take single requests, and all four are away again when
the next crowd comes. What lowers everybody's waiting is even spacing, as with buses. With n parts
waiting and m of k workers free, arrivals at a rate of L and r until the next busy one is back, let g
be the gap after this departure and (r - s) / m those that follow when it leaves s from now. The sum
of waiting, n s + L s^2 / 2 + L (r - s)^2 / 2m, is least at n m = L (r - s) - L m s; from now on
nothing is gained by waiting once

    n * m >= L * r

With one worker, or all of them free, that says: leave at once. It is bounded by the queue delay and
by the latest safe start, and it is not asked where a newcomer's company would not pay.
"""

from __future__ import annotations

from headway.core.policy import Style
from headway.core.pool import Pool
from headway.core.queue import KeyQueue
from headway.core.requests import QueuedPart
from headway.core.units import NEVER, Instant
from headway.core.workers import Worker


def leaves_at(pool: Pool, queue: KeyQueue, worker: Worker, now: Instant) -> Instant:
    """When what waits in `queue` should leave by `worker` if nobody comes and nobody returns.

    Not later than `now`: at once. NEVER: not by this worker as long as it runs what it runs.
    """
    policy = pool.policy
    if policy.style is Style.SEQUENCE:
        return now
    if queue.apart:
        return now if worker.has_room else NEVER  # not behind another: who is suspected of killing runs by itself
    if not worker.has_room:
        return NEVER if _is_tried_later(pool, queue, worker, now) else _staged_at(pool, queue, worker, now)
    if policy.hold or pool.draining or pool.pressure or pool.waiting != queue.count or pool.device.is_contended:
        return now  # others wait, or may come, who are not to be kept
    busy, head = pool.placement.next_free(now), queue.head()
    if busy is None or head is None or busy.ends_at <= now:
        return now
    ceiling = min(queue.oldest() + pool.max_queue_delay, head.latest_start)
    at = max(_spaced(pool, queue, busy.ends_at, now), _faster(pool, head, worker, busy, now))
    return min(at, ceiling)


def _is_tried_later(pool: Pool, queue: KeyQueue, worker: Worker, now: Instant) -> bool:
    """The last one that waits is not staged where it would be late: on an idle worker it will be tried."""
    head = queue.head()
    return pool.waiting == 1 and head is not None and pool.is_hopeless(head, max(now, worker.ends_at))


def _staged_at(pool: Pool, queue: KeyQueue, worker: Worker, now: Instant) -> Instant:
    """When to fix and hand over the batch that runs after what `worker` runs now. NEVER: once that has ended.

    Early it surely finds its worker before that idles, but whoever comes later is not in it. Where they would gain
    nothing by being in it, early. Where they would, each moment of either costs about as much waiting: too early those
    who come in it, for the length of a batch, too late those in the batch. So it is handed over for the expected end,
    and only if the hand-over takes longer than that is likely to be off: of a normal error with its 5 % quantile at
    -u, the mean distance is u / 2.
    """
    if _worth_of_company(pool, queue) <= 0:
        return now
    overhead = pool.placement.overhead
    off = (worker.ends_at - overhead - worker.stage_at) / 2
    return worker.free_at if overhead > off else NEVER


def _spaced(pool: Pool, queue: KeyQueue, back: Instant, now: Instant) -> Instant:
    """back: when the next busy worker is expected."""
    company = _worth_of_company(pool, queue)
    if company <= 0:
        return now
    gap = pool.arrivals.gap(now)
    return back - int(queue.count * len(pool.placement.free) * gap / company) if gap else now


def _worth_of_company(pool: Pool, queue: KeyQueue) -> float:
    """1: one more of the usual length costs nothing.  0 and less: it costs what it saves, or more."""
    rows, length = queue.rows, queue.tokens // queue.rows
    if pool.policy.is_filled_by(rows, queue.tokens, queue.bytes):
        return 0.0
    cost = pool.cost
    added = cost.median(rows + 1, length) - cost.median(rows, length)
    return 1 - 2 * added / max(1, cost.median(1, length))


SLOWER = 1.5
"""So many times the pace of another is a slow worker; less is noise."""


def _faster(pool: Pool, head: QueuedPart, worker: Worker, busy: Worker, now: Instant) -> Instant:
    """A single part is better off waiting for a worker so much faster that it answers sooner."""
    if pool.waiting > 1 or worker.pace < SLOWER * busy.pace:
        return now
    alone = pool.cost.median(head.rows, head.length)
    waits = busy.ends_at - now + int(alone * busy.pace) < int(alone * worker.pace)
    return busy.ends_at if waits else now
