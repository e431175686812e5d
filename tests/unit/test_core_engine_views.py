"""What is said of engines: what they have, and what keeps more from running."""

from __future__ import annotations

import pytest

from headway.cli.explain_engines import engines as lines
from headway.core.engine_views import Binds, EngineDetail
from headway.core.views import detail
from headway.telemetry.engine_explain import explained
from headway.telemetry.generations import LanguageCounts
from headway.wire.engine import EngineCounts
from tests.unit.core_world import V, World, arrive
from tests.unit.test_core_engines import ROOM, engines, report


def seen(world: World) -> EngineDetail:
    found = detail(world.scheduler, V, world.now)
    assert found is not None
    return found.engines[0]


def test_what_was_handed_to_an_engine_waits_there_until_it_has_told_of_having_begun() -> None:
    world = engines()
    assert (seen(world).running, seen(world).waiting, seen(world).binds) == (0, 0, Binds.NOTHING)
    world.tell(arrive(1), arrive(2))
    assert (seen(world).running, seen(world).waiting) == (0, 2)
    world.tell(report(heard=2, sequences=3, waiting=((2, 1),), prefilling=5))
    assert (seen(world).running, seen(world).waiting, seen(world).prefilling) == (1, 1, 5)
    (view,) = world.scheduler.views()
    assert (view.running_sequences, view.waiting_sequences) == (2, 1)


@pytest.mark.parametrize(
    ("free", "binds"),
    [({"sequences": 0}, Binds.SEQUENCES), ({"blocks": 1}, Binds.KV_MEMORY), ({}, Binds.STEP_TIME)],
    ids=lambda value: value.value if isinstance(value, Binds) else "",
)
def test_what_binds_is_what_the_next_one_lacks(free: dict[str, int], binds: Binds) -> None:
    world = engines(capacity=ROOM._replace(step_tokens=640))
    world.tell(arrive(1, length=32), arrive(2, length=32))
    world.tell(report(heard=2, waiting=((2, 1),), **free))
    assert seen(world).binds is binds


def test_it_is_told_in_words() -> None:
    world = engines()
    world.tell(arrive(1, length=32), arrive(2, length=32))
    world.tell(report(heard=2, blocks=1, sequences=3, waiting=((2, 1),)))
    counts = LanguageCounts()
    counts.engines[0] = EngineCounts(kv_used=60, kv_cached=20, kv_free=20, asked=200, hits=50)
    counts.gaps.add(20_000_000)
    told = explained([seen(world)], counts)
    shown = "\n".join(lines(told))
    assert "1 of 4" in shown and "60 % of 100, and 20 cached" in shown and "KV memory" in shown
    assert "between tokens: mean 20" in shown and "25 % of 200 prompt tokens" in shown
    assert list(lines(explained([], None))) == [], "no language model"
