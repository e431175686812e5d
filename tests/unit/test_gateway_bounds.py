"""Values and lengths that a model does not take are refused, by name and number."""

from __future__ import annotations

import numpy as np
import pytest

from headway.config.settings import Bounds
from headway.gateway.bounds import check_length, check_values
from headway.gateway.errors import BadRequest
from headway.gateway.json_tensors import read
from headway.wire.tensors import NUMPY_DTYPES, Tensor


def check(datatype: str, text: str, bounds: Bounds) -> None:
    shape = (text.count(",") + 1,)
    check_values(Tensor("x", datatype, shape, read("x", datatype, shape, text.encode())), bounds)


@pytest.mark.parametrize("datatype", ["UINT8", "INT16", "INT64", "UINT64", "FP16", "BF16", "FP32", "FP64"])
def test_both_bounds_are_inclusive_whatever_the_datatype(datatype: str) -> None:
    check(datatype, "[2, 3, 4]", Bounds(2, 4))
    for bad in ("[2, 1]", "[2, 5]"):
        with pytest.raises(BadRequest, match=f"input 'x': {bad[4]}.* at position 1 .* takes 2 to 4"):
            check(datatype, bad, Bounds(2, 4))


def test_one_bound_alone_is_enough() -> None:
    check("INT64", "[-5]", Bounds(maximum=0))
    check("INT64", "[5]", Bounds(minimum=0))
    with pytest.raises(BadRequest, match="takes at most 0"):
        check("INT64", "[5]", Bounds(maximum=0))
    with pytest.raises(BadRequest, match="takes at least 0"):
        check("INT64", "[-5]", Bounds(minimum=0))


def test_the_first_value_outside_is_the_one_that_is_named() -> None:
    with pytest.raises(BadRequest, match="99999999 at position 2 is out of bounds, the model takes 0 to 30521"):
        check("INT64", "[0, 30521, 99999999, -1]", Bounds(0, 30521))


def test_no_values_are_within_all_bounds() -> None:
    check_values(Tensor("x", "INT64", (1, 0), b""), Bounds(0, 1))


@pytest.mark.parametrize("bounds", [Bounds(0, 1), Bounds(minimum=0), Bounds(maximum=0)])
@pytest.mark.parametrize("datatype", ["FP16", "FP32", "FP64"])
def test_a_nan_is_within_no_bounds(datatype: str, bounds: Bounds) -> None:
    values = np.array([0, np.nan], NUMPY_DTYPES[datatype])
    with pytest.raises(BadRequest, match="nan at position 1"):
        check_values(Tensor("x", datatype, (2,), values.tobytes()), bounds)


def test_a_length_may_reach_the_bound_and_not_pass_it() -> None:
    check_length("x", 512, 512)
    check_length("x", 10**9, 0)
    with pytest.raises(BadRequest, match=r"'x' has length 600 .* at most 512"):
        check_length("x", 600, 512)
