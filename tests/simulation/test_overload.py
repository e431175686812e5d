"""More than the device can do: what is let in is in time, and the device works on nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from headway.cli.simulate import simulate
from headway.core.units import ms, seconds
from headway.sim.overload import Outcomes, Overload, overload

EXAMPLES = Path(__file__).parents[2] / "examples"
BESIDE_LEARNING = 0.02
"""May be late of the first few thousand: from the first answers it has to be learned how far forecasts are off."""

CPU = Overload(times=1.5, duration=seconds(20))
GPU = Overload(shape="gpu", times=1.5, patience=ms(50), duration=seconds(0.5))


@pytest.fixture(scope="module", params=(CPU, GPU), ids=("cpu", "gpu"))
def half_as_much_again(request: pytest.FixtureRequest) -> Outcomes:
    return overload(request.param)


def test_hardly_anybody_is_let_in_and_late(half_as_much_again: Outcomes) -> None:
    assert half_as_much_again.late <= BESIDE_LEARNING


def test_the_device_does_what_it_can_for_those_in_time(half_as_much_again: Outcomes) -> None:
    assert half_as_much_again.of_capacity >= 0.90


def test_who_will_be_late_is_told_at_once_and_not_at_its_turn(half_as_much_again: Outcomes) -> None:
    assert half_as_much_again.at_dispatch < 0.01
    assert half_as_much_again.at_once > 0.10


@pytest.mark.parametrize("seed", [1, 2])
def test_nobody_below_its_share_is_refused_for_what_others_sent(seed: int, tmp_path: Path) -> None:
    """Its answers are foreseen far too soon now and then (a long batch has just left), which is no reason for refusals
    when they are foreseen far off: both are within its SLO."""
    example = (EXAMPLES / "scenarios" / "aggressor.toml").read_text()
    scenario = tmp_path / "aggressor.toml"
    scenario.write_text(f"seed = {seed}\n{example}")
    outcomes = CliRunner().invoke(simulate, ["--scenario", str(scenario), "--json"])
    polite = json.loads(outcomes.output)["tenants"]["polite"]
    assert polite["completed"] > 500
    assert polite["refusals"] == {}
