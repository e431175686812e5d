"""What is kept out: what it hashes to, for how long, and what an operator is told."""

from __future__ import annotations

from typing import Any

import pytest

from headway.core.events import ContentQuarantined, Event, QuarantineLifted
from headway.core.fleet import MOST_IN_QUARANTINE
from headway.core.ids import BatchKey, Part, VersionId
from headway.runtime import quarantine as module
from headway.runtime.quarantine import Quarantine, content_of
from headway.wire.messages import PartPayload, Submit
from headway.wire.tensors import Tensor

V, OTHER = VersionId("m", 1), VersionId("m", 2)
LASTS = 1_000


def submit(*values: bytes, name: str = "x", datatype: str = "UINT8", shape: Any = None, **more: Any) -> Submit:
    payload = [PartPayload([Tensor(name, datatype, shape or (1, len(value)), value)]) for value in values]
    parts = [Part(1, len(value)) for value in values]
    fields = {"tenant": "t", "deadline": 10**9, "request": 1, "parameters": {}, **more}
    return Submit(
        key=BatchKey("m", 1, "x"), parts=parts, payload=payload, bytes=9, priority=1, received=0, body=None, **fields
    )


class Kept:
    def __init__(self) -> None:
        self.posted: list[Event] = []
        self.lasts = LASTS
        self.quarantine = Quarantine(self.posted.append, lambda version: self.lasts)

    def take(self, one: Submit, now: int = 0, version: VersionId = V) -> int:
        self.quarantine.take(version, one, now)
        event = self.posted.pop()
        assert isinstance(event, ContentQuarantined)
        return event.content


@pytest.fixture
def kept() -> Kept:
    return Kept()


def test_equal_contents_are_one_whoever_asks_and_when():
    assert content_of(submit(b"ab", b"c")) == content_of(submit(b"ab", b"c", request=7, tenant="u", deadline=5))
    assert content_of(submit(b"ab")) == content_of(submit(b"ab")) != 0
    memory = submit(b"ab")
    memory.payload = [PartPayload([Tensor("x", "UINT8", (1, 2), memoryview(bytearray(b"ab")))])]
    assert content_of(memory) == content_of(submit(b"ab"))


@pytest.mark.parametrize(
    "other",
    [
        submit(b"ac"),
        submit(b"a", b"b"),
        submit(b"ab", name="y"),
        submit(b"ab", datatype="INT8"),
        submit(b"ab", shape=(1, 2, 1)),
        submit(b"ab", parameters={"p": 1}),
    ],
    ids=["bytes", "parts", "name", "datatype", "shape", "parameters"],
)
def test_whatever_a_model_is_given_makes_another_content(other):
    assert content_of(other) != content_of(submit(b"ab"))


def test_nothing_is_hashed_while_the_version_has_nothing_in_quarantine(kept, monkeypatch):
    hashed: list[Submit] = []
    real = content_of

    def noting(one: Submit) -> int:
        hashed.append(one)
        return real(one)

    monkeypatch.setattr(module, "content_of", noting)
    assert not kept.quarantine
    assert kept.quarantine.content(V, submit(b"a"), 0) == 0
    content = kept.take(submit(b"a"), now=100)
    assert kept.quarantine.content(OTHER, submit(b"a"), 100) == 0
    assert len(hashed) == 1
    assert kept.quarantine.content(V, submit(b"a"), 100 + LASTS - 1) == content
    assert kept.quarantine.content(V, submit(b"a"), 100 + LASTS) == 0
    assert len(hashed) == 2
    assert not kept.quarantine, "its time is over"


def test_an_operator_sees_whose_it_was_and_what_it_did(kept):
    content = kept.take(submit(b"a", request=5, tenant="acme"), now=100)
    kept.quarantine.explain(5, "killed two workers")
    kept.quarantine.explain(6, "a batch that raised")
    [entry] = kept.quarantine.listed(200)
    assert (entry.model, entry.version, entry.content, entry.since, entry.until) == ("m", 1, content, 100, 1_100)
    assert (entry.request, entry.tenant, entry.cause) == (5, "acme", "killed two workers")


def test_one_content_or_all_of_a_version_can_be_let_out(kept):
    first, _ = kept.take(submit(b"a")), kept.take(submit(b"b"))
    kept.take(submit(b"c"), version=OTHER)
    assert kept.quarantine.lift(V, first, 1) == 1
    assert kept.quarantine.lift(V, first, 1) == 0
    assert kept.quarantine.lift(V, 0, 1) == 1
    assert kept.quarantine.lift(VersionId("nobody", 1), 0, 1) == 0
    assert kept.posted == [QuarantineLifted(V, first), QuarantineLifted(V, 0)]
    assert [(entry.model, entry.version) for entry in kept.quarantine.listed(1)] == [("m", 2)]


def test_more_than_the_scheduler_keeps_is_not_kept_here(kept):
    for number in range(MOST_IN_QUARANTINE + 1):
        kept.take(submit(number.to_bytes(4, "big")))
    entries = kept.quarantine.listed(1)
    assert len(entries) == MOST_IN_QUARANTINE
    assert entries[0].content == content_of(submit((1).to_bytes(4, "big")))


def test_where_it_is_switched_off_nothing_is_kept(kept):
    kept.lasts = 0
    kept.take(submit(b"a"))
    assert kept.quarantine.listed(0) == []
