"""The fuzzer over raw sockets, a little of it each time: `make fuzz` does the whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.replies import Malformed, replies
from tests.fuzz.sockets import fuzz

pytestmark = pytest.mark.e2e


def test_a_few_hundred_spoiled_connections_harm_nobody(tmp_path: Path) -> None:
    assert fuzz(tmp_path, 400, seed=7)


@pytest.mark.parametrize(
    "data",
    [
        b"nonsense",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nab",
        b"HTTP/1.1 200 OK\r\nbad header\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nabc",
    ],
)
def test_what_is_no_reply_is_not_taken_for_one(data: bytes) -> None:
    with pytest.raises(Malformed):
        list(replies(data))
