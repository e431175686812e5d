"""Keys: made once, never kept, and compared the same way whatever is wrong with them."""

from __future__ import annotations

import contextlib
import hmac
import tracemalloc
from hashlib import sha256
from typing import Any

import pytest

from headway.config.settings import Settings
from headway.config.tenants import KeySettings, TenantSettings
from headway.gateway import keys
from headway.gateway.access import Access
from headway.gateway.errors import Unauthenticated
from headway.gateway.exchange import Request
from headway.gateway.keys import Keyring, new_key

KEY = new_key("k1")
RING: Keyring[str] = Keyring([(KEY.settings, "acme")])
ID, SECRET = KEY.text.encode().removeprefix(b"hw_").split(b"_", 1)

MALFORMED = {
    "nothing": b"",
    "a prefix only": b"hw_",
    "no secret": b"hw_k1",
    "an empty secret": b"hw_k1_",
    "no id": b"hw__" + SECRET,
    "no prefix": b"k1_" + SECRET,
    "the secret alone": SECRET,
    "another secret": b"hw_k1_" + b"x" * len(SECRET),
    "a secret that is cut": KEY.text.encode()[:-1],
    "a secret with more behind it": KEY.text.encode() + b"x",
    "two keys in one header": KEY.text.encode() + b", " + KEY.text.encode(),
    "an unknown id": b"hw_k2_" + SECRET,
    "another case": KEY.text.encode().swapcase(),
    "not ASCII": "hw_k1_\u00fc\u4e16".encode(),
    "no text at all": bytes(range(128, 256)),
    "the hash instead of the secret": b"hw_k1_" + KEY.settings.sha256.encode(),
    "huge": b"hw_k1_" + b"A" * 60_000,
    "a huge id": b"hw_" + b"A" * 60_000 + b"_x",
}


def test_a_key_is_256_random_bits_of_which_the_server_is_told_a_hash() -> None:
    one, other = new_key(), new_key()
    id, secret = one.text.removeprefix("hw_").split("_", 1)
    assert one.settings == KeySettings(id, sha256(secret.encode()).hexdigest())
    assert len(secret) == 43  # 256 bits at 6 a character
    assert one.text != other.text and one.settings.id != other.settings.id
    assert secret not in repr(one.settings)


@pytest.mark.parametrize(
    "headers",
    [
        {b"authorization": b"Bearer " + KEY.text.encode()},
        {b"authorization": b"bearer  " + KEY.text.encode() + b" "},
        {b"x-api-key": KEY.text.encode()},
        {b"x-api-key": KEY.text.encode(), b"authorization": b"Bearer " + KEY.text.encode()},
        {b"x-api-key": KEY.text.encode(), b"authorization": b"Basic dTpw"},
    ],
)
def test_a_key_is_found_in_either_header(headers: dict[bytes, bytes]) -> None:
    assert RING.owner(headers) == "acme"


@pytest.mark.parametrize("case", MALFORMED)
@pytest.mark.parametrize("header", [b"x-api-key", b"authorization"])
def test_whatever_is_no_key_of_ours_is_refused_in_the_same_words(case: str, header: bytes) -> None:
    presented = MALFORMED[case]
    if not presented:
        header = b"x-api-key"  # of Bearer with nothing behind it there is more to say
    with pytest.raises(Unauthenticated) as caught:
        RING.owner({header: presented if header == b"x-api-key" else b"Bearer " + presented})
    assert str(caught.value) == "the key is not one of this server's"
    assert caught.value.headers == ((b"www-authenticate", b'Bearer realm="headway", error="invalid_token"'),)


def test_no_key_and_two_keys_that_disagree_are_told_apart() -> None:
    for headers, words in (
        ({}, "there is no key"),
        ({b"authorization": b"Basic dTpw"}, "another scheme than Bearer"),
        ({b"authorization": b"Bearer "}, "nothing after 'Bearer'"),
        ({b"authorization": b"Bearer", b"x-api-key": b""}, "nothing after 'Bearer'"),
        ({b"x-api-key": b"hw_a_b", b"authorization": b"Bearer " + KEY.text.encode()}, "different keys"),
    ):
        with pytest.raises(Unauthenticated, match=words):
            RING.owner(headers)


@pytest.mark.parametrize("presented", [KEY.text.encode(), *MALFORMED.values()], ids=["right", *MALFORMED])
def test_every_key_costs_one_comparison_of_32_bytes(monkeypatch: pytest.MonkeyPatch, presented: bytes) -> None:
    compared: list[tuple[int, int]] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((len(one), len(other)))
        return hmac.compare_digest(one, other)

    monkeypatch.setattr(keys, "compare_digest", compare)
    with contextlib.suppress(Unauthenticated):
        RING.owner({b"x-api-key": presented})
    assert compared == [(32, 32)]


def test_ten_thousand_unknown_keys_leave_nothing_behind() -> None:
    access = Access(Settings(tenants={"acme": TenantSettings(keys=(KEY.settings,))}))

    def ask(number: int) -> None:
        request = Request(b"GET", b"/v2", {b"x-api-key": b"hw_%d_%064d" % (number, number)}, "1.1")
        assert access.if_known(request) is None

    for number in range(100):
        ask(number)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(10_000):
            ask(number)
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 10_000  # a byte per key


def test_no_error_repeats_what_was_sent() -> None:
    secret = "s3cr3t" * 8
    sent: list[dict[bytes, Any]] = [
        {b"x-api-key": f"hw_k1_{secret}".encode()},
        {b"authorization": f"Bearer {secret}".encode()},
        {b"authorization": f"Basic {secret}".encode()},
        {b"authorization": secret.encode(), b"x-api-key": f"hw_{secret}".encode()},
    ]
    for headers in sent:
        with pytest.raises(Unauthenticated) as caught:
            RING.owner(headers)
        assert "s3cr3t" not in repr((caught.value, caught.value.headers))
