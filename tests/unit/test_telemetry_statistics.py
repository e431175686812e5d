"""The statistics of a version, from what the observer is told (C57, C58, C59)."""

from __future__ import annotations

from typing import Any

from headway.core.effects import Reason, ResolveRequest
from headway.core.events import RequestArrived, VersionConfigured
from headway.core.ids import BatchKey, Part, VersionId
from headway.core.outcomes import Outcome
from headway.core.policy import BatchPolicy
from headway.runtime.observer import BatchInfo, ReplyInfo
from headway.telemetry.counters import Counters
from headway.telemetry.statistics import Statistics
from headway.wire.messages import Timings

VERSION = VersionId("m", 2)


class World:
    def __init__(self) -> None:
        self.counters = Counters()
        self.counters.handled(1, [VersionConfigured(VERSION, BatchPolicy())], [])
        self.now = 1
        self._requests = 0

    def request(self, outcome: Outcome, timings: Timings, reply: int = 7) -> None:
        self._requests += 1
        arrived = RequestArrived(self._requests, "default", BatchKey(*VERSION, ""), (Part(1, 1),))
        self.counters.handled(self.now, [arrived], [ResolveRequest(self._requests, outcome)])
        info = ReplyInfo(self._requests, *VERSION, "default", outcome, 1, 0, timings)
        self.counters.replied(info)
        info.reply = reply
        self.counters.written(info)

    def batch(self, rows: int, failed: bool = False) -> None:
        info = BatchInfo(0, *VERSION, rows, rows, rows, 10, 200, 3, 500, Reason.IDLE, failed)
        self.counters.batch_done(info)

    def stats(self, **clocks: Any) -> dict[str, Any]:
        return Statistics(self.counters, **clocks)(*VERSION)


def test_requests_rows_and_executions_are_counted_apart_and_failures_by_reason() -> None:
    """C57."""
    w = World()
    for rows in (3, 3, 1, 8):
        w.batch(rows)
    w.batch(5, failed=True)
    for _ in range(6):
        w.request(Outcome.COMPLETED, Timings(1, 2, 3, 4, 5))
    w.request(Outcome.DEADLINE_EXCEEDED, Timings(1, 100, 0, 0, 0))
    w.request(Outcome.MODEL_ERROR, Timings(1, 10, 1, 1, 1))
    w.request(Outcome.DEADLINE_EXCEEDED, Timings())
    stats = w.stats()
    assert (stats["name"], stats["version"]) == ("m", "2")
    assert (stats["inference_count"], stats["execution_count"]) == (15, 4)
    assert stats["inference_stats"]["success"]["count"] == 6
    assert stats["inference_stats"]["fail"] == {"count": 3, "ns": 115}
    assert stats["failures"] == {"deadline_exceeded": 2, "model_error": 1}


def test_the_times_of_a_request_add_up_to_no_more_than_its_total() -> None:
    """C58."""
    w = World()
    w.request(Outcome.COMPLETED, Timings(parse=1, queue=20, hand_over=300, execute=4000, back=50_000), reply=600_000)
    w.request(Outcome.COMPLETED, Timings(parse=1, queue=20, hand_over=300, execute=4000, back=50_000), reply=600_000)
    spent = w.stats()["inference_stats"]
    assert spent["success"] == {"count": 2, "ns": 2 * 654_321}
    assert [spent[name]["ns"] for name in ("queue", "compute_input", "compute_infer", "compute_output")] == [
        40,
        600,
        8000,
        100_000,
    ]
    assert all(spent[name] == {"count": 0, "ns": 0} for name in ("cache_hit", "cache_miss", "fail"))


def test_the_rows_of_all_batches_are_the_inferences() -> None:
    """C59."""
    w = World()
    for rows in (4, 1, 4, 32, 1, 1):
        w.batch(rows)
    w.batch(4, failed=True)
    stats = w.stats()
    assert [(size["batch_size"], size["compute_infer"]) for size in stats["batch_stats"]] == [
        (1, {"count": 3, "ns": 600}),
        (4, {"count": 2, "ns": 400}),
        (32, {"count": 1, "ns": 200}),
    ]
    assert stats["batch_stats"][0]["compute_input"] == {"count": 3, "ns": 30}
    assert stats["batch_stats"][0]["compute_output"] == {"count": 3, "ns": 9}
    assert sum(size["batch_size"] * size["compute_infer"]["count"] for size in stats["batch_stats"]) == 43
    assert stats["inference_count"] == 43


def test_the_last_inference_is_told_in_milliseconds_since_1970() -> None:
    w = World()
    assert w.stats()["last_inference"] == 0
    w.counters.handled(5_000_000_000, [], [])
    w.batch(1)
    w.counters.handled(6_000_000_000, [], [])
    w.batch(1, failed=True)
    told = w.stats(clock=lambda: 7_500_000_000, wall=lambda: 1_700_000_000_000_000_000)
    assert told["last_inference"] == 1_700_000_000_000 - 2_500


def test_a_version_that_is_not_known_yet_has_done_nothing() -> None:
    stats = Statistics(Counters())("new", 1)
    assert (stats["name"], stats["inference_count"], stats["batch_stats"]) == ("new", 0, [])
