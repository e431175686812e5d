from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headway.wire.tensors import (
    COPIED_BELOW,
    DATATYPES,
    NUMPY_DTYPES,
    Tensor,
    datatype_of,
    from_numpy,
    pack_bytes,
    to_numpy,
)


@pytest.mark.parametrize("datatype", NUMPY_DTYPES)
@pytest.mark.parametrize("shape", [(3, 2), (0, 4), (1,), (), (COPIED_BELOW, 2)])
def test_every_datatype_and_shape_comes_back_as_it_went(datatype: str, shape: tuple[int, ...]):
    array = (np.arange(np.prod(shape, dtype=int)) % 2).reshape(shape).astype(NUMPY_DTYPES[datatype])
    tensor = from_numpy("x", array)
    assert (tensor.name, tensor.datatype, tensor.shape) == ("x", datatype, shape)
    assert tensor.header.size == array.nbytes == len(bytes(tensor.data))
    back = to_numpy(tensor)
    assert back.dtype == array.dtype
    np.testing.assert_array_equal(back, array)


def test_a_large_contiguous_array_is_not_copied_either_way():
    array = np.zeros(COPIED_BELOW, np.float32)
    back = to_numpy(from_numpy("x", array))
    assert np.shares_memory(back, array)


@pytest.mark.parametrize("size", [4, COPIED_BELOW])
def test_transposed_and_strided_and_big_endian_arrays_travel_row_by_row(size: int):
    array = np.arange(size * 4, dtype=np.int32).reshape(size, 4)
    for variant in (array.T, array[::2, ::-1], array.astype(">i4")):
        np.testing.assert_array_equal(to_numpy(from_numpy("x", variant)), variant)


def test_bytes_and_text_travel_with_their_lengths():
    array = np.array([[b"a", "ü"], [b"", b"\x00\xff"]], dtype=object)
    tensor = from_numpy("t", array)
    assert tensor.datatype == "BYTES"
    assert bytes(tensor.data) == b"\x01\0\0\0a\x02\0\0\0\xc3\xbc\0\0\0\0\x02\0\0\0\x00\xff"
    assert to_numpy(tensor).tolist() == [[b"a", b"\xc3\xbc"], [b"", b"\x00\xff"]]


@pytest.mark.parametrize("array", [np.array(["ab", "c"]), np.array([b"ab", b"c"])])
def test_numpy_strings_are_bytes_tensors_too(array: Any):
    assert to_numpy(from_numpy("t", array)).tolist() == [b"ab", b"c"]


def test_an_empty_bytes_tensor_keeps_its_shape():
    assert to_numpy(from_numpy("t", np.empty((0, 3), dtype=object))).shape == (0, 3)


def test_bf16_travels_as_two_raw_bytes():
    assert to_numpy(Tensor("x", "BF16", (2,), b"\x80\x3f\x00\x40")).tolist() == [0x3F80, 0x4000]


def test_uint16_that_is_bf16_is_sent_as_that_and_nothing_else_is():
    array = np.array([0x3F80], np.uint16)
    assert from_numpy("x", array).datatype == "UINT16"
    for one in (array, np.repeat(array, COPIED_BELOW), np.repeat(array, 8)[::2]):
        sent = from_numpy("x", one, bf16=True)
        assert (sent.datatype, to_numpy(sent).tolist()) == ("BF16", one.tolist())
    with pytest.raises(ValueError, match="BF16 is kept as uint16, got float32"):
        from_numpy("x", np.zeros(1, np.float32), bf16=True)


def test_every_datatype_can_be_read():
    for datatype in DATATYPES:
        assert to_numpy(Tensor("x", datatype, (0,), b"")).shape == (0,)


@pytest.mark.parametrize(
    ("tensor", "complaint"),
    [
        (Tensor("x", "FP32", (2, 2), bytes(15)), r"tensor 'x': FP32 of shape \[2, 2\] is 16 bytes, got 15"),
        (Tensor("x", "FP32", (2,), bytes(12)), r"is 8 bytes, got 12"),
        (Tensor("x", "INT8", (-1, -4), bytes(4)), r"of shape \[-1, -4\]"),
        (Tensor("x", "FP31", (1,), bytes(4)), "unknown datatype 'FP31'"),
        (Tensor("t", "BYTES", (1,), b"\x01\0"), "tensor 't': ends inside the length"),
        (Tensor("t", "BYTES", (1,), b"\x05\0\0\0ab"), "BYTES element 0 of 5 bytes, but 2 are left"),
        (Tensor("t", "BYTES", (2,), b"\x01\0\0\0a"), r"BYTES of shape \[2\] has 2 elements, got 1"),
    ],
)
def test_bytes_that_are_not_the_tensor_they_say_are_refused(tensor: Tensor, complaint: str):
    with pytest.raises(ValueError, match=complaint):
        to_numpy(tensor)


def test_a_dtype_that_the_protocol_does_not_have_is_named():
    with pytest.raises(ValueError, match="complex128"):
        datatype_of(np.dtype(complex))


def test_an_element_that_is_neither_text_nor_bytes_is_refused():
    with pytest.raises(TypeError, match="must be text or bytes, got int"):
        pack_bytes([b"a", 5])
