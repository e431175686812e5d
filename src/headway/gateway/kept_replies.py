"""Idempotency keys and the replies that are kept under them, within bounds. No clock: time is passed in.

A key is a tenant's own. It is held from the call that brings it until that has its reply, and then either forgotten
or kept with the reply for a while. Held bytes never exceed the bound: for a new one the tenant that has most kept
loses its oldest reply, so that nobody's keys push out those of tenants that keep less. What runs is never pushed out.
"""

from __future__ import annotations

from collections import OrderedDict
from heapq import heapify, heappop, heappush

from headway.core.units import Duration, Instant
from headway.gateway.errors import KeyReused
from headway.gateway.exchange import Response

BOOKKEEPING = 2_000
"""Bytes that an entry counts for beside its names and its reply: all objects that it takes, those of a tenant that has
no other among them."""
SPARE = 64
"""Entries of the ranking that may be stale, beside one per tenant."""


class Entry:
    """One key. digest: of the request that came with it.  size: bytes that it counts for.  reply: None while the
    request runs.  until: when the reply is forgotten.  model: that found the request to kill its workers, or ""."""

    __slots__ = ("digest", "key", "model", "number", "reply", "size", "tenant", "until")

    def __init__(self, number: int, tenant: str, key: bytes, digest: bytes) -> None:
        self.number = number
        self.tenant = tenant
        self.key = key
        self.digest = digest
        self.size = BOOKKEEPING + len(key) + len(tenant)
        self.reply: Response | None = None
        self.until: Instant = 0
        self.model = ""


class _Share:
    """What one tenant has. kept: entries with a reply, the oldest first, which a plain dict finds slowly after many
    were taken from there.  held: their bytes."""

    __slots__ = ("entries", "held", "kept", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.entries: dict[bytes, Entry] = {}
        self.kept: OrderedDict[int, Entry] = OrderedDict()
        self.held = 0


class KeptReplies:
    """bound: bytes of all together.  most: bytes that one reply may have.  lasts: how long one is kept.

    held: bytes now, and kept: those of them that may be pushed out.  evicted, too_large: replies that were pushed out,
    and that were not kept for their size, since the start.
    """

    def __init__(self, bound: int, most: int, lasts: Duration) -> None:
        self.bound = bound
        self.most = most
        self.lasts = lasts
        self.held = 0
        self.kept = 0
        self.evicted = 0
        self.too_large = 0
        self._shares: dict[str, _Share] = {}
        self._by_age: OrderedDict[int, Entry] = OrderedDict()
        """All with a reply, in the order in which they are forgotten."""
        self._ranking: list[tuple[int, int, str]] = []
        """A heap of (-bytes kept, share, tenant), pushed with every change; what is not so any more is stale."""
        self._last = 0

    def __len__(self) -> int:
        return sum(len(share.entries) for share in self._shares.values())

    def find(self, tenant: str, key: bytes, digest: bytes, now: Instant) -> Entry | None:
        """The entry of this very request. Raises KeyReused where the key came with another."""
        self.expire(now)
        share = self._shares.get(tenant)
        entry = None if share is None else share.entries.get(key)
        if entry is not None and entry.digest != digest:
            raise KeyReused("this Idempotency-Key came with another request before: for a new request use a new key")
        return entry

    def begin(self, tenant: str, key: bytes, digest: bytes, now: Instant) -> Entry | None:
        """For a key that is not found: a request with it runs from now on. None: there is no room even so."""
        self.expire(now)
        self._last += 1
        entry = Entry(self._last, tenant, key, digest)
        if not self._make_room(entry.size):
            return None
        share = self._shares.get(tenant)
        if share is None:
            share = self._shares[tenant] = _Share(entry.number)
        share.entries[key] = entry
        self.held += entry.size
        return entry

    def keep(self, entry: Entry, reply: Response, now: Instant, model: str = "") -> bool:
        """The reply to what ran. False: it is not kept, and the entry is as it was."""
        size = size_of(reply)
        if size > self.most:
            self.too_large += 1
            return False
        if not self.lasts or not self._make_room(size):
            return False
        share = self._shares[entry.tenant]
        self.held += size
        entry.size += size
        entry.reply, entry.until, entry.model = reply, now + self.lasts, model
        share.kept[entry.number] = self._by_age[entry.number] = entry
        self._weigh(entry.tenant, share, entry.size)
        return True

    def forget(self, entry: Entry) -> None:
        """The next call with this key runs."""
        share = self._shares[entry.tenant]
        del share.entries[entry.key]
        self.held -= entry.size
        if not share.entries:
            del self._shares[entry.tenant]
        if share.kept.pop(entry.number, None) is not None:
            del self._by_age[entry.number]
            self._weigh(entry.tenant, share, -entry.size)

    def release(self, model: str) -> int:
        """Forget what this model found to kill its workers: it may run again. How many that were."""
        found = [entry for entry in self._by_age.values() if entry.model == model]
        for entry in found:
            self.forget(entry)
        return len(found)

    def expire(self, now: Instant) -> None:
        """Forget what was kept for long enough."""
        while self._by_age:
            oldest = next(iter(self._by_age.values()))
            if oldest.until > now:
                break
            self.forget(oldest)

    def _make_room(self, size: int) -> bool:
        """Nothing is pushed out where that would not be enough."""
        if self.held - self.kept + size > self.bound:
            return False
        while self.held + size > self.bound:
            held, number, tenant = heappop(self._ranking)
            share = self._shares.get(tenant)
            if share is not None and share.number == number and share.held == -held:
                self.forget(next(iter(share.kept.values())))
                self.evicted += 1
        return True

    def _weigh(self, tenant: str, share: _Share, more: int) -> None:
        """Of equals the one that has been here for longer comes first."""
        share.held += more
        self.kept += more
        if share.held:
            heappush(self._ranking, (-share.held, share.number, tenant))
        if len(self._ranking) > 2 * len(self._shares) + SPARE:
            self._ranking = [(-s.held, s.number, name) for name, s in self._shares.items() if s.held]
            heapify(self._ranking)


def size_of(reply: Response) -> int:
    """Bytes of its body and its headers."""
    return len(reply.body) + len(reply.content_type) + sum([len(name) + len(value) for name, value in reply.headers])
