"""Random worlds with faults, then heal and require progress. A failing one prints how to replay it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from headway import compiled
from headway.core.scheduler import Scheduler
from headway.sim.plans import plan_world
from headway.sim.worlds import WorldFailed, run_world

CHUNK = 20
CHUNKS = 6
FIRST = 1001


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_every_promise_holds_in_random_worlds(chunk: int) -> None:
    first = FIRST + chunk * CHUNK
    for seed in range(first, first + CHUNK):
        run_world(seed)


def digests(**environment: str) -> str:
    command = [sys.executable, "-m", "headway.sim.worlds", "--seed", "1", "--seeds", "5", "--digests"]
    environment = {**os.environ, **environment}
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout


def test_a_world_is_the_same_under_another_hash_seed() -> None:
    first = digests(PYTHONHASHSEED="0")
    assert len(first.splitlines()) == 5
    assert first == digests(PYTHONHASHSEED="4711")


def test_compiled_to_machine_code_the_scheduler_decides_the_very_same() -> None:
    if not compiled.is_fresh():
        pytest.skip("the scheduler as it is now was not compiled: tools/compile.py does that, or says why it cannot")
    environment = {**os.environ, "HEADWAY_COMPILED": "1"}
    asked = "from headway import compiled; print(compiled.in_use())"
    answer = subprocess.run([sys.executable, "-c", asked], env=environment, check=True, capture_output=True, text=True)
    assert answer.stdout == "True\n"
    assert digests(HEADWAY_COMPILED="1") == digests(HEADWAY_COMPILED="0")


RESTORED = [(1, (2, 4, 11)), (5, (324, 368, 377, 406)), (7, (1, 3, 5, 6, 7, 12, 20, 38, 86, 298))]


@pytest.mark.parametrize(("every", "seeds"), RESTORED)
def test_a_scheduler_restored_from_its_snapshot_goes_on_with_the_very_same_effects(
    every: int, seeds: tuple[int, ...]
) -> None:
    """Of many keys and devices, of held batches, of engines, and of tenants with limits."""
    for seed in seeds:
        assert run_world(seed, restore_every=every).digest == run_world(seed).digest, f"world {seed}"


def test_worlds_are_of_many_kinds() -> None:
    plans = [plan_world(seed) for seed in range(1, 101)]
    policies = [policy for plan in plans for policy in plan.policies.values()]
    assert {policy.style.value for policy in policies} == {"batch", "sequence"}
    assert any(policy.hold for policy in policies)
    assert any(plan.faults.time_to_loss for plan in plans)
    assert any(plan.closed_loop_clients for plan in plans)
    assert any(plan.faults.stalls.lasts for plan in plans)
    assert any(plan.faults.misdirected and plan.faults.stale and plan.faults.duplicate for plan in plans)


class Deaf(Scheduler):
    """It never decides anything."""

    def handle(self, events, now):  # type: ignore[no-untyped-def]
        super().handle(events, now)
        return []


def test_a_failing_world_prints_the_line_that_replays_it() -> None:
    with pytest.raises(WorldFailed, match=r"python -m headway.sim.worlds --seed 3 .*make sim SEED=3"):
        run_world(3, Deaf)
