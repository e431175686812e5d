from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.gateway.floats import FEW, shortest


@settings(deadline=None)
@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=2 * FEW))
def test_every_fp32_number_reads_back_and_has_as_few_digits_as_numpy_gives_it(bits: list[int]) -> None:
    values = np.array(bits, np.uint32).view(np.float32)
    values = values[np.isfinite(values)]
    printed = shortest(values)
    assert all(np.float32(p) == v for p, v in zip(printed, values, strict=True))
    assert all(len(repr(p)) <= len(repr(float(str(v)))) for p, v in zip(printed, values, strict=True))


def test_every_fp16_number_reads_back() -> None:
    values = np.arange(2**16, dtype=np.uint16).view(np.float16)
    values = values[np.isfinite(values)]
    assert (np.array(shortest(values)).astype(np.float16) == values).all()


@pytest.mark.parametrize("scale", [1e-40, 1e-20, 1e-13, 1e-5, 1, 1e4, 1e5, 1e20, 1e38])
def test_it_does_not_matter_how_large_the_numbers_are(scale: float) -> None:
    values = (np.random.default_rng(1).uniform(-1, 1, 500) * scale).astype(np.float32)
    assert shortest(values) == [float(str(value)) for value in values]


def test_zeros_stay_zeros_with_their_sign() -> None:
    assert [str(value) for value in shortest(np.array([0.0, -0.0] * FEW, np.float32))] == ["0.0", "-0.0"] * FEW
    assert shortest(np.array([], np.float32)) == []


def test_numbers_that_are_short_stay_short_among_long_ones() -> None:
    values = np.array([0.1, 0.25, 1 / 3, 2.0, 99999.0] * FEW, np.float32)
    assert [repr(value) for value in shortest(values)[:5]] == ["0.1", "0.25", "0.33333334", "2.0", "99999.0"]
