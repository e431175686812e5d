"""What an output looks like as JSON text."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.gateway.errors import BadRequest, NotRepresentable
from headway.gateway.json_tensors import read, text, write
from headway.wire.tensors import NUMPY_DTYPES, Tensor, to_numpy


@settings(deadline=None)
@given(st.lists(st.integers(0, 2**32 - 1), max_size=60))
def test_fp32_as_text_reads_back_bit_for_bit_in_as_few_digits_as_numpy_gives_it(bits: list[int]) -> None:
    values = np.array(bits, np.uint32).view(np.float32)
    values = values[np.isfinite(values)]
    written = text("y", "FP32", values)
    numbers = json.loads(written, parse_float=np.float32)
    assert [number.tobytes() for number in numbers] == [value.tobytes() for value in values]
    assert json.loads(written) == [float(str(value)) for value in values]


@pytest.mark.parametrize("datatype", NUMPY_DTYPES)
def test_text_is_the_values_of_every_datatype_from_wherever_its_bytes_begin(datatype: str) -> None:
    dtype = np.dtype(NUMPY_DTYPES[datatype])
    bits = np.random.default_rng(2).integers(0, 256, 64 * dtype.itemsize, dtype=np.uint8)
    values = (bits % 2).astype(dtype) if datatype == "BOOL" else bits.view(dtype)
    values = values[np.isfinite(values)]
    for begin in range(9):
        raw = bytes(begin) + values.tobytes()
        array = to_numpy(Tensor("y", datatype, (len(values),), memoryview(raw)[begin:]))
        assert json.loads(text("y", datatype, array)) == json.loads(json.dumps(write("y", datatype, values)))


@pytest.mark.parametrize("datatype", NUMPY_DTYPES)
def test_an_output_of_more_dimensions_is_written_flat_and_an_empty_one_is_an_empty_list(datatype: str) -> None:
    array = np.zeros((2, 3), NUMPY_DTYPES[datatype])
    assert len(json.loads(text("y", datatype, array))) == 6
    assert text("y", datatype, np.zeros((1, 0), NUMPY_DTYPES[datatype])) == b"[]"


@pytest.mark.parametrize("datatype", ["FP16", "FP32", "FP64"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_are_never_written(datatype: str, bad: float) -> None:
    array = np.zeros(700, NUMPY_DTYPES[datatype])
    array[699] = bad
    with pytest.raises(NotRepresentable, match=f"{bad} at position 699"):
        text("y", datatype, array)


def test_the_word_null_in_text_is_text() -> None:
    array = np.array([b"null", b"NaN"], dtype=object)
    assert text("y", "BYTES", array) == b'["null","NaN"]'


@pytest.mark.parametrize(
    ("datatype", "data", "says"),
    [
        ("INT8", "[1, 2, 300]", "300 at position 2 is out of the range of INT8, -128 to 127"),
        ("INT8", "[-129, 2, 300]", "-129 at position 0 is out of the range of INT8, -128 to 127"),
        ("UINT8", "[[1], [-1], [256]]", "-1 at position 1 is out of the range of UINT8, 0 to 255"),
        ("INT16", "[1, 2, 32768]", "32768 at position 2 is out of the range of INT16, -32768 to 32767"),
        ("UINT16", "[1, 65536, 0]", "65536 at position 1 is out of the range of UINT16, 0 to 65535"),
        (
            "INT32",
            "[0, 0, 2147483648]",
            "2147483648 at position 2 is out of the range of INT32, -2147483648 to 2147483647",
        ),
        ("UINT32", "[0, 4294967296, 0]", "4294967296 at position 1 is out of the range of UINT32, 0 to 4294967295"),
        ("INT64", "[0, 0, 9223372036854775808]", "9223372036854775808 at position 2 is out of the range of INT64, -9"),
        ("UINT64", "[0, -5, 0]", "-5 at position 1 is out of the range of UINT64, 0 to 18446744073709551615"),
        (
            "UINT64",
            "[0, 18446744073709551616, 0]",
            "18446744073709551616 at position 1 is out of the range of UINT64, 0 ",
        ),
        ("BOOL", "[true, 0, 2]", "2 at position 2 is out of the range of BOOL, which takes true, false, 0 and 1"),
        ("FP16", "[1, 70000, 0]", "70000.0 at position 1 is out of the range of FP16, -65504 to 65504"),
        ("FP32", "[1e39, 1, 0]", "1e+39 at position 0 is out of the range of FP32, -3.4028235e+38 to 3.4028235e+38"),
        (
            "BF16",
            "[1, 3.4e38, 0]",
            "3.4e+38 at position 1 is out of the range of BF16, -3.3895314e+38 to 3.3895314e+38",
        ),
    ],
)
def test_a_number_beyond_its_datatype_is_told_with_its_place_and_what_is_allowed(
    datatype: str, data: str, says: str
) -> None:
    with pytest.raises(BadRequest) as refused:
        read("x", datatype, (3, 1) if "[[" in data else (3,), data.encode())
    assert str(refused.value).startswith(f"input 'x': {says}")
    assert refused.value.param == "x"


@pytest.mark.parametrize("data", ["[1, 2.5, 300]", "[1, true, 300]", '[1, "a", 300]', "[1, [300], 2]", "[300"])
def test_what_is_no_integer_at_all_is_told_before_one_that_is_too_large(data: str) -> None:
    with pytest.raises(BadRequest, match="data for INT8, flat: "):
        read("x", "INT8", (3,), data.encode())
