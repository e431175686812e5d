"""One measurement of several loads beside each other on one server: what each got, and what the processes used."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from headway.bench.report import percentile
from lab import usage
from lab.streams import SECOND, Answer, Sending, Stream, Times

HEAD_START_S = 0.2
SAMPLE_S = 0.25


@dataclass
class Got:
    """What came of one stream. Requests (`arrived`, `offered_tokens`, `errors` and times) count if they were due in the
    window, answers (`answered`, `tokens`: 2xx) if they came in it.

    took, refused_in, lags: nanoseconds from the due moment to the answer, to any other reply, and to the sending.
    of_lengths: tokens of what `took` is of.
    """

    seconds: float
    arrived: int = 0
    offered_tokens: int = 0
    answered: int = 0
    tokens: int = 0
    took: list[int] = field(default_factory=list)
    refused_in: list[int] = field(default_factory=list)
    lags: list[int] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)
    of_lengths: list[int] = field(default_factory=list)

    @property
    def per_s(self) -> float:
        return self.answered / self.seconds

    @property
    def offered_per_s(self) -> float:
        return self.arrived / self.seconds

    def ms(self, q: float) -> float:
        return quantile_ms(self.took, q)

    def within(self, limit_ms: float) -> int:
        """Answers that took at most so long."""
        return sum(took <= limit_ms * 1e6 for took in self.took)

    def tokens_within(self, limit_ms: float) -> int:
        """Of those answers."""
        both = zip(self.took, self.of_lengths, strict=True)
        return sum(tokens for took, tokens in both if took <= limit_ms * 1e6)

    def figures(self) -> dict[str, Any]:
        quantiles = {f"p{q * 100:g}_ms": round(self.ms(q), 2) for q in (0.5, 0.95, 0.99)}
        counts = {"arrived": self.arrived, "answered": self.answered, "tokens": self.tokens}
        lag = {"send_lag_p99_ms": round(quantile_ms(self.lags, 0.99), 2)}
        return {"per_s": round(self.per_s, 2), **quantiles, **counts, **lag, "errors": dict(self.errors)}


@dataclass
class Run:
    """streams: by name.  cpu: cores that gateway, workers and loads used in the window.  rss: MiB of the gateway before
    the load, and now and then until its end.  busy: part of the window in which workers had a batch, by the server.
    """

    streams: dict[str, Got]
    seconds: float
    cpu: dict[str, float]
    rss: list[float]
    busy: float = 0.0

    @property
    def per_s(self) -> float:
        """Answers of all streams."""
        return sum(got.per_s for got in self.streams.values())

    @property
    def tokens(self) -> int:
        """Of those answers."""
        return sum(got.tokens for got in self.streams.values())

    def figures(self) -> dict[str, Any]:
        streams = {name: got.figures() for name, got in self.streams.items()}
        rss = [round(mib, 1) for mib in self.rss]
        return {"streams": streams, "seconds": self.seconds, "cpu": self.cpu, "busy": self.busy, "rss": rss}


def quantile_ms(nanoseconds: Sequence[int], q: float) -> float:
    """0 of none."""
    return percentile(sorted(nanoseconds), q) / 1e6 if nanoseconds else 0.0


def judged(answers: Sequence[Answer], times: Times) -> Got:
    got = Got((times.end - times.begin) / SECOND)
    for answer in answers:
        if not answer.error and times.begin <= answer.ended < times.end:
            got.answered += 1
            got.tokens += answer.tokens
        if not times.begin <= answer.due < times.end:
            continue
        got.arrived += 1
        got.offered_tokens += answer.tokens
        if answer.sent >= 0:
            got.lags.append(answer.sent - answer.due)
        if answer.error:
            got.errors[answer.error] += 1
            got.refused_in.append(answer.ended - answer.due)
        else:
            got.took.append(answer.ended - answer.due)
            got.of_lengths.append(answer.tokens)
    return got


@dataclass(frozen=True)
class Served:
    """address: of the server.  pid: of its gateway; its workers are descendants.
    busy: asks it how many seconds workers have had a batch since they began."""

    address: str
    pid: int
    busy: Callable[[], float]


def beside(server: Served, groups: Sequence[Sequence[Stream]], seconds: float, warm_up: float) -> Run:
    """Each group is sent by a process of its own."""
    with ExitStack() as stack:
        senders = [Sending(server.address, group) for group in groups]
        for sender in senders:
            stack.callback(sender.stop)
        for sender in senders:
            sender.wait_until_ready()
        loads = [sender.pid for sender in senders]
        pids = {"gateway": [server.pid], "workers": usage.descendants(server.pid), "loads": loads}
        rss = [usage.rss_mib(server.pid)]
        start = time.monotonic_ns() + round(HEAD_START_S * SECOND)
        begin = start + round(warm_up * SECOND)
        times = Times(start, begin, begin + round(seconds * SECOND))
        for sender in senders:
            sender.start(times)
        sample(times.begin, lambda: rss.append(usage.rss_mib(server.pid)))
        before = {**cpu(pids), "busy": server.busy()}
        sample(times.end, lambda: rss.append(usage.rss_mib(server.pid)))
        after = {**cpu(pids), "busy": server.busy()}
        answers = {name: found for sender in senders for name, found in sender.answers().items()}
    used = {name: round((after[name] - before[name]) / seconds, 3) for name in after}
    busy = used.pop("busy")
    return Run({name: judged(found, times) for name, found in answers.items()}, seconds, used, rss, busy)


def sample(until: int, take: Callable[[], None]) -> None:
    """Now and then until that moment."""
    while (left := (until - time.monotonic_ns()) / SECOND) > 0:
        time.sleep(min(left, SAMPLE_S))
        take()


def cpu(pids: dict[str, list[int]]) -> dict[str, float]:
    return {name: sum(usage.cpu_s(pid) for pid in of) for name, of in pids.items()}


def pooled(runs: Sequence[Got]) -> Got:
    """Several windows of the same load as one."""
    both = Got(sum(run.seconds for run in runs))
    for run in runs:
        both.arrived += run.arrived
        both.offered_tokens += run.offered_tokens
        both.answered += run.answered
        both.tokens += run.tokens
        both.took += run.took
        both.of_lengths += run.of_lengths
        both.refused_in += run.refused_in
        both.lags += run.lags
        both.errors += run.errors
    return both


def shares(cpu: dict[str, float]) -> Iterator[str]:
    """For people."""
    for name, cores in cpu.items():
        yield f"{name} {cores:.0%}"
