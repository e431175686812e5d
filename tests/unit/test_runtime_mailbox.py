"""The mailbox against a core that only notes what it is told."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest
import uvloop

from headway.core.effects import Effect, ResolveRequest
from headway.core.events import Event, ReplyWritten, RequestCancelled
from headway.core.outcomes import Outcome
from headway.core.units import NEVER, Instant, ms, seconds
from headway.runtime.mailbox import Mailbox


class NotingCore:
    def __init__(self) -> None:
        self.calls: list[tuple[Instant, list[Event]]] = []
        self.answer: list[Effect] = []
        self.wakeup: Instant = NEVER
        self.error: Exception | None = None

    def handle(self, events: Sequence[Event], now: Instant) -> list[Effect]:
        self.calls.append((now, list(events)))
        if self.wakeup <= now:
            self.wakeup = NEVER
        if self.error is not None:
            raise self.error
        return self.answer

    def next_wakeup(self) -> Instant:
        return self.wakeup

    def snapshot(self) -> dict[str, Any]:
        return {}

    def is_idle(self) -> bool:
        return True


class Bench:
    """A mailbox and what came out of it."""

    def __init__(self) -> None:
        self.core = NotingCore()
        self.carried: asyncio.Queue[tuple[list[Event], list[Effect]]] = asyncio.Queue()
        self.raised: list[BaseException] = []
        self.fatal: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        self.break_carrying = False
        self.mailbox = Mailbox(
            self.core,
            asyncio.get_running_loop(),
            time.monotonic_ns,
            self._carry_out,
            lambda now, events, error: self.raised.append(error),
            self.fatal.set_result,
        )

    def _carry_out(self, now: Instant, events: list[Event], effects: list[Effect]) -> None:
        if self.break_carrying:
            raise KeyError("gone")
        self.carried.put_nowait((events, effects))


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Callable[[Bench], Coroutine[Any, Any, None]]], None]:
    def run(case: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
        async def main() -> None:
            bench = Bench()
            await case(bench)
            bench.mailbox.close()

        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(main())

    return run


def cancelled(count: int) -> list[Event]:
    return [RequestCancelled(n) for n in range(count)]


def test_a_burst_is_one_call_of_the_core(run):
    async def case(bench: Bench) -> None:
        bench.core.answer = [ResolveRequest(1, Outcome.CANCELLED)]
        for event in cancelled(100):
            bench.mailbox.post(event)
        assert bench.core.calls == [], "nothing is handled within post"
        assert await bench.carried.get() == (cancelled(100), bench.core.answer)
        assert len(bench.core.calls) == 1

    run(case)


def test_what_is_posted_while_effects_are_carried_out_is_the_next_call(run):
    async def case(bench: Bench) -> None:
        bench.mailbox.post(RequestCancelled(1))
        await bench.carried.get()
        bench.mailbox.post(RequestCancelled(2))
        await bench.carried.get()
        assert [events for _, events in bench.core.calls] == [[RequestCancelled(1)], [RequestCancelled(2)]]

    run(case)


def test_an_event_that_needs_no_decision_waits_for_company(run):
    async def case(bench: Bench) -> None:
        bench.mailbox.post_quietly(ReplyWritten(1, 5))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert bench.core.calls == []
        bench.mailbox.post(RequestCancelled(2))
        events, _ = await bench.carried.get()
        assert events == [ReplyWritten(1, 5), RequestCancelled(2)]

    run(case)


def test_the_core_is_woken_when_it_asked_for_it_and_not_before(run):
    async def case(bench: Bench) -> None:
        wanted = time.monotonic_ns() + ms(7)
        bench.core.wakeup = wanted
        bench.mailbox.post(RequestCancelled(1))
        await bench.carried.get()
        events, _ = await bench.carried.get()
        assert events == []
        assert bench.core.calls[1][0] >= wanted
        assert len(bench.core.calls) == 2

    run(case)


def test_an_earlier_wakeup_replaces_a_later_one_and_a_later_one_does_not_call_the_core_early(run):
    async def case(bench: Bench) -> None:
        far = time.monotonic_ns() + ms(10_000)
        bench.core.wakeup = far
        bench.mailbox.post(RequestCancelled(1))
        await bench.carried.get()
        bench.core.wakeup = time.monotonic_ns() + ms(2)
        bench.mailbox.post(RequestCancelled(2))
        await bench.carried.get()
        moved = bench.core.wakeup = time.monotonic_ns() + ms(6)
        bench.mailbox.post(RequestCancelled(3))
        await bench.carried.get()
        await bench.carried.get()
        assert [events for _, events in bench.core.calls][3] == []
        assert bench.core.calls[3][0] >= moved

    run(case)


def test_a_core_that_raises_is_told_of_once_and_nothing_is_handled_any_more(run):
    async def case(bench: Bench) -> None:
        bench.core.error = ValueError("broken")
        bench.mailbox.post(RequestCancelled(1))
        assert await bench.fatal is bench.core.error
        assert bench.raised == [bench.core.error]
        bench.mailbox.post(RequestCancelled(2))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(bench.core.calls) == 1

    run(case)


def test_effects_that_cannot_be_carried_out_are_fatal(run, caplog):
    async def case(bench: Bench) -> None:
        bench.break_carrying = True
        bench.mailbox.post(RequestCancelled(42))
        assert isinstance(await bench.fatal, KeyError)
        assert "RequestCancelled(request=42)" in caplog.text

    run(case)


def test_closing_handles_what_is_there_and_nothing_after_it(run):
    async def case(bench: Bench) -> None:
        bench.mailbox.post(RequestCancelled(1))
        bench.mailbox.close()
        assert len(bench.core.calls) == 1
        bench.mailbox.post(RequestCancelled(2))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(bench.core.calls) == 1

    run(case)


@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_unless_told_otherwise_a_broken_core_ends_the_process_with_code_1(factory):
    async def main() -> None:
        core = NotingCore()
        core.error = ValueError("broken")
        nothing: Any = lambda *_: None  # noqa: E731
        Mailbox(core, asyncio.get_running_loop(), time.monotonic_ns, nothing, nothing).post(RequestCancelled(1))
        await asyncio.get_running_loop().create_future()

    with asyncio.Runner(loop_factory=factory) as runner, pytest.raises(SystemExit) as ended:
        runner.run(main())
    assert ended.value.code == 1


def test_where_the_loop_stood_still_what_lies_in_the_sockets_is_read_before_the_clock_is(run):
    async def case(bench: Bench) -> None:
        loop = asyncio.get_running_loop()
        shift = 0
        bench.mailbox._clock = lambda: time.monotonic_ns() + shift
        ours, theirs = socket.socketpair()

        def answered() -> None:
            ours.recv(1)
            bench.mailbox.post(RequestCancelled(2))

        loop.add_reader(ours, answered)
        try:
            bench.mailbox.post(RequestCancelled(1))
            shift = seconds(5)  # in what the loop does before its turn comes
            theirs.send(b".")
            assert await bench.carried.get() == ([RequestCancelled(1), RequestCancelled(2)], [])
        finally:
            loop.remove_reader(ours)
            ours.close()
            theirs.close()

    run(case)
