"""API keys: `hw_ID_SECRET`, in `Authorization: Bearer` or in `x-api-key`.

The server knows the id and the SHA-256 of the secret, which has 256 random bits: nothing slower is needed against
guessing, and whoever reads the configuration cannot make the key of it. Every key that comes, malformed or unknown
ones too, costs one look-up, one hash and one comparison of 32 bytes that takes as long wherever they differ. Nothing
is kept of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from hmac import compare_digest
from secrets import token_bytes, token_hex, token_urlsafe
from typing import Generic, NamedTuple, TypeVar

from headway.config.tenants import KeySettings
from headway.gateway.errors import Unauthenticated

T = TypeVar("T")

PREFIX = b"hw_"
ID_BYTES = 6
SECRET_BYTES = 32
CHALLENGE = b'Bearer realm="headway"'
WRONG = CHALLENGE + b', error="invalid_token"'
HOW = "send it as 'Authorization: Bearer hw_...' or as 'x-api-key: hw_...'"


class NewKey(NamedTuple):
    """text: the key, to be shown once.  settings: what the server is told of it."""

    text: str
    settings: KeySettings


def new_key(id: str = "") -> NewKey:
    """id: "" = one is made up."""
    id, secret = id or token_hex(ID_BYTES), token_urlsafe(SECRET_BYTES)
    return NewKey(f"{PREFIX.decode()}{id}_{secret}", KeySettings(id, sha256(secret.encode()).hexdigest()))


class Keyring(Generic[T]):
    """Whose each key is."""

    def __init__(self, keys: Iterable[tuple[KeySettings, T]]) -> None:
        self._known = {key.id.encode(): (bytes.fromhex(key.sha256), owner) for key, owner in keys}
        self._nobodys = token_bytes(sha256().digest_size)
        """Compared with where the id is unknown."""

    def __bool__(self) -> bool:
        return bool(self._known)

    def owner(self, headers: dict[bytes, bytes]) -> T:
        """Of the key that a request presents. Raises Unauthenticated, which never repeats it."""
        id, secret = _parts(_presented(headers))
        known = self._known.get(id)
        digest = self._nobodys if known is None else known[0]
        same = compare_digest(sha256(secret).digest(), digest)
        if known is None or not same:
            raise _refused("the key is not one of this server's", WRONG)
        return known[1]


def _presented(headers: dict[bytes, bytes]) -> bytes:
    authorization, key = headers.get(b"authorization"), headers.get(b"x-api-key")
    bearer = None
    if authorization is not None:
        scheme, _, credentials = authorization.strip().partition(b" ")
        if scheme.lower() == b"bearer":
            bearer = credentials.strip()
    if bearer == b"" and not key:
        raise _refused(f"there is nothing after 'Bearer'; {HOW}", WRONG)
    if bearer is None:
        if key is not None:
            return key.strip()
        why = "there is no key" if authorization is None else "Authorization has another scheme than Bearer"
        raise _refused(f"{why}; {HOW}", CHALLENGE)
    if key is not None and key.strip() != bearer:
        raise _refused("Authorization and x-api-key hold different keys; send one of them", WRONG)
    return bearer


def _parts(key: bytes) -> tuple[bytes, bytes]:
    """Id and secret; of what is no key, no id."""
    if not key.startswith(PREFIX):
        return b"", key
    id, _, secret = key.removeprefix(PREFIX).partition(b"_")
    return id, secret


def _refused(text: str, challenge: bytes) -> Unauthenticated:
    return Unauthenticated(text, headers=((b"www-authenticate", challenge),))
