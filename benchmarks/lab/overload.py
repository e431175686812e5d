"""A server that is offered more than it can do, with what it did just before and after: figures beside their goals."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import Any

from lab.beside import Got, Run, quantile_ms, shares

GOODPUT, LATE, REFUSED_MS, HEALTH_MS = 0.90, 0.01, 10.0, 50.0
AS_BEFORE = 0.95
EXPIRED = "504 deadline_exceeded"


@dataclass(frozen=True)
class Overload:
    """before, after: a closed loop that keeps the server busy.  calm, again: a gentle load.  run: the overload, between
    them, with the stream `health` beside that of `tenant`.
    """

    factor: float
    slo_ms: float
    tenant: str
    before: Run
    calm: Run
    run: Run
    again: Run
    after: Run

    @property
    def got(self) -> Got:
        return self.run.streams[self.tenant]

    @property
    def capacity(self) -> float:
        """Answers per second."""
        return fmean((self.before.per_s, self.after.per_s))

    @property
    def goodput(self) -> float:
        """Of capacity: answered within the SLO."""
        return self.got.within(self.slo_ms) / self.run.seconds / self.capacity if self.capacity else 0.0

    @property
    def tokens(self) -> float:
        """The same in tokens, which does not gain where short texts are let in rather than long ones."""
        done = fmean(run.tokens / run.seconds for run in (self.before, self.after))
        return self.got.tokens_within(self.slo_ms) / self.run.seconds / done if done else 0.0

    @property
    def late(self) -> float:
        """Of what was let in: answered after the SLO, or given up."""
        expired = self.got.errors[EXPIRED]
        admitted = len(self.got.took) + expired
        return 1 - self.got.within(self.slo_ms) / admitted if admitted else 0.0

    @property
    def refused_p99_ms(self) -> float:
        return quantile_ms(self.got.refused_in, 0.99)

    def rows(self) -> list[tuple[str, str]]:
        """What, and how much with the goal's verdict."""
        got, health = self.got, self.run.streams["health"]
        calm, again = self.calm.streams[self.tenant], self.again.streams[self.tenant]
        rss = self.run.rss
        refusals = f"{quantile_ms(got.refused_in, 0.5):.1f} / {self.refused_p99_ms:.1f}"
        return [
            ("capacity before, after, answers/s (tokens/s)", f"{done(self.before)}, {done(self.after)}"),
            ("offered/s, answered/s", f"{got.offered_per_s:.1f}, {got.per_s:.1f}"),
            ("answered p50 / p99 ms", f"{got.ms(0.5):.0f} / {got.ms(0.99):.0f}"),
            (f"within SLO : capacity (goal {GOODPUT:.2f})", judged(f"{self.goodput:.2f}", self.goodput >= GOODPUT)),
            ("the same in tokens", f"{self.tokens:.2f}"),
            ("tokens of a text: offered, in time", f"{got.offered_tokens / max(1, got.arrived):.0f}, {self.usual:.0f}"),
            (f"let in and late (goal {LATE:.0%})", judged(f"{self.late:.1%}", self.late <= LATE)),
            ("not answered", "; ".join(f"{count} x {code}" for code, count in got.errors.items()) or "none"),
            (f"refusals p50 / p99 ms (goal {REFUSED_MS:g})", judged(refusals, self.refused_p99_ms <= REFUSED_MS)),
            (
                f"/health p50 / p99 ms (goal {HEALTH_MS:g})",
                judged(f"{health.ms(0.5):.1f} / {health.ms(0.99):.1f}", health.ms(0.99) <= HEALTH_MS),
            ),
            ("send lag p99 ms", f"{quantile_ms(got.lags, 0.99):.1f}"),
            ("gateway's MiB before, at most, after", f"{rss[0]:.0f}, {max(rss):.0f}, {self.again.rss[0]:.0f}"),
            ("gentle load before: answers/s, p50 / p99 ms, refused", gently(calm)),
            ("5 s after", gently(again)),
            (f"capacity after : before (goal {AS_BEFORE})", judged(f"{self.back:.2f}", self.back >= AS_BEFORE)),
            ("worker busy; cores that each took", f"{self.run.busy:.2f}; {', '.join(shares(self.run.cpu))}"),
        ]

    @property
    def usual(self) -> float:
        """Tokens of a text that was answered within the SLO."""
        return self.got.tokens_within(self.slo_ms) / max(1, self.got.within(self.slo_ms))

    @property
    def back(self) -> float:
        return self.after.per_s / self.before.per_s if self.before.per_s else 0.0

    def figures(self) -> dict[str, Any]:
        runs = {name: getattr(self, name).figures() for name in ("before", "calm", "run", "again", "after")}
        verdicts = {
            "goodput": self.goodput,
            "in_tokens": self.tokens,
            "late": self.late,
            "refused_p99_ms": self.refused_p99_ms,
        }
        return {"factor": self.factor, **verdicts, **runs}


def done(run: Run) -> str:
    return f"{run.per_s:.1f} ({run.tokens / run.seconds:,.0f})"


def gently(got: Got) -> str:
    return f"{got.per_s:.1f}/s, {got.ms(0.5):.0f} / {got.ms(0.99):.0f}, {sum(got.errors.values())} of {got.arrived}"


def judged(figure: str, met: bool) -> str:
    return f"{figure}: {'met' if met else '**missed**'}"
