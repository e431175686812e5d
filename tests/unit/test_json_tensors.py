"""What an output looks like as JSON text."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.gateway.errors import NotRepresentable
from headway.gateway.json_tensors import text, write
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
