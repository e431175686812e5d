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
        gentle = f"{calm.per_s:.1f}/s, {calm.ms(0.5):.0f} / {calm.ms(0.99):.0f}"
        return [
            ("capacity before, after, answers/s", f"{self.before.per_s:.1f}, {self.after.per_s:.1f}"),
            ("offered/s, answered/s", f"{got.offered_per_s:.1f}, {got.per_s:.1f}"),
            ("answered p50 / p99 ms", f"{got.ms(0.5):.0f} / {got.ms(0.99):.0f}"),
            (f"within SLO : capacity (goal {GOODPUT:.2f})", judged(f"{self.goodput:.2f}", self.goodput >= GOODPUT)),
            (f"let in and late (goal {LATE:.0%})", judged(f"{self.late:.1%}", self.late <= LATE)),
            ("not answered", "; ".join(f"{count} x {code}" for code, count in got.errors.items()) or "none"),
            (f"refusals p50 / p99 ms (goal {REFUSED_MS:g})", judged(refusals, self.refused_p99_ms <= REFUSED_MS)),
            (
                f"/health p50 / p99 ms (goal {HEALTH_MS:g})",
                judged(f"{health.ms(0.5):.1f} / {health.ms(0.99):.1f}", health.ms(0.99) <= HEALTH_MS),
            ),
            ("send lag p99 ms", f"{quantile_ms(got.lags, 0.99):.1f}"),
            ("gateway's MiB before, at most, after", f"{rss[0]:.0f}, {max(rss):.0f}, {self.again.rss[0]:.0f}"),
            ("gentle load before: answers/s, p50 / p99 ms", gentle),
            ("5 s after", f"{again.per_s:.1f}/s, {again.ms(0.5):.0f} / {again.ms(0.99):.0f}"),
            (f"capacity after : before (goal {AS_BEFORE})", judged(f"{self.back:.2f}", self.back >= AS_BEFORE)),
            ("cores that each took", ", ".join(shares(self.run.cpu))),
        ]

    @property
    def back(self) -> float:
        return self.after.per_s / self.before.per_s if self.before.per_s else 0.0

    def figures(self) -> dict[str, Any]:
        runs = {name: getattr(self, name).figures() for name in ("before", "calm", "run", "again", "after")}
        verdicts = {"goodput": self.goodput, "late": self.late, "refused_p99_ms": self.refused_p99_ms}
        return {"factor": self.factor, **verdicts, **runs}


def judged(figure: str, met: bool) -> str:
    return f"{figure}: {'met' if met else '**missed**'}"
