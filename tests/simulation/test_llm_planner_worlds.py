"""Random worlds for the planner of a language model's steps; a failing one prints how to replay it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable

import pytest

from headway.llm.plan.planner import Planner
from headway.sim import engine_worlds, worlds
from headway.sim.llm.worlds import World, WorldFailed, main, run_world

STEPS = 60
FIRST = 2_001
CHUNK = 12
CHUNKS = 3


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_every_promise_holds_in_random_worlds_and_all_that_is_there_finishes(chunk: int) -> None:
    counts: Counter[str] = Counter()
    for seed in range(FIRST + chunk * CHUNK, FIRST + (chunk + 1) * CHUNK):
        counts += run_world(seed, STEPS)
    for what in ("arrived", "aborted", "preempted", "evicted", "hits", "deferred", "void", "refused"):
        assert counts[what] > 0, f"in these worlds nothing was {what}"


def test_a_world_is_the_same_under_another_hash_seed() -> None:
    command = [
        sys.executable,
        "-m",
        "headway.sim.llm.worlds",
        "--seed",
        "1",
        "--seeds",
        "3",
        "--steps",
        "30",
        "--digests",
    ]
    answers = [
        subprocess.run(
            command, env={**os.environ, "PYTHONHASHSEED": seed}, check=True, capture_output=True, text=True
        ).stdout
        for seed in ("0", "4711")
    ]
    assert answers[0] == answers[1] and len(answers[0].splitlines()) == 3


class Forgetful(Planner):
    """What is aborted is not."""

    def abort(self, request: int) -> bool:
        return False


def test_a_world_that_fails_says_how_to_see_it_again(capsys: pytest.CaptureFixture[str]) -> None:
    failed: dict[int, str] = {}
    for seed in range(1, 30):
        try:
            run_world(seed, 40, Forgetful)
        except WorldFailed as error:
            failed[seed] = str(error)
    assert failed
    for seed, told in failed.items():
        assert f"replay: python -m headway.sim.llm.worlds --seed {seed} --steps 40" in told
    assert main(["--seed", "8", "--steps", "5"]) == 0
    assert capsys.readouterr().out.startswith("1 worlds held in")


@pytest.mark.parametrize("command", [main, worlds.main, engine_worlds.main], ids=["plan", "core", "engines"])
def test_no_worlds_at_all_show_nothing(command: Callable[[list[str]], int], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command(["--seeds", "0"])
    assert "at least 1" in capsys.readouterr().err


def test_at_the_end_of_a_world_nothing_is_left() -> None:
    world = World(3)
    for _ in range(20):
        world.step()
    world.drain()
    assert all(not engine.told and not engine.planner.state.sequences for engine in world.engines)
