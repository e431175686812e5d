from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from headway.core.admission import shares_of
from headway.core.ids import Part
from headway.core.policy import BatchPolicy
from headway.gateway.catalog import Catalog
from headway.gateway.errors import ModelBroke
from headway.gateway.parts import cut, join, join_raw, rows_within
from headway.wire.messages import VersionStatus
from headway.wire.tensors import Tensor, from_numpy, pack_bytes, to_numpy
from tests.conformance.http_world import ADD, model


def numbers(rows: int, width: int = 700) -> Tensor:
    return from_numpy("n", np.arange(rows * width, dtype="<i4").reshape(rows, width))


def words(rows: int) -> Tensor:
    return Tensor("w", "BYTES", (rows, 1), pack_bytes([b"w" * row for row in range(rows)]))


@settings(deadline=None)
@given(rows=st.integers(1, 60), most=st.integers(1, 70))
def test_what_is_cut_joins_to_what_it_was(rows: int, most: int) -> None:
    parts, payload, size = cut([numbers(rows), words(rows)], rows, 7, most)
    assert sum(part.rows for part in parts) == rows
    assert all(1 <= part.rows <= most and part.length == 7 for part in parts)
    assert size == sum(len(tensor.data) for part in payload for tensor in part.tensors)
    outputs = [part.tensors for part in payload]
    assert join(outputs, "n", rows)[1].tolist() == to_numpy(numbers(rows)).tolist()
    assert join(outputs, "w", rows)[1].ravel().tolist() == to_numpy(words(rows)).ravel().tolist()


@settings(deadline=None)
@given(rows=st.integers(1, 60), cap=st.integers(1, 20_000))
def test_what_is_cut_within_a_cap_in_bytes_is_never_too_large_for_a_batch(rows: int, cap: int) -> None:
    data = [numbers(rows, 40), words(rows)]
    most = rows_within(cap, data, rows)
    parts, _, size = cut(data, rows, 7, most)
    policy = BatchPolicy(max_batch_size=60, max_batch_bytes=cap)
    shares = shares_of(size, parts)
    assert all(policy.lets_in(part.rows, part.length, share) for part, share in zip(parts, shares, strict=True))
    assert most >= rows or size * (most + 1) > cap * rows, "no smaller than need be"


def test_numbers_are_sliced_not_copied() -> None:
    source = numbers(4)
    _, payload, _ = cut([source], 4, 1, 2)
    to_numpy(source)[2, 0] = -7
    assert to_numpy(payload[1].tensors[0])[0, 0] == -7


def test_a_request_that_fits_is_one_part() -> None:
    parts, payload, _ = cut([numbers(4)], 4, 9, 4)
    assert parts == [Part(4, 9)]
    assert payload[0].tensors[0].shape == (4, 700)


def part(*arrays: Any) -> list[list[Tensor]]:
    return [[from_numpy("y", np.array(array))] for array in arrays]


@pytest.mark.parametrize(
    ("outputs", "rows"),
    [
        ([], 1),
        ([[]], 1),
        (part([[1]], [[1, 2]]), 2),
        (part([1], [1.5]), 2),
        (part([1, 2]), 1),
        (part(1), 1),
    ],
    ids=["no parts", "no output", "shapes differ", "datatypes differ", "too many rows", "no rows"],
)
def test_outputs_that_do_not_fit_are_the_models_fault(outputs: list[list[Tensor]], rows: int) -> None:
    with pytest.raises(ModelBroke, match="'y'"):
        join(outputs, "y", rows)
    with pytest.raises(ModelBroke, match="'y'"):
        join_raw(outputs, "y", rows)


@settings(deadline=None)
@given(rows=st.integers(1, 60), most=st.integers(1, 70))
def test_what_is_joined_raw_is_byte_for_byte_what_was_cut(rows: int, most: int) -> None:
    _, payload, _ = cut([numbers(rows), words(rows)], rows, 1, most)
    for whole in (numbers(rows), words(rows)):
        datatype, shape, buffers = join_raw([part.tensors for part in payload], whole.name, rows)
        assert (datatype, shape, b"".join(buffers)) == (whole.datatype, whole.shape, bytes(whole.data))


def test_how_many_rows_a_part_may_have_follows_what_the_version_last_said_of_itself() -> None:
    catalog = Catalog([model("add", 1)])
    version = catalog.version("add", None)
    for rows in (4, 2):
        catalog.update(VersionStatus("add", 1, "ready", structs.replace(ADD, max_batch_size=rows)))
        assert [version.max_part_rows(length) for length in (1, 1, 7)] == [rows, rows, rows]
