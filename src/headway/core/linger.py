"""How long a part may wait for company, derived from the latency that is aimed for.

    ceiling = fraction * (SLO - run time - outside)

*run time*: predicted, at the upper quantile, of the dearest batch of the last window. *outside*: a running
upper quantile of what requests spend outside queue and worker, as measured. What is left is not all for
lingering: a part also waits for what its worker runs, and that nobody can promise. So a *fraction* of it is
spent, and moved by what was measured end to end: a little up where the answers were early, to the half
where they were late (additive increase, multiplicative decrease: Chiu and Jain 1989).

As TCP does not shrink its window twice for one loss, only answers to requests that came after the last
change are evidence for the next (RFC 6582); as it does not grow a window that was not used, the fraction
grows only where some answer took as long as the ceiling (RFC 7661). Between p95 at COMFORT of the SLO and
p99 at the SLO nothing moves: it comes to rest there instead of swinging.

All changes at the end of a window and stands still in between, so that timers that were set stay right.
"""

from __future__ import annotations

from typing import Any

from headway.core.cost import CostModel
from headway.core.units import Duration, Instant, seconds, us

WINDOW = 100
"""Answers that a verdict is about: one of them may be late."""
FEW, LONG = 20, seconds(10)
"""Where answers are rare, so many do after so long."""
LATE_SHARE, SLOW_SHARE = 1 / 100, 5 / 100
"""Of the answers, those that may be later than the SLO, and than COMFORT of it: p99 and p95."""
COMFORT = 0.8
FIRST, LEAST, MOST = 1 / 4, 1 / 64, 3 / 4
"""Of what the SLO leaves. LEAST: above 0, so that it finds back from there."""
UP, DOWN = 1 / 32, 1 / 2
QUANTILE, STEP = 0.95, 0.05
"""Of `outside`, and how far one reply moves it at most (stochastic approximation, as in the cost model)."""
FLOOR = us(10)
"""`outside` at least, once anything was measured: its steps are relative to itself."""


class Linger:
    """Of one pool.  ceiling: in force.

    rows, length, pace: the batch whose run time is in force (0 rows: none has run, none was expected).
    run_time: its upper prediction, on its worker.
    since: when this window began.  answers, slow, late: of it; late ones are slow as well.
    tried: an answer of this window took at least as long as the ceiling.
    """

    __slots__ = (
        "_dearest",
        "_dearest_time",
        "answers",
        "ceiling",
        "fraction",
        "late",
        "length",
        "outside",
        "pace",
        "rows",
        "run_time",
        "since",
        "slow",
        "tried",
    )

    def __init__(self) -> None:
        self.fraction = FIRST
        self.outside: Duration = 0
        self.ceiling: Duration = 0
        self.rows = self.length = 0
        self.pace = 1.0
        self.run_time: Duration = 0
        self.since: Instant = 0
        self.answers = self.slow = self.late = 0
        self.tried = False
        self._dearest: tuple[int, int, float] | None = None
        self._dearest_time: Duration = 0

    # -- told ------------------------------------------------------------------------------

    def expect(self, length: int) -> None:
        """Until the first window is over: single rows, at most so long."""
        if self.rows == 0:
            self.rows, self.length = 1, length

    def ran(self, rows: int, length: int, pace: float, cost: CostModel) -> None:
        """A batch has completed."""
        took = int(pace * cost.upper(rows, length))
        if self._dearest is None or took > self._dearest_time:
            self._dearest, self._dearest_time = (rows, length, pace), took

    def spent_outside(self, overhead: Duration) -> None:
        """A reply was written. The first one is believed as it is."""
        if self.outside == 0:
            self.outside = max(FLOOR, overhead)
            return
        if overhead > self.outside:
            self.outside = min(overhead, int(self.outside * (1 + STEP * QUANTILE)))
        else:
            self.outside = max(FLOOR, int(self.outside * (1 - STEP * (1 - QUANTILE))))

    def answered(self, arrived: Instant, now: Instant, slo: Duration, hand_over: Duration) -> None:
        """A request got its answer from the core, or would have been late even if it got one now.

        hand_over: part of `outside` that its time in the core contains already.
        """
        if arrived < self.since:
            return
        inside = now - arrived
        took = inside + max(0, self.outside - hand_over)
        self.answers += 1
        self.slow += took > COMFORT * slo
        self.late += took > slo
        self.tried = self.tried or inside >= self.ceiling

    # -- decided ---------------------------------------------------------------------------

    def is_over(self, now: Instant) -> bool:
        """The window: it is full, or what a full one may hold of late answers is exceeded, or it was long enough."""
        full = self.answers >= WINDOW or self.late > LATE_SHARE * WINDOW
        return full or (self.answers >= FEW and now - self.since >= LONG)

    def adapt(self) -> None:
        """The verdict on a window that is over."""
        if self.late > LATE_SHARE * self.answers:
            self.fraction = max(LEAST, self.fraction * DOWN)
        elif self.slow <= SLOW_SHARE * self.answers and self.tried:
            self.fraction = min(MOST, self.fraction + UP)

    def renew(self, slo: Duration, cost: CostModel, now: Instant) -> Duration:
        """A new window, and the ceiling in force from now on."""
        self.since = now
        self.answers = self.slow = self.late = 0
        self.tried = False
        if self._dearest is not None:
            self.rows, self.length, self.pace = self._dearest
            self._dearest = None
        self.run_time = int(self.pace * cost.upper(self.rows, self.length)) if self.rows else 0
        self.ceiling = max(0, int(self.fraction * (slo - self.run_time - self.outside)))
        return self.ceiling

    # -- kept ------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        return {
            "fraction": self.fraction,
            "outside": self.outside,
            "ceiling": self.ceiling,
            "batch": [self.rows, self.length, self.pace, self.run_time],
            "window": [self.since, self.answers, self.slow, self.late, self.tried],
            "dearest": None if self._dearest is None else [*self._dearest, self._dearest_time],
        }

    @classmethod
    def restore(cls, state: dict[str, Any]) -> Linger:
        linger = cls()
        linger.fraction, linger.outside, linger.ceiling = state["fraction"], state["outside"], state["ceiling"]
        linger.rows, linger.length, linger.pace, linger.run_time = state["batch"]
        linger.since, linger.answers, linger.slow, linger.late, linger.tried = state["window"]
        if state["dearest"] is not None:
            rows, length, pace, linger._dearest_time = state["dearest"]
            linger._dearest = (rows, length, pace)
        return linger
