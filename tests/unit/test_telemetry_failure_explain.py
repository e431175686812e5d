"""What is said of a version's failures, as values and on the page."""

from __future__ import annotations

import json
from typing import Any

from headway.cli.explain_failures import failures
from headway.core.breaker import DEATHS, FIRST
from headway.core.events import ContentQuarantined, WorkerLost, WorkerReady, WorkerStarting
from headway.core.ids import Capacity
from headway.core.losses import Loss
from headway.core.policy import BatchPolicy
from headway.core.units import seconds
from headway.telemetry.failure_explain import explained
from headway.telemetry.failures import FailureCounts
from tests.unit.core_world import V, World


def told(world: World, counts: FailureCounts | None = None, poisoned: int = 0, at: int = 0) -> dict[str, Any]:
    (view,) = world.scheduler.views()
    said = explained(view.failures, counts or FailureCounts(), poisoned, at)
    assert json.loads(json.dumps(said)) == said, "plain JSON values"
    return said


def page(said: dict[str, Any]) -> str:
    return "\n".join(failures(said))


def dying() -> World:
    world = World()
    for number in range(10, 10 + DEATHS):
        (worker,) = world.scheduler.views()[0].workers
        world.tell(WorkerLost(worker), WorkerStarting(number, V), WorkerReady(number, Capacity(1)))
    return world


def test_where_nothing_failed_nothing_is_said() -> None:
    assert page(told(World())) == ""


def test_losses_and_retries_are_told_by_kind() -> None:
    counts = FailureCounts()
    counts.losses = {Loss.OUT_OF_MEMORY.value: 1, Loss.KILLED.value: 2}
    counts.retried = {"halves": 8, "alone": 3}
    counts.suspected, counts.hung = 2, 1
    counts.reliefs = {"took_over": 1, "started": 2}
    assert page(told(World(), counts, poisoned=1)).splitlines() == [
        "workers lost: 2 killed, 1 out of memory",
        "workers suspected because they did not answer: 2, of which 1 were killed",
        "workers to stand in for those: 2 started, 1 in the place of one that was killed",
        "parts that were run again: 3 each alone, 8 with half of their batch",
        "requests that made whatever ran them fail, or were refused as such: 1",
    ]


def test_an_open_circuit_is_told_with_when_it_is_tried_and_a_half_open_one_as_such() -> None:
    world = dying()
    said = told(world, at=seconds(4))
    assert said["circuit"] == {"state": "open", "deaths": DEATHS, "openings": 0, "tried_in_s": 6.0}
    assert f"refused: {DEATHS} workers died in a row; a request is let in to try in 6 s" in page(said)
    half = told(world, at=FIRST)
    assert (half["circuit"]["state"], half["circuit"]["tried_in_s"]) == ("half_open", 0)
    assert "refused but for a single request" in page(half)


def test_a_circuit_that_closed_again_is_not_forgotten() -> None:
    counts = FailureCounts()
    counts.openings = 2
    assert page(told(World(), counts)) == "it was refused 2 times because workers died in a row, and is not now"


def test_what_is_in_quarantine_is_told_by_its_hash_until_its_time_is_over() -> None:
    world = World(BatchPolicy(quarantine=seconds(60)))
    world.tell(ContentQuarantined(V, 0xABC))
    said = told(world, at=seconds(20))
    assert said["quarantine"] == [{"content": "0000000000000abc", "left_s": 40.0}]
    assert "0000000000000abc" in page(said) and "40" in page(said)
    assert told(world, at=seconds(60))["quarantine"] == []


def test_retries_are_told_once_some_are_spent() -> None:
    said = told(World())
    assert said["retries"] == {"of": 100, "left": 100}
    assert "99 of 100 executions may still be repeated" in page(said | {"retries": {"of": 100, "left": 99}})


def test_who_is_suspected_is_named() -> None:
    assert page(told(World()) | {"suspects": [3, 4]}) == "suspected now, and given no work: worker 3, 4"
