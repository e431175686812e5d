"""Replies kept under idempotency keys: whose they are, for how long, and who loses his when there is no room."""

from __future__ import annotations

import tracemalloc
from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headway.gateway.errors import KeyReused
from headway.gateway.exchange import Response
from headway.gateway.kept_replies import BOOKKEEPING, Entry, KeptReplies, size_of

ENTRY = BOOKKEEPING + 2
"""Of a tenant and a key of one letter each."""
LASTS = 100


def reply(size: int, text: bytes = b"x") -> Response:
    """Of so many bytes in all."""
    return Response(200, text * size, b"")


def kept(store: KeptReplies, tenant: str, key: bytes, size: int = 100, now: int = 0) -> Entry:
    entry = store.begin(tenant, key, b"digest", now)
    assert entry is not None
    assert store.keep(entry, reply(size), now)
    return entry


def has(store: KeptReplies, tenant: str, *keys: bytes) -> list[bool]:
    return [store.find(tenant, key, b"digest", 0) is not None for key in keys]


def test_a_key_is_found_with_its_own_request_running_and_kept() -> None:
    store = KeptReplies(10_000, 1_000, LASTS)
    assert store.find("a", b"k", b"digest", 0) is None
    entry = store.begin("a", b"k", b"digest", 0)
    assert entry is not None
    assert store.find("a", b"k", b"digest", 0) is entry and entry.reply is None
    answer = reply(10)
    assert store.keep(entry, answer, 5)
    assert store.find("a", b"k", b"digest", 5) is entry and entry.reply is answer


def test_another_request_with_the_key_is_refused_running_or_kept() -> None:
    store = KeptReplies(10_000, 1_000, LASTS)
    entry = store.begin("a", b"k", b"digest", 0)
    assert entry is not None
    with pytest.raises(KeyReused):
        store.find("a", b"k", b"other", 0)
    store.keep(entry, reply(10), 0)
    with pytest.raises(KeyReused):
        store.find("a", b"k", b"other", 0)


def test_a_key_is_its_tenants_own() -> None:
    store = KeptReplies(10_000, 1_000, LASTS)
    kept(store, "a", b"k")
    assert store.find("b", b"k", b"other", 0) is None


def test_a_reply_is_kept_for_so_long_and_what_runs_for_as_long_as_it_runs() -> None:
    store = KeptReplies(10_000, 1_000, LASTS)
    runs = store.begin("a", b"r", b"digest", 0)
    kept(store, "a", b"k", now=7)
    assert store.find("a", b"k", b"digest", 7 + LASTS - 1) is not None
    assert store.find("a", b"k", b"digest", 7 + LASTS) is None
    assert store.find("a", b"r", b"digest", 7 + LASTS) is runs
    assert store.held == ENTRY


def test_what_is_forgotten_leaves_nothing() -> None:
    store = KeptReplies(10_000, 1_000, LASTS)
    entry = store.begin("a", b"k", b"digest", 0)
    assert entry is not None
    store.forget(entry)
    store.forget(kept(store, "b", b"k"))
    assert (len(store), store.held, store.kept) == (0, 0, 0)
    assert store.find("a", b"k", b"other", 0) is None


def test_a_reply_that_is_too_large_is_not_kept() -> None:
    store = KeptReplies(10_000, 50, LASTS)
    entry = store.begin("a", b"k", b"digest", 0)
    assert entry is not None
    assert not store.keep(entry, reply(51), 0)
    assert (store.too_large, entry.reply, store.held) == (1, None, ENTRY)
    assert store.keep(entry, reply(50), 0)


def test_headers_count_as_well() -> None:
    assert size_of(Response(200, b"body", b"type", ((b"name", b"value"), (b"n", b"v")))) == 4 + 4 + 9 + 2


def test_where_nothing_is_to_be_kept_nothing_is() -> None:
    store = KeptReplies(10_000, 1_000, 0)
    entry = store.begin("a", b"k", b"digest", 0)
    assert entry is not None
    assert not store.keep(entry, reply(1), 0)


def test_who_has_most_kept_loses_the_oldest_whoever_needs_the_room() -> None:
    store = KeptReplies(4 * ENTRY + 400, 1_000, LASTS)
    for key in (b"1", b"2", b"3"):
        kept(store, "a", key)
    kept(store, "b", b"1")
    kept(store, "b", b"2")
    assert has(store, "a", b"1", b"2", b"3") == [False, True, True]
    kept(store, "c", b"1")  # a and b have two each: a has been here for longer
    assert has(store, "a", b"2", b"3") == [False, True]
    assert has(store, "b", b"1", b"2") == [True, True]
    kept(store, "c", b"2")
    assert has(store, "b", b"1", b"2") == [False, True]
    assert store.evicted == 3


def test_what_runs_is_not_pushed_out_and_nothing_is_where_that_would_not_do() -> None:
    store = KeptReplies(3 * ENTRY + 100, 1_000, LASTS)
    runs = [store.begin("a", key, b"digest", 0) for key in (b"1", b"2")]
    kept(store, "b", b"k")
    assert not store.keep(runs[0] or kept(store, "", b""), reply(ENTRY + 101), 0)
    assert has(store, "b", b"k") == [True]
    assert store.begin("c", b"1", b"digest", 0) is not None
    assert has(store, "b", b"k") == [False]
    assert store.begin("c", b"2", b"digest", 0) is None
    assert has(store, "a", b"1", b"2") == [True, True]


def test_what_one_model_found_to_kill_may_be_forgotten_together() -> None:
    store = KeptReplies(100_000, 1_000, LASTS)
    for key, model in ((b"1", "m"), (b"2", ""), (b"3", "m"), (b"4", "other")):
        entry = store.begin("a", key, b"digest", 0)
        assert entry is not None
        store.keep(entry, reply(1), 0, model)
    assert store.release("m") == 2
    assert has(store, "a", b"1", b"2", b"3", b"4") == [False, True, False, True]


