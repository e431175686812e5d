"""Compressed bodies, in and out, and how large a body may be."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import Any

import pytest

from headway.config.settings import Limits
from headway.gateway import compression
from headway.gateway.edge import Edge
from tests.conformance.http_world import GOOD, Answer, FakeRuntime, message, run, world, x

INFER = "/v2/models/add/infer"
RAW = json.dumps(GOOD).encode()
SMALL = Limits(max_body_mb=1, max_json_mb=0.5)


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


PACKED: dict[str, tuple[str, bytes]] = {
    "gzip": ("gzip", gzip.compress(RAW)),
    "gzip by its old name, in capitals": ("X-GZIP", gzip.compress(RAW)),
    "deflate": ("deflate", zlib.compress(RAW)),
    "deflate without zlib's header": ("deflate", raw_deflate(RAW)),
    "identity": ("identity", RAW),
}


@pytest.mark.parametrize("case", PACKED)
def test_a_compressed_body_is_taken(case: str) -> None:
    async def scenario() -> None:
        async with world() as w:
            coding, body = PACKED[case]
            answer = await w.ask("POST", INFER, body, Content_Encoding=coding)
            assert (answer.status, answer.json["outputs"][0]["name"]) == (200, "y"), answer

    run(scenario())


@pytest.mark.parametrize("case", PACKED)
def test_it_may_come_byte_by_byte_and_in_chunks(case: str) -> None:
    async def scenario() -> None:
        async with world() as w:
            coding, body = PACKED[case]
            head = (
                f"POST {INFER} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Encoding: {coding}\r\n\r\n"
            )
            client = await w.connect()
            client.send(head.encode() + b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n")
            assert (await client.answer()).status == 200

    run(scenario())


BROKEN: dict[str, tuple[str, bytes, str]] = {
    "no gzip at all": ("gzip", RAW, "gzip"),
    "no deflate at all": ("deflate", b"\xff" * 50, "deflate"),
    "gzip cut short": ("gzip", gzip.compress(RAW)[:-9], "too early"),
    "one byte of gzip": ("gzip", b"\x1f", "too early"),
    "gzip with a wrong checksum": ("gzip", gzip.compress(RAW)[:-8] + b"\0" * 8, "check"),
    "gzip with something behind it": ("gzip", gzip.compress(RAW) + b"more", "follows"),
    "two gzips": ("gzip", gzip.compress(RAW) * 2, "follows"),
    "gzip called deflate": ("deflate", gzip.compress(RAW), "deflate"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_body_that_is_not_what_its_coding_says_is_a_400(case: str) -> None:
    async def scenario() -> None:
        async with world() as w:
            coding, body, says = BROKEN[case]
            answer = await w.ask("POST", INFER, body, Content_Encoding=coding)
            assert answer.status == 400, answer
            assert says in answer.json["error"]
            assert w.gateway._http.bodies.held == 0

    run(scenario())


@pytest.mark.parametrize("coding", ["br", "zstd", "compress", "gzip, gzip", "gzip, deflate", ""])
def test_other_codings_are_a_415_that_names_those_that_are_taken(coding: str) -> None:
    async def scenario() -> None:
        async with world() as w:
            answer = await w.ask("POST", INFER, RAW, Content_Encoding=coding)
            assert (answer.status, answer.json["code"]) == (415, "unsupported_encoding")
            assert "gzip" in answer.json["error"] and answer.headers["accept-encoding"] == "gzip, deflate"

    run(scenario())


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_a_bomb_is_refused_once_it_has_grown_beyond_the_limit(coding: str) -> None:
    """300 MiB of spaces in 300 KiB. `test_what_a_bomb_is_unpacked_to_is_bounded` says what it costs."""
    packed = gzip.compress(b" " * (300 << 20), 1) if coding == "gzip" else zlib.compress(b" " * (300 << 20), 1)

    async def scenario() -> None:
        async with world(limits=Limits(max_body_mb=4, max_json_mb=4)) as w:
            answer = await w.ask("POST", INFER, packed, Content_Encoding=coding)
            assert (answer.status, answer.json["code"]) == (413, "body_too_large")
            assert str(4 << 20) in answer.json["error"]
            assert w.gateway._http.bodies.held == 0
            assert (await w.infer("add", GOOD)).status == 200

    run(scenario())


def test_what_a_bomb_is_unpacked_to_is_bounded() -> None:
    inflater = compression.Inflater(b"gzip")
    pieces = inflater.feed(gzip.compress(b"\0" * (8 << 20)))
    assert len(next(pieces)) <= compression.STEP
    assert len(next(pieces)) <= compression.STEP


def test_what_is_unpacked_counts_towards_the_bound_on_all_bodies() -> None:
    async def scenario() -> None:
        async with world(limits=Limits(max_body_mb=2, max_json_mb=2, max_queued_mb=1)) as w:
            answer = await w.ask("POST", INFER, gzip.compress(b" " * (3 << 19)), Content_Encoding="gzip")
            assert (answer.status, answer.json["code"]) == (503, "overloaded")
            assert w.gateway._http.bodies.held == 0

    run(scenario())


# -- replies ------------------------------------------------------------------------------------------------------


def big(**headers: str) -> Any:
    """A reply of about 30 kB of JSON, from a server that compresses from 1 KiB on."""

    async def scenario() -> Answer:
        async with world(edge=Edge(compress_from=1024)) as w:
            return await w.ask("POST", INFER, x(2000), **headers)

    return run(scenario())


WEIGHED: dict[str, str | None] = {
    "gzip": "gzip",
    "deflate": "deflate",
    "gzip, deflate, br": "gzip",
    "deflate, gzip": "gzip",
    "gzip;q=0.5, deflate;q=0.8": "deflate",
    "gzip;q=0": None,
    "gzip;q=0, *": "deflate",
    "*": "gzip",
    "*;q=0": None,
    "br": None,
    "identity": None,
    "identity, gzip;q=0.5": None,
    "identity;q=0.5, gzip": "gzip",
    "GZIP ; Q=1.0": "gzip",
    "x-gzip": "gzip",
    "gzip;q=nonsense": None,
    "gzip;q=nan": None,
    "gzip;q=2": None,
    "": None,
    ",,;q=1,": None,
}


@pytest.mark.parametrize("accept", WEIGHED)
def test_of_the_codings_that_are_accepted_the_best_liked_is_taken(accept: str) -> None:
    chosen = compression.preferred(accept.encode())
    assert (chosen.decode() if chosen else None) == WEIGHED[accept]


@pytest.mark.parametrize(("coding", "wbits"), [("gzip", 31), ("deflate", 15)])
def test_a_large_reply_is_compressed_for_who_accepts_it(coding: str, wbits: int) -> None:
    plain, packed = big(), big(Accept_Encoding=coding)
    assert packed.headers["content-encoding"] == coding
    assert len(packed.body) < len(plain.body) / 2
    assert json.loads(zlib.decompress(packed.body, wbits)) == plain.json
    assert "content-encoding" not in plain.headers
    assert plain.headers["vary"] == packed.headers["vary"] == "accept-encoding"


def test_a_small_reply_is_not() -> None:
    async def scenario() -> None:
        async with world(edge=Edge(compress_from=1024)) as w:
            answer = await w.ask("GET", "/v2", Accept_Encoding="gzip")
            assert "content-encoding" not in answer.headers and answer.json["name"] == "headway"

    run(scenario())


def test_what_does_not_get_smaller_goes_as_it_is() -> None:
    noise = bytes((n * n * 7919 >> 8) & 255 for n in range(5000))
    noise = zlib.compress(noise * 3, 9) if len(zlib.compress(noise)) < 4000 else noise

    async def scenario() -> None:
        async with world(metrics=lambda: (b"a/b", noise), edge=Edge(compress_from=1)) as w:
            answer = await w.ask("GET", "/metrics", Accept_Encoding="gzip")
            assert ("content-encoding" in answer.headers) == (len(zlib.compress(noise, 1)) + 12 < len(noise))

    run(scenario())


def test_a_very_large_reply_is_compressed_beside_the_loop_and_its_order_kept() -> None:
    page = b"".join(b"line %d\n" % n for n in range(400_000))

    async def scenario() -> None:
        async with world(metrics=lambda: (b"text/plain", page), edge=Edge(compress_from=1024)) as w:
            client = await w.connect()
            asks = message("GET", "/metrics", Accept_Encoding="gzip") + message("GET", "/v2")
            client.send(asks + message("HEAD", "/metrics", Accept_Encoding="gzip"))
            first, second, third = await client.answer(), await client.answer(), await client.answer(head=True)
            assert gzip.decompress(first.body) == page
            assert second.json["name"] == "headway"
            assert third.headers["content-length"] == first.headers["content-length"]

    run(scenario())


def test_a_client_that_leaves_while_its_reply_is_compressed_harms_nobody() -> None:
    page = b"a" * 30_000_000

    async def scenario() -> None:
        async with world(metrics=lambda: (b"text/plain", page), edge=Edge(compress_from=1024)) as w:
            client = await w.connect()
            client.send(message("GET", "/metrics", Accept_Encoding="gzip"))
            client.writer.transport.abort()
            assert (await w.ask("GET", "/metrics", Accept_Encoding="gzip")).status == 200

    run(scenario())


def test_streams_are_never_compressed() -> None:
    async def scenario() -> None:
        runtime = FakeRuntime(answer=None)
        async with world(runtime, edge=Edge(compress_from=0)) as w:
            from headway.wire.messages import Submit

            client = await w.connect()
            client.send(message("POST", "/v2/models/talk/generate_stream", {"a": 1}, Accept_Encoding="gzip"))
            request = (await runtime.next(Submit)).request
            runtime.chunk(request, 0, "one")
            _, headers = await client.head()
            assert "content-encoding" not in headers
            assert await client.chunk() == b'data: "one"\n\n'

    run(scenario())


# -- sizes --------------------------------------------------------------------------------------------------------


def test_json_beyond_its_limit_is_refused_with_the_way_out() -> None:
    async def scenario() -> None:
        async with world(limits=SMALL) as w:
            client = await w.connect()
            client.send(b"POST /v2/models/add/infer HTTP/1.1\r\nHost: a\r\nContent-Length: 600000\r\n\r\n")
            answer = await client.answer()
            assert (answer.status, answer.json["code"]) == (413, "body_too_large")
            for word in ("600000", "524288", "1048576", "Inference-Header-Content-Length"):
                assert word in answer.json["error"]

    run(scenario())


@pytest.mark.parametrize("header", ["600000", "-1", "x", "9" * 30])
def test_a_binary_request_may_be_larger_but_not_its_json(header: str) -> None:
    async def scenario() -> None:
        async with world(limits=SMALL) as w:
            client = await w.connect()
            head = b"POST /v2/models/add/infer HTTP/1.1\r\nHost: a\r\nContent-Length: 600000\r\n"
            client.send(head + b"Inference-Header-Content-Length: %b\r\n\r\n" % header.encode())
            answer = await client.answer()
            assert (answer.status, answer.json["code"]) == (413, "body_too_large")
            assert "524288" in answer.json["error"]
            client = await w.connect()
            client.send(head + b"Inference-Header-Content-Length: 100\r\nExpect: 100-continue\r\n\r\n")
            assert (await client.head())[0] == 100

    run(scenario())


def test_a_header_of_the_binary_extension_opens_no_other_route_to_large_json() -> None:
    async def scenario() -> None:
        async with world(limits=SMALL) as w:
            client = await w.connect()
            head = b"POST /v1/embeddings HTTP/1.1\r\nHost: a\r\nContent-Length: 600000\r\n"
            client.send(head + b"Inference-Header-Content-Length: 100\r\n\r\n")
            assert (await client.answer()).status == 413

    run(scenario())


def test_a_refusal_of_an_openai_route_has_its_shape() -> None:
    async def scenario() -> None:
        async with world(limits=SMALL) as w:
            client = await w.connect()
            client.send(b"POST /v1/embeddings HTTP/1.1\r\nHost: a\r\nContent-Length: 600000\r\n\r\n")
            answer = await client.answer()
            assert answer.json["error"]["code"] == "body_too_large"
            assert answer.json["error"]["type"] == "invalid_request_error"

    run(scenario())


def test_chunk_extensions_without_end_are_refused() -> None:
    async def scenario() -> None:
        async with world(limits=Limits(max_header_kb=8)) as w:
            client = await w.connect()
            head = b"POST /v2/models/add/infer HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n"
            client.send(head + b"Expect: 100-continue\r\n\r\n")
            assert (await client.head())[0] == 100
            client.send(b"1;")
            for _ in range(20):
                client.send(b"a" * 1000)
                await client.writer.drain()
            answer = await client.answer()
            assert (answer.status, answer.json["code"]) == (400, "malformed_http")

    run(scenario())


def test_a_body_in_tiny_chunks_takes_no_more_memory_than_its_size() -> None:
    from headway.gateway.budget import BodyBudget
    from headway.gateway.exchange import Request
    from headway.gateway.reading import Reader

    whole: list[Request] = []
    reader = Reader(Limits(), whole.append, BodyBudget(1 << 30))
    reader.feed(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
    for _ in range(2000):
        reader.feed(b"2\r\nab\r\n" * 10)
    assert len(reader._body) <= 2, "not an object for each of 20,000 chunks"
    reader.feed(b"0\r\n\r\n")
    assert whole[0].body == b"ab" * 20_000
