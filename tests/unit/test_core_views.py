"""The detailed view of a version: what is in force, what the cost model has learned, how fast it goes."""

from __future__ import annotations

from headway.core.cost import KNEES, STEPS
from headway.core.effects import DispatchBatch
from headway.core.ids import Measurement, VersionId
from headway.core.policy import BatchPolicy
from headway.core.units import SECOND, ms, seconds
from headway.core.views import BASE_TERMS, VersionDetail, detail
from tests.unit.core_world import LINEAR, V, World, arrive

STEPPED = tuple(Measurement(rows, length, ms(2) if rows == 1 else ms(6)) for rows in (1, 2, 4, 8) for length in (8, 64))
"""2 ms for one row, 6 ms for two to eight."""


def of(world: World) -> VersionDetail:
    told = detail(world.scheduler, V, world.now)
    assert told is not None
    return told


def test_a_version_that_is_not_configured_has_no_details() -> None:
    assert detail(World().scheduler, VersionId("nobody", 1), 0) is None


def test_the_policy_told_is_the_one_that_decides() -> None:
    policy = BatchPolicy(max_batch_size=7)
    assert of(World(policy, watched=True)).policy == policy


def test_the_terms_of_the_cost_model_are_named_and_have_their_weight() -> None:
    cost = of(World(cost=STEPPED)).cost
    terms = {(term.name, term.at): term.weight for term in cost.terms}
    assert abs(terms["fixed", 0] - ms(2)) < ms(0.2)
    assert abs(terms["step", 2] - ms(4)) < ms(0.2)
    assert all(name in BASE_TERMS or at in STEPS + KNEES for name, at in terms)


def test_the_terms_told_add_up_to_the_prediction() -> None:
    cost = of(World(cost=LINEAR)).cost
    rows, length = 4, 64
    units = {"fixed": 1, "row": rows, "length": length, "token": rows * length, "attention": rows * length * length}
    median = sum(
        term.weight * (units.get(term.name) or (rows >= term.at if term.name == "step" else max(0, 256 - term.at)))
        for term in cost.terms
    )
    lower, predicted, upper = cost.predict(rows, length)
    assert abs(median - predicted) < 0.001 * predicted
    assert lower <= predicted <= upper


def test_what_was_measured_is_told_by_size() -> None:
    world = World(cost=LINEAR)
    assert of(World(cost=())).cost.measured == 0
    assert of(world).cost.measured == len(LINEAR)
    assert {(seen.rows, seen.length) for seen in of(world).cost.seen} == {(m.rows, m.length) for m in LINEAR}


def test_completions_per_second_are_those_of_the_last_two_seconds() -> None:
    world = World()
    for request in range(10):
        (dispatch,) = world.tell(arrive(request), at=seconds(5) + request)
        assert isinstance(dispatch, DispatchBatch)
        world.complete(dispatch)
    assert of(world).completed_per_second == 10
    world.now += SECOND * 3 // 2
    assert round(of(world).completed_per_second, 3) == 5
    world.now += 2 * SECOND
    assert of(world).completed_per_second == 0


def test_to_look_changes_nothing() -> None:
    world = World()
    world.tell(*(arrive(request) for request in range(5)), at=ms(3))
    before = world.scheduler.snapshot()
    world.now = seconds(9)
    of(world).cost.predict(3, 17)
    assert world.scheduler.snapshot() == before
