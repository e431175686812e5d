"""Reads what a server sent on one connection, strictly: replies, one after the other, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) [^\r\n]*")
FIELD = re.compile(rb"([a-z0-9-]+): ([^\r\n]*)")


class Malformed(Exception):
    """The server broke HTTP."""


class Reply(NamedTuple):
    status: int
    headers: dict[bytes, bytes]
    body: bytes


def replies(data: bytes) -> Iterator[Reply]:
    """Raises Malformed; a last reply that was cut off is one. No reply to HEAD may be among them."""
    while data:
        head, end, rest = data.partition(b"\r\n\r\n")
        first, *lines = head.split(b"\r\n")
        status, fields = STATUS.fullmatch(first), [FIELD.fullmatch(line) for line in lines]
        if not end or status is None or None in fields:
            raise Malformed(f"no reply: {data[:300]!r}")
        headers = {field[1]: field[2] for field in fields if field is not None}
        if status[1] == b"100":
            if headers:
                raise Malformed("100 with headers")
            data = rest
            continue
        body, data = framed(headers, rest)
        yield Reply(int(status[1]), headers, body)


def framed(headers: dict[bytes, bytes], rest: bytes) -> tuple[bytes, bytes]:
    """The body, and what follows it."""
    if headers.get(b"transfer-encoding") == b"chunked":
        return dechunked(rest)
    if b"content-length" in headers:
        length = int(headers[b"content-length"])
        if len(rest) < length:
            raise Malformed(f"{len(rest)} of {length} bytes of a body")
        return rest[:length], rest[length:]
    if headers.get(b"connection") != b"close":
        raise Malformed(f"a body without an end: {headers}")
    return rest, b""


def dechunked(rest: bytes) -> tuple[bytes, bytes]:
    body = b""
    while True:
        size, end, rest = rest.partition(b"\r\n")
        if not end or not re.fullmatch(rb"[0-9a-f]+", size):
            raise Malformed(f"no chunk: {size[:50]!r}")
        count = int(size, 16)
        if rest[count : count + 2] != b"\r\n":
            raise Malformed("a chunk that is cut off")
        body, rest = body + rest[:count], rest[count + 2 :]
        if not count:
            return body, rest
