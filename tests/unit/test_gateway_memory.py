from __future__ import annotations

import gc

from headway.gateway.connection import Connection
from headway.gateway.exchange import Request
from headway.gateway.gateway import Gateway
from headway.wire.messages import Submit, ToRuntime, VersionStatus
from tests.conformance.http_world import ADD, GOOD, echo, message, model
from tests.fuzz.test_gateway_fuzz import FakeTransport


def test_an_answered_request_leaves_nothing_for_the_garbage_collector() -> None:
    def send(to_runtime: ToRuntime) -> None:
        if isinstance(to_runtime, Submit):
            gateway.deliver(echo(to_runtime))

    gateway = Gateway([model("add", 1)], send)
    gateway.deliver(VersionStatus("add", 1, "ready", ADD))
    connection = Connection(gateway._http)
    connection.connection_made(FakeTransport())  # type: ignore[arg-type]
    gc.collect()
    gc.disable()
    try:
        for _ in range(5):
            connection.data_received(message("POST", "/v2/models/add/infer", GOOD))
        assert [kept for kept in gc.get_objects() if isinstance(kept, Request)] == []
    finally:
        gc.enable()
    assert gateway.in_flight == 0
