"""Contents of requests that have killed what ran them: what they hash to, and since when they are refused.

The core refuses them; it is told a content only where some content of that version is in quarantine, so that nothing
is hashed while all is well.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b

import msgspec

from headway.core.events import ContentQuarantined, Event, QuarantineLifted
from headway.core.fleet import MOST_IN_QUARANTINE
from headway.core.ids import RequestId, VersionId
from headway.core.units import Duration, Instant
from headway.wire.messages import Quarantined, Submit

BYTES = 8
"""Of a hash: two of a few thousand contents are equal by chance once in 10^12."""

_encode = msgspec.msgpack.Encoder(order="deterministic").encode


class Quarantine:
    """lasts: for how long a version keeps a content out."""

    def __init__(self, post: Callable[[Event], None], lasts: Callable[[VersionId], Duration]) -> None:
        self._post = post
        self._lasts = lasts
        self._held: dict[VersionId, dict[int, Quarantined]] = {}
        """By content, the oldest first. A version that has none is not in it."""
        self._of: dict[RequestId, tuple[VersionId, int]] = {}
        """Taken in by this call of the core, which is about to say why."""

    def __bool__(self) -> bool:
        """Whether anything is, as far as one knows without looking at the clock."""
        return bool(self._held)

    def take(self, version: VersionId, submit: Submit, now: Instant) -> None:
        """What this request asked is refused from now on."""
        content = content_of(submit)
        self._post(ContentQuarantined(version, content))
        lasts = self._lasts(version)
        if not lasts:
            return
        held = self._held.setdefault(version, {})
        held.pop(content, None)
        if len(held) >= MOST_IN_QUARANTINE:
            del held[next(iter(held))]
        held[content] = Quarantined(*version, content, now, now + lasts, submit.request, submit.tenant)
        self._of[submit.request] = version, content

    def explain(self, request: RequestId, cause: str) -> None:
        """Why: known with the request's outcome."""
        found = self._of.pop(request, None)
        if found is not None:
            version, content = found
            entry = self._held[version][content]
            self._held[version][content] = msgspec.structs.replace(entry, cause=cause)

    def content(self, version: VersionId, submit: Submit, now: Instant) -> int:
        """As the core has to be told it: 0 where it does not matter, since the version has nothing in quarantine."""
        if version not in self._held:
            return 0
        self._expire(version, now)
        return content_of(submit) if version in self._held else 0

    def listed(self, now: Instant) -> list[Quarantined]:
        for version in list(self._held):
            self._expire(version, now)
        return [entry for held in self._held.values() for entry in held.values()]

    def lift(self, version: VersionId, content: int, now: Instant) -> int:
        """content: 0 = all of the version's. How many were let out."""
        self._expire(version, now)
        held = self._held.get(version, {})
        gone = list(held) if not content else [content] if content in held else []
        if gone:
            self._post(QuarantineLifted(version, content))
        for one in gone:
            del held[one]
        if not held:
            self._held.pop(version, None)
        return len(gone)

    def _expire(self, version: VersionId, now: Instant) -> None:
        """The time that each stays may have been changed in between, so that the oldest need not be the first."""
        held = self._held.get(version)
        if held is None:
            return
        for content in [content for content, entry in held.items() if entry.until <= now]:
            del held[content]
        if not held:
            del self._held[version]


def content_of(submit: Submit) -> int:
    """Of everything that the model is given: what else a client says of it, its name or its deadline, matters not.
    Never 0. Each field is told apart from the next, or two requests could differ and hash to the same."""
    hashed = blake2b(digest_size=BYTES)
    for (rows, length), payload in zip(submit.parts, submit.payload, strict=False):
        hashed.update(_encode((rows, length, [tensor.header for tensor in payload.tensors])))
        for tensor in payload.tensors:
            hashed.update(tensor.data)
    prompt = submit.generation.prompt if submit.generation is not None else None  # a seed may be the server's own
    hashed.update(_encode((submit.parameters, submit.body, prompt)))
    return int.from_bytes(hashed.digest(), "big") or 1
