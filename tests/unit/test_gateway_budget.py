"""Bodies of all connections together are bounded, and what was reserved for one is given back however it ends."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headway.config.settings import Limits
from headway.core.outcomes import Outcome
from headway.gateway.connection import Connection
from headway.gateway.exchange import Pending, Response
from headway.gateway.gateway import Gateway
from headway.wire.messages import Submit, ToRuntime, VersionStatus
from tests.conformance.http_world import ADD, GOOD, TALK, done, echo, failed, message, model
from tests.fuzz.test_gateway_fuzz import FakeTransport

BOUND = 2_000
INFER = message("POST", "/v2/models/add/infer", GOOD)
BODY = INFER.partition(b"\r\n\r\n")[2]
LIMITS = Limits(max_body_mb=1_000 / 2**20, max_queued_mb=BOUND / 2**20, body_timeout_s=10)


class Edge:
    """A gateway without sockets; the runtime answers when it is told to."""

    def __init__(self) -> None:
        self.submitted: list[Submit] = []
        self.gateway = Gateway([model("add", 1), model("talk", 1)], self._send, limits=LIMITS)
        self.gateway.deliver(VersionStatus("add", 1, "ready", ADD))
        self.gateway.deliver(VersionStatus("talk", 1, "ready", TALK))
        self.http = self.gateway._http

    def _send(self, message: ToRuntime) -> None:
        if isinstance(message, Submit):
            self.submitted.append(message)

    @property
    def held(self) -> int:
        return self.http.bodies.held

    def connect(self) -> tuple[Connection, FakeTransport]:
        connection, transport = Connection(self.http), FakeTransport()
        connection.connection_made(transport)  # type: ignore[arg-type]
        return connection, transport


def head(length: int, *more: str) -> bytes:
    lines = ["POST /v2/models/add/infer HTTP/1.1", "Host: a", f"Content-Length: {length}", *more]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


CHUNKED = head(0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def assert_overloaded(transport: FakeTransport) -> None:
    top, _, body = bytes(transport.written).partition(b"\r\n\r\n")
    error: dict[str, Any] = json.loads(body)
    assert top.startswith(b"HTTP/1.1 503")
    assert b"retry-after: 1" in top and b"connection: close" in top
    assert (error["code"], error["retryable"]) == ("overloaded", True)
    assert str(BOUND) in error["error"]


def test_a_body_that_does_not_fit_beside_the_others_is_refused_before_it_is_read() -> None:
    edge = Edge()
    first, second, third = edge.connect(), edge.connect(), edge.connect()
    first[0].data_received(head(900))
    second[0].data_received(head(900))
    assert edge.held == 1_800
    third[0].data_received(head(201, "Expect: 100-continue"))
    assert_overloaded(third[1])
    assert edge.held == 1_800
    first[0].connection_lost(None)
    fourth = edge.connect()
    fourth[0].data_received(head(900))
    assert not fourth[1].written
    assert edge.held == 1_800


def test_a_body_of_unknown_length_is_counted_as_it_comes() -> None:
    edge = Edge()
    others = [edge.connect() for _ in range(2)]
    for connection, _ in others:
        connection.data_received(head(900))
    late, transport = edge.connect()
    late.data_received(CHUNKED + chunk(b" " * 150))
    assert edge.held == 1_950
    late.data_received(chunk(b" " * 51))
    assert_overloaded(transport)
    assert edge.held == 1_800


def test_a_request_that_the_runtime_has_does_not_count_any_more() -> None:
    edge = Edge()
    connection, _ = edge.connect()
    for _ in range(5):
        connection.data_received(INFER)
    assert len(edge.submitted) == 5
    assert edge.held == 0


def test_requests_that_wait_for_their_turn_on_a_connection_count_until_it_comes() -> None:
    edge = Edge()
    connection, _ = edge.connect()
    connection.data_received(INFER * 18)  # 16 may be in work
    assert len(edge.submitted) == 16
    assert edge.held == 2 * len(BODY)
    edge.gateway.deliver(echo(edge.submitted[0]))
    assert edge.held == len(BODY)
    connection.connection_lost(None)
    assert edge.held == 0


@pytest.mark.parametrize("answered", [True, False])
def test_a_request_that_the_gateway_itself_works_on_counts_until_it_is_answered_or_its_client_leaves(
    answered: bool,
) -> None:
    """As those whose text is being tokenised."""
    edge = Edge()
    pending = Pending()
    edge.http.handler = lambda request: pending
    connection, transport = edge.connect()
    connection.data_received(INFER)
    assert edge.held == len(BODY)
    if answered:
        pending.complete(Response(200, b"{}"))
        assert b"HTTP/1.1 200" in transport.written
    else:
        connection.connection_lost(None)
    assert edge.held == 0


@pytest.mark.parametrize("end", ["lost", "late", "malformed"])
def test_a_body_that_never_comes_whole_gives_its_room_back(end: str) -> None:
    edge = Edge()
    connection, transport = edge.connect()
    connection.data_received(CHUNKED + chunk(b"half"))
    assert edge.held == 4
    if end == "lost":
        connection.connection_lost(None)
    elif end == "late":
        connection.check_time(100.0)
        assert b"HTTP/1.1 408" in transport.written
    else:
        connection.data_received(b"nonsense\r\n")
        assert b"HTTP/1.1 400" in transport.written
    assert edge.held == 0


class Room(RuleBasedStateMachine):
    """Some connections, and everything that can become of their requests, in any order."""

    @initialize()
    def begin(self) -> None:
        self.edge = Edge()
        self.open: list[tuple[Connection, FakeTransport]] = []

    @rule()
    def connect(self) -> None:
        if len(self.open) < 4:
            self.open.append(self.edge.connect())

    def feed(self, which: int, data: bytes) -> None:
        if not self.open:
            return
        connection, transport = self.open[which % len(self.open)]
        if transport.closed:
            self.lose(which)
        else:
            connection.data_received(data)

    @rule(which=st.integers(0, 3), count=st.integers(1, 20), cut=st.integers(0, 300))
    def whole(self, which: int, count: int, cut: int) -> None:
        self.feed(which, (INFER * count)[cut:])

    @rule(which=st.integers(0, 3), length=st.integers(0, 1_100), sent=st.integers(0, 1_100))
    def announced(self, which: int, length: int, sent: int) -> None:
        self.feed(which, head(length) + b" " * sent)

    @rule(which=st.integers(0, 3), pieces=st.lists(st.integers(1, 400), max_size=4), ends=st.booleans())
    def chunked(self, which: int, pieces: list[int], ends: bool) -> None:
        self.feed(which, CHUNKED + b"".join(chunk(b" " * size) for size in pieces) + b"0\r\n\r\n" * ends)

    @rule(which=st.integers(0, 3), length=st.integers(0, 500))
    def upgrade(self, which: int, length: int) -> None:
        self.feed(which, head(length, "Connection: Upgrade", "Upgrade: h2c") + b" " * (length // 2))

    @rule(which=st.integers(0, 3), data=st.sampled_from([b"\0", b" " * 300, b"\r\n\r\n"]))
    def anything(self, which: int, data: bytes) -> None:
        self.feed(which, data)

    @precondition(lambda self: self.edge.submitted)
    @rule(which=st.integers(0, 30), how=st.sampled_from(["answer", "fail", "empty"]))
    def reply(self, which: int, how: str) -> None:
        submit = self.edge.submitted.pop(which % len(self.edge.submitted))
        replies = {
            "answer": echo(submit),
            "fail": failed(submit.request, Outcome.OVERLOADED),
            "empty": done(submit.request),
        }
        self.edge.gateway.deliver(replies[how])

    @rule(which=st.integers(0, 3))
    def time_passes(self, which: int) -> None:
        if self.open:
            self.open[which % len(self.open)][0].check_time(1e6)

    @rule(which=st.integers(0, 3))
    def lose(self, which: int) -> None:
        if self.open:
            connection, transport = self.open.pop(which % len(self.open))
            transport.closed = True
            connection.connection_lost(None)

    @invariant()
    def what_is_held_is_within_the_bound_and_somebodys(self) -> None:
        assert 0 <= self.edge.held <= BOUND
        if not any(connection._reader.mid_request or connection._backlog for connection, _ in self.open):
            assert self.edge.held == 0

    def teardown(self) -> None:
        for connection, transport in self.open:
            transport.closed = True
            connection.connection_lost(None)
        assert self.edge.held == 0


Room.TestCase.settings = settings(max_examples=150, stateful_step_count=25, deadline=None)
TestRoomIsGivenBackHoweverARequestEnds = Room.TestCase
