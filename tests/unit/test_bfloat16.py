from __future__ import annotations

import ml_dtypes
import numpy as np

from headway.wire.bfloat16 import from_float32, to_float32


def test_every_bf16_goes_to_float32_and_back_unchanged_quiet_nans_too():
    bits = np.arange(2**16, dtype=np.uint16)
    back = from_float32(to_float32(bits))
    is_nan = (bits & 0x7FFF) > 0x7F80
    np.testing.assert_array_equal(back[~is_nan], bits[~is_nan])
    assert ((back[is_nan] & 0x7FFF) > 0x7F80).all()
    assert ((back[is_nan] | 0x40) == (bits[is_nan] | 0x40)).all()


def test_numbers_are_rounded_as_another_implementation_does():
    bits = np.random.default_rng(3).integers(0, 2**32, 400_000, dtype=np.uint32)
    ties = (np.arange(2**16, dtype=np.uint32) << 16) | 0x8000
    values = np.concatenate([bits, ties]).view(np.float32)
    values = values[~np.isnan(values)]
    expected = values.astype(ml_dtypes.bfloat16).view(np.uint16)
    np.testing.assert_array_equal(from_float32(values), expected)


def test_a_nan_whose_bits_are_all_in_the_lower_half_stays_one():
    value = np.array([0x7F800001, 0xFF80FFFF], np.uint32).view(np.float32)
    assert np.isnan(to_float32(from_float32(value))).all()


def test_shapes_and_other_dtypes_are_kept_and_taken():
    assert from_float32(np.float64(0.5)).shape == ()
    assert from_float32(np.arange(6).reshape(2, 3).T).shape == (3, 2)
    assert to_float32(from_float32(np.arange(6).reshape(2, 3).T)).tolist() == [[0, 3], [1, 4], [2, 5]]
    assert from_float32(np.zeros((0, 2))).shape == (0, 2)
