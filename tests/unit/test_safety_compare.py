"""What counts as a difference between an answer alone and in a batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headway.config.settings import Tolerance
from headway.wire.messages import InputMeta
from headway.wire.safety import Difference
from headway.worker.errors import LoadError
from headway.worker.executor import PartError, PartOutput
from headway.worker.safety_compare import ALLOWED, Allowed, same_bits, tolerances, worst_difference


def meta(datatype: str, name: str = "y") -> InputMeta:
    return InputMeta(name, datatype, (-1, -1))


def difference(datatype: str, one: Any, other: Any, allowed: Allowed | None = None) -> Difference:
    outputs = [meta(datatype)]
    found = {"y": allowed} if allowed else tolerances("m/1", outputs, "", "cpu", {})
    return worst_difference({"y": one}, {"y": other}, outputs, found, "in company")


def row(*values: float, dtype: str = "f4") -> Any:
    return np.array([values], dtype)


def test_rounding_is_allowed_in_proportion_to_the_row_not_to_each_small_element():
    assert not difference("FP32", row(100, 0.001), row(100, 0.0011)).too_large
    assert difference("FP32", row(1, 0.001), row(1, 0.0015)).too_large


def test_the_worst_element_is_named_with_both_values_and_what_is_allowed():
    found = difference("FP32", row(1, 2, 3), row(1.1, 2, 4))
    assert (found.output, found.index, found.one, found.other) == ("y", (2,), "3", "4")
    assert (found.difference, found.batch) == (1, "in company")
    assert found.allowed == pytest.approx(1e-6 + 1e-4 * 3)


def test_what_a_mask_has_filled_in_does_not_widen_what_is_allowed():
    assert difference("FP32", row(1, -1e9, -1e9), row(1.1, -1e9, -1e9)).too_large
    assert difference("FP32", row(1, -np.inf), row(1.1, -np.inf)).too_large


@pytest.mark.parametrize("datatype", ["FP64", "FP32", "FP16"])
def test_the_narrower_the_type_the_more_is_allowed(datatype: str):
    dtype = {"FP64": "f8", "FP32": "f4", "FP16": "f2"}[datatype]
    relative = ALLOWED[datatype].relative
    one = row(1, 1, 1, dtype=dtype)
    assert not difference(datatype, one, row(1, 1, 1 + relative * 0.9, dtype=dtype)).too_large
    assert difference(datatype, one, row(1, 1, 1 + relative * 1.2, dtype=dtype)).too_large


def test_bf16_travels_as_raw_bits_and_is_compared_as_numbers():
    def raw(*values: float) -> Any:
        return (np.array([values], "f4").view("u4") >> 16).astype("u2")

    assert not difference("BF16", raw(1, 2), raw(1.05, 2)).too_large
    found = difference("BF16", raw(1, 2), raw(1, 3))
    assert (found.one, found.other, found.too_large) == ("2", "3", True)


@pytest.mark.parametrize(
    ("datatype", "one", "other"),
    [
        ("INT64", np.array([[2**62 + 1]]), np.array([[2**62 + 2]])),
        ("UINT8", np.array([[1]], "u1"), np.array([[2]], "u1")),
        ("BOOL", np.array([[True]]), np.array([[False]])),
        ("BYTES", np.array([[b"a"]], object), np.array([[b"b"]], object)),
    ],
)
def test_what_is_no_floating_point_number_must_be_equal(datatype: str, one: Any, other: Any):
    assert not difference(datatype, one, one.copy()).size
    assert difference(datatype, one, other).too_large


def test_nan_is_equal_to_nan_and_to_nothing_else():
    assert not difference("FP32", row(1, np.nan), row(1, np.nan)).size
    assert difference("FP32", row(1, np.nan), row(1, 2)).too_large
    assert difference("FP32", row(1, 2), row(1, np.inf)).too_large


def test_another_shape_and_a_failure_are_differences():
    assert "shape" in difference("FP32", row(1, 2), row(1, 2, 0)).detail
    failed: PartOutput = PartError("no")
    found = worst_difference({"y": row(1)}, failed, [meta("FP32")], {"y": Allowed(1, 1)}, "in company")
    assert (found.too_large, found.detail) == (True, "fails: no")
    assert not difference("FP32", np.zeros((1, 0), "f4"), np.zeros((1, 0), "f4")).size


def test_the_worst_of_several_outputs_is_the_one_furthest_beyond_what_is_allowed():
    outputs = [meta("FP32", "small"), meta("FP32", "large")]
    one = {"small": row(1), "large": row(1000)}
    other: PartOutput = {"small": row(1.01), "large": row(1000.05)}
    found = worst_difference(one, other, outputs, tolerances("m/1", outputs, "", "cpu", {}), "in company")
    assert found.output == "small"


def test_who_computes_in_less_than_the_answer_has_or_on_a_gpu_is_allowed_more():
    outputs = [meta("FP32"), meta("INT64", "label")]
    assert tolerances("m/1", outputs, "", "cpu", {}) == {"y": ALLOWED["FP32"], "label": Allowed(0, 0)}
    assert tolerances("m/1", outputs, "BF16", "cpu", {})["y"] == ALLOWED["BF16"]
    assert tolerances("m/1", outputs, "", "cuda:0", {})["y"] == ALLOWED["TF32"]
    assert tolerances("m/1", [meta("FP16")], "", "cuda:0", {})["y"] == ALLOWED["FP16"]


def test_the_operators_tolerance_replaces_what_it_names():
    given = {"y": Tolerance(absolute=0.5)}
    assert tolerances("m/1", [meta("FP32")], "", "cpu", given)["y"] == Allowed(0.5, ALLOWED["FP32"].relative)
    with pytest.raises(LoadError, match=r"m/1: tolerances.z: .* it has y"):
        tolerances("m/1", [meta("FP32")], "", "cpu", {"z": Tolerance()})


def test_the_same_bits_are_more_than_equal_numbers():
    outputs = [meta("FP32")]
    assert same_bits({"y": row(1, 2)}, {"y": row(1, 2)}, outputs, "") is None
    zero = same_bits({"y": row(0.0)}, {"y": row(-0.0)}, outputs, "")
    assert zero is not None and "bits are not" in zero.detail
    changed = same_bits({"y": row(1, 2)}, {"y": row(1, np.nextafter(np.float32(2), np.float32(3)))}, outputs, "")
    assert changed is not None and changed.index == (1,)
