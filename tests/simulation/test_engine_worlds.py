"""Engines behind the core: random worlds with faults, a restored core, and tenants over several engines."""

from __future__ import annotations

import pytest

from headway.sim import engine_fairness
from headway.sim.engine_worlds import run_engine_world

CHUNK = 10


@pytest.mark.parametrize("first", (1001, 1011, 1021))
def test_every_promise_holds_in_worlds_of_engines(first: int) -> None:
    for seed in range(first, first + CHUNK):
        run_engine_world(seed)


@pytest.mark.parametrize(("every", "seeds"), [(1, (3, 7)), (5, (1, 6, 29))])
def test_a_restored_core_goes_on_with_its_engines_with_the_very_same_effects(
    every: int, seeds: tuple[int, ...]
) -> None:
    for seed in seeds:
        assert run_engine_world(seed, restore_every=every).digest == run_engine_world(seed).digest, f"world {seed}"


@pytest.mark.parametrize("engines", (1, 2, 3))
def test_backlogged_tenants_stay_within_the_bound_over_all_engines_together(engines: int) -> None:
    for seed in range(1, 7):
        result = engine_fairness.run(seed, engines)
        assert result.of_bound < 1, f"seed {seed}"
