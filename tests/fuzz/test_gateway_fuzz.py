"""Mutated bytes and mutated JSON, without sockets: nothing raises, nothing is a 500, and the server goes on."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headway.config.settings import Server, Settings
from headway.config.tenants import TenantSettings
from headway.gateway.access import Access
from headway.gateway.admin import AdminGate
from headway.gateway.connection import Connection
from headway.gateway.gateway import Gateway
from headway.gateway.keys import new_key
from headway.wire.messages import Cancel, Submit, ToRuntime, VersionStatus
from tests.conformance.http_world import LIMITS, MODELS, message, model, tensor, x

GOOD = [
    message("POST", "/v2/models/add/infer", x(2, id="a", outputs=[{"name": "y"}], parameters={"priority": 1})),
    message("GET", "/v2/models/add/versions/1", X_Request_Id="abc"),
    message("POST", "/v2/models/talk/generate_stream", {"text_input": "a"}, Expect="100-continue"),
    b'POST /v2/models/add/infer HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{"a":\r\n0\r\n\r\n',
    message("POST", "/v1/embeddings", {"model": "add", "input": "a"}, Connection="Upgrade", Upgrade="h2c"),
]
SPICE = [b"\r\n", b"\n", b"\0", b"%", b"/", b"\xff", b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n", b"["]


class FakeTransport:
    """Takes everything at once."""

    def __init__(self) -> None:
        self.written = bytearray()
        self.closed = False

    def write(self, data: bytes) -> None:
        assert not self.closed, "nothing is written after the end"
        self.written += data

    def close(self) -> None:
        self.closed = True

    abort = write_eof = close

    def can_write_eof(self) -> bool:
        return True

    def get_extra_info(self, name: str) -> None: ...

    def set_write_buffer_limits(self, high: int) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


def new_gateway(settings: Settings = Settings(), sent: list[ToRuntime] | None = None) -> Gateway:  # noqa: B008
    send = (lambda message: None) if sent is None else sent.append
    access, gate = Access(settings), AdminGate(settings.server)
    gateway = Gateway([model(name, 1) for name in MODELS], send, limits=LIMITS, access=access, gate=gate)
    for name, meta in MODELS.items():
        gateway.deliver(VersionStatus(name, 1, "ready", meta))
    return gateway


GATEWAY = new_gateway()
KEY, ADMIN = new_key("k1"), new_key("boss")
SENT: list[ToRuntime] = []
KEYED = new_gateway(
    Settings(server=Server(admin_keys=(ADMIN.settings,)), tenants={"acme": TenantSettings(keys=(KEY.settings,))}), SENT
)


def exchange(*pieces: bytes, gateway: Gateway = GATEWAY) -> FakeTransport:
    transport = FakeTransport()
    connection = Connection(gateway._http)
    connection.connection_made(transport)  # type: ignore[arg-type]
    for piece in pieces:
        if not transport.closed:
            connection.data_received(piece)
    connection.connection_lost(None)
    assert gateway._http.bodies.held == 0, "room for a body was not given back"
    return transport


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    data = bytearray(draw(st.sampled_from(GOOD)) + draw(st.sampled_from([b"", *GOOD])))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        cut = draw(st.integers(0, 8))
        data[at : at + cut] = draw(st.one_of(st.sampled_from(SPICE), st.binary(max_size=4)))
    return bytes(data)


@settings(deadline=None, max_examples=400)
@given(data=mutated(), cuts=st.lists(st.integers(0, 400), max_size=4))
def test_no_bytes_make_the_server_raise_or_blame_itself(data: bytes, cuts: list[int]) -> None:
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    transport = exchange(*(data[start:end] for start, end in pairwise(edges)))
    assert b"HTTP/1.1 500" not in transport.written
    assert b"HTTP/1.1 200" in exchange(message("GET", "/health")).written


@settings(deadline=None, max_examples=400)
@given(data=mutated())
def test_no_bytes_get_past_the_keys(data: bytes) -> None:
    transport = exchange(data.replace(b"Host: ", b"X-Api-Key: hw_k1_x\r\nHost: "), gateway=KEYED)
    assert SENT == []
    assert b"HTTP/1.1 500" not in transport.written and b"HTTP/1.1 200" not in transport.written
    with_key = message("POST", "/v2/models/add/infer", x(), X_Api_Key=KEY.text)
    exchange(with_key, gateway=KEYED)
    assert [type(message) for message in SENT] == [Submit, Cancel]
    SENT.clear()


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
    | st.sampled_from(["x", "bias", "y", "FP32", "INT64", "BYTES"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=6,
)


@st.composite
def infer_bodies(draw: st.DrawFn) -> dict[str, Any]:
    """A good body with some of its members replaced by anything."""
    entry = tensor("x", "FP32", [1, 2], [1, 2], parameters={})
    body: dict[str, Any] = {"inputs": [entry], "outputs": [{"name": "y"}], "parameters": {"a": 1}, "id": "a"}
    places = [entry, body, body["outputs"][0]]
    for _ in range(draw(st.integers(1, 2))):
        place = draw(st.sampled_from(places))
        place[draw(st.sampled_from(list(place)))] = draw(VALUES)
    return body


@settings(deadline=None, max_examples=400)
@given(body=infer_bodies())
def test_no_infer_body_is_answered_by_a_500(body: dict[str, Any]) -> None:
    raw = json.dumps(body, allow_nan=False, ensure_ascii=True).encode()
    written = exchange(message("POST", "/v2/models/add/infer", raw)).written
    assert not written or written.startswith((b"HTTP/1.1 4", b"HTTP/1.1 2")), bytes(written)


@settings(deadline=None, max_examples=100)
@given(sizes=st.lists(st.integers(1, 60), min_size=1, max_size=50))
def test_how_the_bytes_are_split_does_not_matter(sizes: list[int]) -> None:
    data = GOOD[1] * 3 + message("GET", "/v2", Connection="close")
    whole = exchange(data).written
    pieces, at = [], 0
    for size in sizes:
        pieces.append(data[at : at + size])
        at += size
    split = exchange(*pieces, data[at:]).written
    assert without_ids(bytes(whole)) == without_ids(bytes(split))


def without_ids(written: bytes) -> list[bytes]:
    return [line for line in written.split(b"\r\n") if not line.startswith((b"x-request-id", b"date"))]
