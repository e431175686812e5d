from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.wire.bfloat16 import from_float32, to_float32
from headway.wire.messages import InputMeta
from headway.worker.stacking import cut, stack

PADDED = InputMeta("x", "INT64", (-1, -1, 2), pad_axis=1, pad_value=-7)
PLAIN = InputMeta("x", "INT64", (-1, 2))


def array(rows: int, length: int, first: int = 0) -> np.ndarray:
    return np.arange(first, first + rows * length * 2).reshape(rows, length, 2)


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 5)), min_size=1, max_size=6), st.integers(0, 3))
def test_every_row_is_where_it_belongs_padded_with_the_declared_value(sizes: list[tuple[int, int]], extra: int):
    arrays = [array(rows, length, 100 * number) for number, (rows, length) in enumerate(sizes)]
    filled = sum(rows for rows, _ in sizes)
    whole = stack(arrays, PADDED, filled + extra)
    assert whole.shape == (filled + extra, max(length for _, length in sizes), 2)
    at = 0
    for one, (rows, length) in zip(arrays, sizes, strict=True):
        np.testing.assert_array_equal(cut(whole[at : at + rows], 1, length), one)
        assert (whole[at : at + rows, length:] == -7).all()
        at += rows
    assert all((row == whole[filled - 1]).all() for row in whole[filled:])


def test_one_array_that_needs_nothing_is_not_copied():
    one = array(2, 3)
    assert stack([one], PADDED, 2) is one


def test_text_is_padded_with_empty_text():
    texts = [np.array([["a", "b"]], object), np.array([["c"]], object)]
    assert stack(texts, InputMeta("t", "BYTES", (-1, -1), pad_axis=1), 2).tolist() == [["a", "b"], ["c", ""]]


@pytest.mark.parametrize("rows", [2, 3])
def test_sizes_that_differ_along_an_axis_that_is_not_padded_are_refused(rows: int):
    with pytest.raises(ValueError, match=r"shapes \[1, 2\] and \[1, 1\] in one batch|must match"):
        stack([np.zeros((1, 2)), np.zeros((1, 1))], PLAIN, rows)


def test_what_is_cut_is_a_view():
    whole = array(2, 3)
    assert np.shares_memory(cut(whole, 1, 2), whole)
    assert cut(whole, None, 1) is whole


def test_bf16_is_padded_with_the_number_that_was_declared_not_with_its_bits():
    meta = InputMeta("x", "BF16", (-1, -1), pad_axis=1, pad_value=-1.5)
    one, two = from_float32(np.array([[1.0, 2.0]])), from_float32(np.array([[3.0]]))
    assert to_float32(stack([one, two], meta, 2)).tolist() == [[1, 2], [3, -1.5]]
