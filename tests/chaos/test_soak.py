"""What a soak takes for growth, and what for noise."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest

from tests.chaos.run import ChaosFailed
from tests.chaos.slopes import BLOCK, fit
from tests.chaos.soak import ALLOWED, Sample, judged, soak
from tests.chaos.stage import Plan

TIMES = [2.0 * number for number in range(60)]


def noisy(begins: float, ends: float, noise: float, seed: int = 1) -> list[float]:
    rng = Random(seed)
    return [begins + (ends - begins) * at / TIMES[-1] + rng.gauss(0, noise) for at in TIMES]


def test_a_line_is_found_with_its_error() -> None:
    exact = fit(TIMES, noisy(10, 40, 0))
    assert (exact.mean, exact.change, exact.error) == pytest.approx((25, 30, 0))
    assert fit(TIMES, noisy(10, 40, 5)).change == pytest.approx(30, abs=4 * fit(TIMES, noisy(10, 40, 5)).error)


def test_its_error_is_that_of_a_textbook() -> None:
    """y = 0, 1, 1, 2 at 0, 1, 2, 3: slope 0.6, standard error sqrt(0.2 / 2 / 5)."""
    times = [float(second) for second in range(4) for _ in range(BLOCK)]
    values = [value for value in (0.0, 1.0, 1.0, 2.0) for _ in range(BLOCK)]
    found = fit(times, values)
    assert found.change == pytest.approx(0.6 * 3)
    assert found.error == pytest.approx((0.2 / 2 / 5) ** 0.5 * 3)


def test_what_something_beside_it_explains_is_not_blamed_on_time() -> None:
    rng = Random(1)
    beside = [rng.random() * at / TIMES[-1] for at in TIMES]
    values = [50 - 20 * other for other in beside]
    assert fit(TIMES, values).change < -5
    assert fit(TIMES, values, beside).change == pytest.approx(0, abs=1e-9)
    falling = [value - 10 * at / TIMES[-1] for value, at in zip(values, TIMES, strict=True)]
    assert fit(TIMES, falling, beside).change == pytest.approx(-10)


def test_too_few_samples_are_no_line() -> None:
    with pytest.raises(ValueError, match="too few"):
        fit(TIMES[: 4 * BLOCK - 1], noisy(0, 0, 0)[: 4 * BLOCK - 1])


@pytest.mark.parametrize(
    ("begins", "ends", "noise", "allowed", "exceeds"),
    [
        (50, 50, 3, 5, False),
        (50, 54, 0.1, 5, False),
        (50, 60, 0.1, 5, True),
        (50, 40, 0.1, 5, False),
        (50, 40, 0.1, -5, True),
        (50, 60, 0.1, -5, False),
        (50, 56, 30, 5, False),
    ],
)
def test_growth_is_what_noise_cannot_be(
    begins: float, ends: float, noise: float, allowed: float, exceeds: bool
) -> None:
    assert fit(TIMES, noisy(begins, ends, noise)).exceeds(allowed) is exceeds


@pytest.mark.parametrize("name", ALLOWED)
def test_whatever_gets_worse_is_named(name: str) -> None:
    steady = dict.fromkeys(ALLOWED, 100.0)
    better = name == "goodput"
    worse = [200 - second if better else 100 + second for second in TIMES]
    samples = [Sample(at, **{**steady, name: value}) for at, value in zip(TIMES, worse, strict=True)]
    table, grown = judged(samples)
    assert [line.split()[0] for line in grown] == [name]
    assert [line.split()[0] for line in table if "TOO MUCH" in line] == [name]
    assert judged([Sample(at, **steady) for at in TIMES])[1] == []


@pytest.mark.e2e
def test_a_soak_notices_what_a_server_keeps(tmp_path: Path) -> None:
    plan = Plan(seed=1, gap_s=1, pause_s=0.03, bug="memory_and_files_are_kept")
    with pytest.raises(ChaosFailed) as noticed:
        asyncio.run(soak(tmp_path, plan, 0.2))
    assert "server_mib changed by" in str(noticed.value)
    assert "files changed by" in str(noticed.value)
