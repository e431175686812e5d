"""Requests of every kind there is, and ways to spoil them. Everything follows from the random numbers given."""

from __future__ import annotations

import gzip
import json
import random
import zlib
from collections.abc import Callable

TENSOR = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}
INFER = {"inputs": [TENSOR], "outputs": [{"name": "y"}], "parameters": {"priority": 1}, "id": "a"}
BODY = json.dumps(INFER).encode()
PATH = "/v2/models/affine/infer"


def post(path: str, body: bytes, *headers: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: a", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def chunked(path: str, body: bytes, step: int, *headers: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: a", "Transfer-Encoding: chunked", *headers]
    pieces = [body[at : at + step] for at in range(0, len(body), step)]
    framed = b"".join(b"%x;a=b\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + framed + b"0\r\nX-Trailer: a\r\n\r\n"


def get(path: str, *headers: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: a", *headers]).encode() + b"\r\n\r\n"


GOOD: list[bytes] = [
    post(PATH, BODY),
    post(PATH, BODY, "Expect: 100-continue"),
    post(PATH, gzip.compress(BODY, mtime=0), "Content-Encoding: gzip"),
    post(PATH, zlib.compress(BODY), "Content-Encoding: deflate", "Accept-Encoding: gzip;q=0.5, *;q=0.1"),
    chunked(PATH, BODY, 7),
    chunked(PATH, gzip.compress(BODY, mtime=0), 30, "Content-Encoding: gzip"),
    post(PATH, BODY, f"Inference-Header-Content-Length: {len(BODY)}"),
    post(PATH, BODY, "X-Request-Timeout-Ms: 5000", "X-Priority: 2", "X-Request-Id: abc", "X-Tenant: t"),
    post(PATH, BODY, "Idempotency-Key: k"),
    post(PATH, gzip.compress(BODY, mtime=0), "Content-Encoding: gzip", "Idempotency-Key: k", "X-Request-Timeout-Ms: 1"),
    post(PATH, BODY, "Connection: Upgrade", "Upgrade: h2c"),
    post("/v2/models/affine/versions/1/infer", BODY, "Connection: close"),
    post("/v2/models/counter/generate_stream", b'{"count": 3}'),
    post("/v2/models/counter/generate", b'{"count": 3}'),
    post("/v1/embeddings", b'{"model": "affine", "input": ["one", "two"]}'),
    get("/v2/models/affine", "Authorization: Bearer hw_abc_def", "X-Api-Key: hw_abc_def"),
    get("/v1/models/affine?a=b#c", "X-Forwarded-For: 1.2.3.4, 5.6.7.8", "Forwarded: for=1.2.3.4"),
    get("/v2/models/affine/explain"),
    get("/metrics", "Accept-Encoding: gzip"),
    post("/reload", b""),
    get("/ready", "Origin: https://a.example"),
    b"OPTIONS /v2 HTTP/1.1\r\nHost: a\r\nOrigin: https://a.example\r\nAccess-Control-Request-Method: POST\r\n\r\n",
    b"GET http://a/health HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET /health HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
]
SPICE: list[bytes] = [
    *(
        b"\r\n",
        b"\n",
        b"\r",
        b"\0",
        b"%",
        b"%00",
        b"/",
        b"//",
        b"..",
        b"\xff",
        b"\t",
        b" ",
        b":",
        b";",
        b",",
        b"#",
        b"?",
    ),
    *(b"0\r\n\r\n", b"\r\n\r\n", b"ffffffffffffffff\r\n", b" folded\r\n", b"X: y\r\n" * 150, b"A" * 9000, b"9" * 400),
    *(b"HTTP/1.1", b"HTTP/2.0", b"GET", b"CONNECT", b"Host: b\r\n", b"Upgrade: h2c\r\n", b"Connection: close\r\n"),
    *(b"Content-Length: 5\r\n", b"Content-Length: 99999999999999999999\r\n", b"Transfer-Encoding: chunked\r\n"),
    *(b"Transfer-Encoding: gzip\r\n", b"Content-Encoding: gzip\r\n", b"Expect: 100-continue\r\n"),
    *(b"[" * 300, b"{", b'"', b"1e999", b"NaN", b"-1", b"\\ud800", b"null", b"true", b"[]", b"{}", b"1.5", b"\x1f\x8b"),
]

Mutation = Callable[[bytearray, random.Random], None]


def insert(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data) + 1)
    data[at:at] = rng.choice(SPICE)


def overwrite(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data) + 1)
    spice = rng.choice(SPICE)
    data[at : at + len(spice)] = spice


def flip(data: bytearray, rng: random.Random) -> None:
    for _ in range(rng.randint(1, 5)):
        if data:
            data[rng.randrange(len(data))] = rng.randrange(256)


def cut(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data) + 1)
    del data[at : at + rng.choice([1, 2, 10, 1000])]


def repeat(data: bytearray, rng: random.Random) -> None:
    at, count = rng.randrange(len(data) + 1), rng.choice([5, 50, 500])
    data[at:at] = data[at : at + count] * rng.choice([1, 2, 20])


def swap_lines(data: bytearray, rng: random.Random) -> None:
    lines = data.split(b"\r\n")
    first, second = rng.randrange(len(lines)), rng.randrange(len(lines))
    lines[first], lines[second] = lines[second], lines[first]
    data[:] = b"\r\n".join(lines)


MUTATIONS: list[Mutation] = [insert, overwrite, flip, cut, repeat, swap_lines]


def spoiled(rng: random.Random) -> bytes:
    """One to three requests, spoiled in up to five ways; one in ten is good."""
    data = bytearray(b"".join(rng.choice(GOOD) for _ in range(rng.choice([1, 1, 1, 2, 3]))))
    for _ in range(rng.choice([0, 1, 1, 1, 1, 2, 2, 3, 4, 5])):
        rng.choice(MUTATIONS)(data, rng)
    return bytes(data).replace(b"HEAD", b"GET")  # replies to HEAD cannot be told from others


def pieces(data: bytes, rng: random.Random) -> list[bytes]:
    """As it is sent: whole, or in a few writes."""
    edges = sorted(rng.randrange(len(data) + 1) for _ in range(rng.choice([0, 0, 1, 3])))
    return [data[a:b] for a, b in zip([0, *edges], [*edges, len(data)], strict=True)]