@pytest.mark.parametrize("answered", [False, True])
@pytest.mark.parametrize("tenants", [1, 5_000])
def test_an_entry_takes_no_more_than_it_counts_for(tenants: int, answered: bool) -> None:
    count = 5_000
    tracemalloc.start()
    try:
        store = KeptReplies(1 << 30, 1_000, LASTS)
        for number in range(count):
            entry = store.begin(f"tenant-{number % tenants}", b"key-%d" % number, number.to_bytes(32, "big"), 0)
            assert entry is not None
            if answered:
                store.keep(entry, Response(200, b"%100d" % number, headers=((b"name", b"%10d" % number),)), 0)
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    print(f"{taken / count:.0f} bytes each, counted {store.held / count:.0f}")
    assert taken <= store.held


@dataclass
class Row:
    number: int
    tenant: str
    key: bytes
    digest: bytes
    size: int
    reply: Response | None = None
    kept_at: int = 0
    """Counts what was kept before it."""
    until: int = 0


class Naive:
    """The same as one would write it down without a thought to what it costs."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.since: dict[str, int] = {}
        """Tenant -> its first entry since it last had none."""

    def held(self, tenant: str = "", kept: bool = False) -> int:
        return sum(r.size for r in self.rows if tenant in ("", r.tenant) and (r.reply is not None or not kept))

    def row(self, tenant: str, key: bytes) -> Row | None:
        return next((row for row in self.rows if (row.tenant, row.key) == (tenant, key)), None)

    def drop(self, *rows: Row) -> None:
        self.rows = [row for row in self.rows if row not in rows]
        here = [row.tenant for row in self.rows]
        self.since = {tenant: number for tenant, number in self.since.items() if tenant in here}

    def expire(self, now: int) -> None:
        self.drop(*[row for row in self.rows if row.reply is not None and row.until <= now])

    def make_room(self, size: int) -> bool:
        if self.held() - self.held(kept=True) + size > BOUND:
            return False
        while self.held() + size > BOUND:
            loser = max(self.since, key=lambda tenant: (self.held(tenant, kept=True), -self.since[tenant]))
            self.drop(min([r for r in self.rows if r.tenant == loser and r.reply], key=lambda row: row.kept_at))
        return True


TENANTS, KEYS, DIGESTS = (
    st.sampled_from("abc"),
    st.sampled_from([b"1", b"2", b"3", b"4"]),
    st.sampled_from([b"x", b"y"]),
)
BOUND, MOST = 6 * BOOKKEEPING, 3_000


class Kept(RuleBasedStateMachine):
    """Whatever comes in whatever order: the bounds hold, and who asks is given what he was told for the same before."""

    @initialize()
    def begin_empty(self) -> None:
        self.store, self.naive, self.now, self.answered = KeptReplies(BOUND, MOST, LASTS), Naive(), 0, 0
        self.running: list[Entry] = []

    @rule(tenant=TENANTS, key=KEYS, digest=DIGESTS)
    def call(self, tenant: str, key: bytes, digest: bytes) -> None:
        self.naive.expire(self.now)
        row = self.naive.row(tenant, key)
        try:
            found = self.store.find(tenant, key, digest, self.now)
        except KeyReused:
            assert row is not None and row.digest != digest
            return
        if row is not None:
            assert found is not None and row.digest == digest
            assert (found.tenant, found.key, found.digest) == (tenant, key, digest)
            assert found.reply is row.reply
            return
        assert found is None
        entry = self.store.begin(tenant, key, digest, self.now)
        assert (entry is not None) == self.naive.make_room(BOOKKEEPING + len(tenant) + len(key))
        if entry is not None:
            self.running.append(entry)
            self.naive.since.setdefault(tenant, entry.number)
            self.naive.rows.append(Row(entry.number, tenant, key, digest, entry.size))

    @precondition(lambda self: self.running)
    @rule(which=st.integers(0, 9), size=st.sampled_from([1, 10, 1_000, 2_500, MOST, MOST + 1]))
    def answer(self, which: int, size: int) -> None:
        entry, answer = self.running.pop(which % len(self.running)), reply(size)
        (row,) = [row for row in self.naive.rows if row.number == entry.number]
        is_kept = self.store.keep(entry, answer, self.now)
        assert is_kept == (size <= MOST and self.naive.make_room(size))
        if is_kept:
            self.answered += 1
            row.size, row.reply, row.kept_at, row.until = row.size + size, answer, self.answered, self.now + LASTS
        else:
            self.store.forget(entry)
            self.naive.drop(row)

    @rule(by=st.integers(1, LASTS))
    def time_passes(self, by: int) -> None:
        self.now += by

    @invariant()
    def it_is_what_it_says_and_within_its_bounds(self) -> None:
        store = self.store
        there = [entry for share in store._shares.values() for entry in share.entries.values()]
        assert store.held == sum(entry.size for entry in there) <= BOUND
        assert store.kept == sum(entry.size for entry in there if entry.reply is not None)
        assert store.kept == sum(share.held for share in store._shares.values())
        assert all(size_of(entry.reply) <= MOST for entry in there if entry.reply is not None)
        assert sorted(entry.number for entry in there) == sorted(row.number for row in self.naive.rows)
        assert all(share.entries for share in store._shares.values())


Kept.TestCase.settings = settings(max_examples=300, stateful_step_count=40, deadline=None)
TestKeptRepliesAreThoseOfTheSameTenantKeyAndRequestWithinTheirBounds = Kept.TestCase
