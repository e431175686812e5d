"""The clients' books: every request that was sent, and what became of it. They say what is wrong by themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.models import Ask

WORTH_ANOTHER_TRY = ("worker_lost", "circuit_open", "no_worker", "model_not_ready")
"""What anybody may be told while workers die, as long as it says to try again. What is refused for want of room or time
is not among it: there is always enough of both."""
TOO_LATE = ("deadline_exceeded", "deadline_unmeetable")


@dataclass
class Sent:
    """code: "" = no reply yet; "completed", or the error's code.  left: its client went away on purpose.
    wrong: about the reply."""

    number: int
    ask: Ask
    at: float
    code: str = ""
    left: bool = False
    wrong: str = ""


@dataclass
class Chain:
    """What one client wanted, and every time that it asked. took: seconds from the first to the last."""

    ask: Ask
    tries: list[Sent] = field(default_factory=list)
    took: float = 0.0
    over: bool = False

    @property
    def last(self) -> str:
        return self.tries[-1].code


class Ledger:
    """strange: what came that nobody had asked for, or that is no reply.  completed: right answers, so far."""

    def __init__(self) -> None:
        self.completed = 0
        self.chains: list[Chain] = []
        self.strange: list[str] = []
        self._sent = 0

    def begins(self, ask: Ask) -> Chain:
        chain = Chain(ask)
        self.chains.append(chain)
        return chain

    def sends(self, chain: Chain, now: float) -> Sent:
        self._sent += 1
        sent = Sent(self._sent, chain.ask, now)
        chain.tries.append(sent)
        return sent

    def hears(self, sent: Sent, status: int, told: dict[str, Any]) -> None:
        """told: the reply's body."""
        if sent.code:
            self.strange.append(f"request {sent.number} ({sent.ask.kind}) has a second reply: {status} {told}")
        elif status == 200:
            sent.code = "completed"
            answer = {output["name"]: output["data"] for output in told["outputs"]}
            sent.wrong = "it was to fail" if sent.ask.must_fail else sent.ask.check(answer)
            self.completed += not sent.wrong
        else:
            sent.code = told["code"]
            sent.wrong = _unfit(sent.ask, sent.code, told)

    # -- what is wrong ----------------------------------------------------------------------------

    def breaches(self) -> Iterator[str]:
        """Once nobody waits any more."""
        yield from self.strange
        for chain in self.chains:
            for sent in chain.tries:
                if not sent.code and not sent.left:
                    yield f"request {sent.number} ({sent.ask.kind}) has no reply"
                if sent.wrong:
                    yield f"request {sent.number} ({sent.ask.kind}), {sent.code}: {sent.wrong}"
            if not chain.over:
                yield f"a client still waits: {[sent.number for sent in chain.tries]} ({chain.ask.kind})"
            elif chain.last in WORTH_ANOTHER_TRY:
                yield f"a client gave up after {len(chain.tries)} tries ({chain.ask.kind}), last {chain.last}"

    def codes(self) -> Counter[str]:
        """Replies."""
        return Counter(sent.code for chain in self.chains for sent in chain.tries if sent.code)

    def left(self) -> int:
        """Requests whose clients went away: what became of them they cannot tell."""
        return sum(sent.left for chain in self.chains for sent in chain.tries)

    def innocents(self) -> list[Chain]:
        return [chain for chain in self.chains if not chain.ask.must_fail and not chain.ask.leaves_after_s]


def _unfit(ask: Ask, code: str, told: dict[str, Any]) -> str:
    if code in WORTH_ANOTHER_TRY:
        return "" if told["retryable"] else f"nobody is to try again: {told}"
    if code in ask.may_end or (ask.timeout_ms and code in TOO_LATE):
        return ""
    return f"of what was asked nobody should be told so: {told}"
