"""How long a step takes: learned, followed, and turned into tokens."""

from __future__ import annotations

from random import Random

import pytest

from headway.core.units import ms
from headway.llm.plan.step_time import DEFAULT, Coefficients, StepTime, pairs

DEVICE = Coefficients(step=ms(2), prefill=30_000.0, decode=80_000.0, context=20.0, pairs=15.0)


def a_size(random: Random) -> tuple[int, int, int, int]:
    if random.random() < 0.5:
        return 0, random.randrange(1, 64), random.randrange(100, 60_000), 0
    count, start = random.randrange(16, 512), random.randrange(4_000)
    decodes = random.randrange(20)
    return count, decodes, start + count + 500 * decodes, pairs(start, count)


def taught(steps: StepTime, device: Coefficients, count: int, seed: int = 1, noise: float = 0.0) -> StepTime:
    random = Random(seed)
    for _ in range(count):
        size = a_size(random)
        steps.learn(*size, int(device.predict(*size) * random.uniform(1 - noise, 1 + noise)))
    return steps


def worst(steps: StepTime, device: Coefficients) -> float:
    random = Random(99)
    sizes = [a_size(random) for _ in range(100)]
    return max(abs(steps.predict(*size) / device.predict(*size) - 1) for size in sizes)


def test_a_prior_is_believed_until_something_is_known():
    assert StepTime(DEVICE).predict(100, 3, 700, 40_000) == int(DEVICE.predict(100, 3, 700, 40_000))


def test_the_coefficients_are_learned_from_steps():
    assert worst(StepTime(DEFAULT), DEVICE) > 0.5
    assert worst(taught(StepTime(DEFAULT), DEVICE, 600), DEVICE) < 0.05


def test_noise_does_not_lead_it_astray():
    assert worst(taught(StepTime(DEFAULT), DEVICE, 600, noise=0.3), DEVICE) < 0.15


def test_a_device_that_turns_twice_as_slow_is_followed():
    slower = Coefficients(*(2 * value for value in DEVICE))
    steps = taught(StepTime(DEFAULT), DEVICE, 600)
    taught(steps, slower, 1_000, seed=2)
    assert worst(steps, slower) < 0.05


def test_while_it_follows_the_upper_quantile_covers_what_the_median_does_not_know_yet():
    steps = taught(StepTime(DEFAULT), DEVICE, 600)
    before = steps.upper
    taught(steps, Coefficients(*(2 * value for value in DEVICE)), 12, seed=2)
    assert steps.upper > before


def test_the_upper_quantile_is_above_nine_of_ten():
    random = Random(3)
    steps = taught(StepTime(DEVICE), DEVICE, 400, noise=0.3)
    above = 0
    for _ in range(1_000):
        size = a_size(random)
        elapsed = int(DEVICE.predict(*size) * random.uniform(0.7, 1.3))
        above += elapsed > steps.predict(*size) * steps.upper
        steps.learn(*size, elapsed)
    assert 0.05 < above / 1_000 < 0.16


def test_one_step_that_was_stalled_teaches_little():
    steps = taught(StepTime(DEFAULT), DEVICE, 600)
    size = (100, 4, 2_000, 50_000)
    steps.learn(*size, 1_000 * int(DEVICE.predict(*size)))
    taught(steps, DEVICE, 32, seed=4)
    assert worst(steps, DEVICE) < 0.3


def test_no_coefficient_is_ever_negative():
    steps = StepTime(DEFAULT)
    random = Random(5)
    for _ in range(300):
        steps.learn(*a_size(random), random.randrange(ms(1), ms(100)))
        assert min(steps.now) >= 0


def test_what_took_no_time_or_had_nothing_in_it_teaches_nothing():
    steps = StepTime(DEVICE)
    steps.learn(10, 0, 10, 55, 0)
    steps.learn(0, 0, 0, 0, ms(5))
    assert steps.observed == 0


def test_a_chunk_costs_what_it_adds_to_a_step():
    steps = StepTime(DEVICE)
    alone = DEVICE.predict(0, 3, 900, 0)
    whole = DEVICE.predict(128, 3, 900 + 640, pairs(512, 128))
    assert steps.chunk(512, 128) == pytest.approx(whole - alone)


def test_pairs_are_counted_as_they_are():
    assert pairs(10, 3) == 11 + 12 + 13


@pytest.mark.parametrize(
    "device",
    [
        DEVICE,
        DEFAULT,
        Coefficients(ms(1), 1_000.0, 0.0),
        Coefficients(ms(1), 1_000.0, 0.0, 700.0),
        Coefficients(ms(1), 0.0, 0.0, 0.0, 900.0),
        Coefficients(ms(1), 10.0, 0.0, 0.0, 50_000.0),
    ],
)
def test_what_fits_never_takes_longer_than_there_is_and_one_more_would(device: Coefficients):
    steps = StepTime(device)
    random = Random(7)
    for _ in range(2_000):
        left, start = random.randrange(ms(30)), random.randrange(20_000)
        count = steps.fits(left, start)
        assert count == 0 or steps.chunk(start, count) <= left * (1 + 1e-12)
        assert steps.chunk(start, count + 1) >= left * (1 - 1e-12)


def test_nothing_fits_where_nothing_is_left_and_anything_where_it_costs_nothing():
    assert StepTime(DEVICE).fits(0, 0) == StepTime(DEVICE).fits(-5, 0) == 0
    assert StepTime(Coefficients(ms(1), 0.0, 0.0)).fits(1, 0) > 1_000_000
