"""BF16 as JSON: every number there is, and in how many digits."""

from __future__ import annotations

import json

import ml_dtypes
import numpy as np
import pytest

from headway.gateway.errors import NotRepresentable
from headway.gateway.json_tensors import read, text, write
from headway.wire.bfloat16 import to_float32

ALL = np.arange(2**16, dtype=np.uint16)
FINITE = ALL[np.isfinite(to_float32(ALL))]


def test_every_bf16_reads_back_as_itself_by_way_of_fp32_and_at_once():
    written = text("y", "BF16", FINITE)
    assert bytes(read("y", "BF16", (len(FINITE),), written)) == FINITE.tobytes()
    at_once = np.array(json.loads(written)).astype(ml_dtypes.bfloat16).view(np.uint16)
    np.testing.assert_array_equal(at_once, FINITE)
    assert write("y", "BF16", FINITE) == json.loads(written)


def test_no_decimal_of_fewer_digits_would_do():
    """One that lies just between two numbers does not count: not every reader rounds it to the even one."""
    for number, bits in zip(write("y", "BF16", FINITE), FINITE.tolist(), strict=True):
        digits = len(f"{number!r}".split("e")[0].replace("-", "").replace(".", "").strip("0"))
        assert digits <= 4
        if digits > 1:
            shorter = np.float32(f"{float(to_float32(np.uint16(bits))):.{digits - 2}e}")
            between = shorter.view(np.uint32) & 0xFFFF == 0x8000
            assert between or np.isinf(shorter) or shorter.astype(ml_dtypes.bfloat16).view(np.uint16) != bits


def test_a_few_as_they_are_printed():
    bits = np.array([0.1, -1.0e38, 1e-40, 1.5, 0.0, -0.0, 3.38953139e38, 256, 257]).astype(ml_dtypes.bfloat16)
    assert text("y", "BF16", bits.view(np.uint16)) == b"[0.1,-1e+38,9e-41,1.5,0.0,-0.0,3.39e+38,256.0,256.0]"


@pytest.mark.parametrize(("bits", "value"), [(0x7F80, "inf"), (0xFF80, "-inf"), (0x7FC0, "nan"), (0xFFFF, "nan")])
def test_what_json_has_no_number_for_is_refused_with_its_place(bits: int, value: str):
    array = np.array([0x3F80, bits], np.uint16)
    for written in (text, write):
        with pytest.raises(NotRepresentable, match=f"has {value} at position 1"):
            written("y", "BF16", array)
