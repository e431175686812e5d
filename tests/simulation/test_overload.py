"""More than the device can do: what is let in is in time, and the device works on nothing else."""

from __future__ import annotations

import pytest

from headway.core.units import ms, seconds
from headway.sim.overload import Outcomes, Overload, overload

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
