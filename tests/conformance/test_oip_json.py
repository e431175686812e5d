"""Tensors and parameters in JSON, line by line of the protocol's checklist (C12-C33); bodies are sent as raw text."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from headway.core.ids import Part
from headway.wire import bfloat16
from headway.wire.messages import InputMeta, ModelMeta, Submit
from headway.wire.tensors import DATATYPES, Tensor, to_numpy
from tests.conformance.http_world import ADD, Answer, FakeRuntime, done, model, run, tensor, world, x

INTEGERS = {
    "UINT8": (0, 2**8 - 1),
    "UINT16": (0, 2**16 - 1),
    "UINT32": (0, 2**32 - 1),
    "UINT64": (0, 2**64 - 1),
    "INT8": (-(2**7), 2**7 - 1),
    "INT16": (-(2**15), 2**15 - 1),
    "INT32": (-(2**31), 2**31 - 1),
    "INT64": (-(2**63), 2**63 - 1),
}
FLOATS = ("FP16", "BF16", "FP32", "FP64")


def ask(datatype: str, shape: str, data: str) -> Answer:
    """One input of the model that echoes every datatype. shape, data: JSON text."""
    name = datatype.lower()
    entry = f'{{"name": "{name}", "datatype": "{datatype}", "shape": {shape}, "data": {data}}}'

    async def scenario() -> Answer:
        async with world() as w:
            return await w.infer("kinds", f'{{"inputs": [{entry}], "outputs": [{{"name": "{name}"}}]}}'.encode())

    return run(scenario())


def echoed(datatype: str, shape: str, data: str) -> Any:
    answer = ask(datatype, shape, data)
    assert answer.status == 200, answer
    return answer.json["outputs"][0]["data"]


def refused(datatype: str, shape: str, data: str) -> str:
    answer = ask(datatype, shape, data)
    assert (answer.status, answer.json["code"], answer.json["retryable"]) == (400, "invalid_request", False), answer
    return str(answer.json["error"])


def to_add(body: Any, **settings: Any) -> tuple[Answer, list[Submit]]:
    async def scenario() -> tuple[Answer, list[Submit]]:
        async with world(**settings) as w:
            return await w.infer("add", body), w.runtime.all(Submit)

    return run(scenario())


def wrong(body: Any) -> str:
    answer, submitted = to_add(body)
    assert (answer.status, answer.json["code"]) == (400, "invalid_request"), answer
    assert not submitted
    return str(answer.json["error"])


@pytest.mark.parametrize("data", ["[1,2,3,4]", "[[1,2],[3,4]]", "[ [1, 2], [3, 4] ]", "[\n[1,2],[3,4]]"])
def test_flat_and_nested_data_mean_the_same_however_they_are_spaced(data: str) -> None:
    """C12."""
    assert echoed("INT32", "[2, 2]", data) == [1, 2, 3, 4]


@pytest.mark.parametrize("data", ["[[1,2],[3]]", "[[1,2],3]", "[1,[2]]", "[[[1,2]],[[3,4]]]", "[[1,2,3,4]]", "[[],[]]"])
def test_nesting_that_is_not_the_shape_is_refused(data: str) -> None:
    """C13."""
    assert "input 'int32'" in refused("INT32", "[2, 2]", data)


@pytest.mark.parametrize(("data", "count"), [("[1,2,3]", 3), ("[1,2,3,4,5]", 5), ("[]", 0)])
def test_a_count_that_is_not_the_product_of_the_shape_is_refused_with_both(data: str, count: int) -> None:
    """C14."""
    assert f"shape [2, 2] needs 4 values, data has {count}" in refused("INT32", "[2, 2]", data)


@pytest.mark.parametrize("size", ["-1", "1.0", '"1"', "true", "null", "[1]", "9223372036854775808", "1e3", "0.5"])
def test_a_dimension_is_an_integer_from_0_to_2_63_minus_1(size: str) -> None:
    """C15."""
    assert "integers from 0 to 2^63 - 1" in refused("INT32", f"[1, {size}]", "[1]")


def test_a_product_of_dimensions_that_overflows_64_bits_is_compared_as_it_is() -> None:
    """C15."""
    error = refused("INT8", f"[1, {2**62}]", "[1]")
    assert f"needs {2**62} values, data has 1" in error
    meta = {"add": ModelMeta("fake", (InputMeta("x", "INT8", (-1, -1, -1, -1)),), ())}
    answer, _ = to_add({"inputs": [tensor("x", "INT8", [1, 2**32, 2**32, 2**32], [])]}, metas=meta)
    assert answer.status == 400 and f"needs {2**96} values" in answer.json["error"]


@pytest.mark.parametrize("data", ["5", "[5]", "[]"])
def test_a_scalar_is_refused_for_its_missing_rows(data: str) -> None:
    """C16."""
    assert "the first is the rows), got 0 dimensions" in refused("INT32", "[]", data)


def test_dimensions_of_length_zero_hold_no_values_and_rows_are_at_least_one() -> None:
    """C17."""
    for datatype in DATATYPES:
        assert echoed(datatype, "[1, 0]", "[]") == echoed(datatype, "[1, 0]", "[[]]") == []
    assert "the first dimension is the rows, at least 1" in refused("INT32", "[0, 2]", "[]")


@pytest.mark.parametrize(("datatype", "limits"), INTEGERS.items())
def test_integers_reach_their_limits_exactly_and_never_wrap_around(datatype: str, limits: tuple[int, int]) -> None:
    """C18, C19."""
    low, high = limits
    assert echoed(datatype, "[1, 2]", f"[{low}, {high}]") == [low, high]
    for beyond in (low - 1, high + 1, 2**64, -(2**63) - 1, 10**40):
        assert "'" + datatype.lower() + "'" in refused(datatype, "[1, 2]", f"[0, {beyond}]")


@pytest.mark.parametrize(("datatype", "limits"), INTEGERS.items())
def test_integers_by_the_thousand_are_checked_as_strictly(datatype: str, limits: tuple[int, int]) -> None:
    """C18: long lists take another way to their bytes."""
    values = [limits[0], limits[1], 1] * 3000
    assert echoed(datatype, "[1, 9000]", json.dumps(values)) == values
    refused(datatype, "[1, 9000]", json.dumps([*values[:-1], limits[1] + 1]))
    refused(datatype, "[1, 9000]", json.dumps([*values[:-1], limits[0] - 1]))


def test_integers_above_2_53_keep_every_digit() -> None:
    """C19."""
    for value in (2**53 + 1, 2**62 + 1, 2**63 - 1):
        assert echoed("INT64", "[1, 2]", f"[{value}, {-value}]") == [value, -value]
        assert echoed("UINT64", "[1, 1]", f"[{2 * value + 1}]") == [2 * value + 1]


@pytest.mark.parametrize("datatype", INTEGERS)
@pytest.mark.parametrize("value", ["1.5", "true", '"1"', "null", "1e0"])
def test_an_integer_is_written_as_one(datatype: str, value: str) -> None:
    """C20."""
    refused(datatype, "[1, 1]", f"[{value}]")


def test_fp32_and_fp16_are_printed_by_their_shortest_digits() -> None:
    """C21."""
    values = [0.1, 1 / 3, 16777216.0, 1e-45, 3.4028235e38, -0.0]
    array = np.array([values], "<f4")

    async def scenario() -> str:
        answer = [[Tensor("y", "FP32", array.shape, array.tobytes())]]
        async with world(FakeRuntime(lambda submit: done(submit.request, answer))) as w:
            return (await w.infer("add", x(outputs=[{"name": "y"}]))).body.decode()

    printed = json.loads(run(scenario()), parse_float=str)["outputs"][0]["data"]
    assert [float(text) for text in printed] == [float(str(value)) for value in array[0]]
    assert printed[:2] == ["0.1", "0.33333334"]
    assert [np.float32(text).tobytes() for text in printed] == [value.tobytes() for value in array[0]]
    assert echoed("FP16", "[1, 2]", "[0.1, 65504]") == [0.1, 65500.0], "no other FP16 is nearer to 65500"


@pytest.mark.parametrize("literal", ["NaN", "Infinity", "-Infinity", "nan", "1e400", '"NaN"', "null"])
@pytest.mark.parametrize("datatype", FLOATS)
def test_what_is_no_json_number_is_refused_where_a_number_is_wanted(datatype: str, literal: str) -> None:
    """C22."""
    refused(datatype, "[1, 1]", f"[{literal}]")


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("datatype", FLOATS)
def test_nan_and_infinity_in_an_output_as_json_are_an_error_that_points_to_binary(datatype: str, bad: float) -> None:
    """C22."""
    dtype = {"FP16": "<f2", "FP32": "<f4", "FP64": "<f8", "BF16": "<f4"}[datatype]
    array = np.array([[1, bad]], dtype)
    data = bfloat16.from_float32(array).tobytes() if datatype == "BF16" else array.tobytes()

    async def scenario() -> None:
        result = [[Tensor("y", datatype, (1, 2), data)]]
        async with world(FakeRuntime(lambda submit: done(submit.request, result))) as w:
            answer = await w.infer("add", x(outputs=[{"name": "y"}]))
            assert (answer.status, answer.json["code"]) == (400, "not_representable")
            assert "binary_data" in answer.json["error"] and "position 1" in answer.json["error"]
            binary = await w.infer("add", x(outputs=[{"name": "y", "parameters": {"binary_data": True}}]))
            assert binary.body.endswith(data)

    run(scenario())


@pytest.mark.parametrize(
    ("datatype", "values", "expected"),
    [
        ("FP16", "[0.1, 1, -2048, 65504, 6e-8]", [0.1, 1.0, -2048.0, 65500.0, 6e-8]),
        ("BF16", "[1.5, 0.1, 3.3895314e38, 1.00390625, 1.01171875]", [1.5, 0.1, 3.39e38, 1.0, 1.016]),
    ],
)
def test_fp16_and_bf16_are_numbers_rounded_to_the_nearest_ties_to_even(
    datatype: str, values: str, expected: list[float]
) -> None:
    """C23."""
    assert [float(np.float32(v)) for v in echoed(datatype, "[1, 5]", values)] == [
        float(np.float32(v)) for v in expected
    ]


@pytest.mark.parametrize(
    ("datatype", "values"),
    [("FP16", ["65520", "-1e5"]), ("BF16", ["3.4e38", "-3.4e38", "1e39"]), ("FP32", ["3.4028236e38", "1e39"])],
)
def test_a_number_that_would_become_infinite_is_refused_with_its_position(datatype: str, values: list[str]) -> None:
    """C23."""
    for value in values:
        error = refused(datatype, "[1, 2]", f"[0, {value}]")
        assert "at position 1 is out of the range of " + datatype in error
        refused(datatype, "[1, 5000]", json.dumps([0] * 4999)[:-1] + f", {value}]")


def test_bool_takes_true_false_0_and_1_and_nothing_else() -> None:
    """C24."""
    assert echoed("BOOL", "[1, 4]", "[true, false, 0, 1]") == [True, False, False, True]
    for value in ("2", "-1", "0.0", '"true"', "null"):
        refused("BOOL", "[1, 1]", f"[{value}]")


def test_bytes_are_any_unicode_text_escapes_and_nul_included() -> None:
    """C25."""
    texts = ["", "\u2603", "\U0001f680", "nul\0", 'q"\\/\b\f\n\r\t', "\u2028", "e\u0301"]
    shape = f"[1, {len(texts)}]"
    assert echoed("BYTES", shape, json.dumps(texts)) == texts
    assert echoed("BYTES", shape, json.dumps(texts, ensure_ascii=False)) == texts


@pytest.mark.parametrize("text", ['"\\ud800"', '"\\udc00"', '"a\\ud83dz"', '"\\ud800\\u0041"', "1", "null", "{}"])
def test_lone_surrogates_and_what_is_no_text_are_refused_for_bytes(text: str) -> None:
    """C25."""
    refused("BYTES", "[1, 1]", f"[{text}]")


def test_of_duplicate_keys_the_last_counts_and_a_duplicate_input_is_refused() -> None:
    """C26."""
    raw = json.dumps(x())[:-1] + ', "id": "first", "id": "last"}'
    assert to_add(raw.encode())[0].json["id"] == "last"
    assert "input 'x' is given twice" in wrong({"inputs": x()["inputs"] * 2})


def test_unknown_and_missing_inputs_are_named_and_optional_ones_may_be_left_out() -> None:
    """C27."""
    assert "unknown input 'w'; the model has: x, bias" in wrong({"inputs": [tensor("w", "FP32", [1, 2], [0, 0])]})
    assert "input 'x' is missing; given: bias" in wrong({"inputs": [tensor("bias", "FP32", [1, 2], [0, 0])]})
    assert "input 'x' is missing; given: none" in wrong({"inputs": []})
    assert to_add(x())[0].status == 200


def test_outputs_are_a_subset_in_the_order_asked_for_and_an_empty_list_is_all() -> None:
    """C28."""
    for asked, expected in ((["z", "y"], ["z", "y"]), (["z"], ["z"]), ([], ["y", "z"])):
        answer, _ = to_add(x(outputs=[{"name": name} for name in asked]))
        assert [output["name"] for output in answer.json["outputs"]] == expected
    assert "unknown output 'w'; the model has: y, z" in wrong(x(outputs=[{"name": "w"}]))


@pytest.mark.parametrize("given", ["7", "", '\u2603 " id'])
def test_an_id_comes_back_as_it_was_and_none_is_made_up(given: str) -> None:
    """C29."""
    assert to_add(x(id=given))[0].json["id"] == given
    assert "id" not in to_add(x())[0].json


def test_parameters_reach_the_model_with_their_types_and_those_for_the_server_do_not() -> None:
    """C30."""
    given = {"text": "5", "int": 5, "large": 2**64 - 1, "low": -(2**63), "float": 5.0, "flag": True}
    _, (submit,) = to_add(x(parameters={**given, "timeout": 5_000_000, "priority": 1, "binary_data_output": False}))
    assert submit.parameters == given
    assert {name: type(value) for name, value in submit.parameters.items()} == {n: type(v) for n, v in given.items()}


RESERVED = ["sequence_id", "sequence_start", "sequence_end", "headers", "triton_anything", "triton_"]


@pytest.mark.parametrize("name", RESERVED)
def test_reserved_parameters_that_mean_nothing_here_are_refused_by_name(name: str) -> None:
    """C30."""
    assert f"parameter {name!r} is reserved and not supported" in wrong(x(parameters={name: 1}))


@pytest.mark.parametrize("name", ["shared_memory_region", "shared_memory_offset", "shared_memory_byte_size"])
def test_shared_memory_and_classification_are_refused_by_name(name: str) -> None:
    """C30."""
    inputs = [tensor("x", "FP32", [1, 2], [0, 0], parameters={name: 1})]
    assert f"parameter {name!r} is reserved" in wrong({"inputs": inputs})
    for output in (name, "classification"):
        assert f"parameter {output!r} is reserved" in wrong(x(outputs=[{"name": "y", "parameters": {output: 1}}]))


@pytest.mark.parametrize("value", ["null", "[1]", "{}", "18446744073709551616", "-9223372036854775809", "1e400"])
def test_a_parameter_is_a_string_a_number_of_64_bits_or_a_boolean(value: str) -> None:
    """C30."""
    wrong((json.dumps(x())[:-1] + f', "parameters": {{"a": {value}}}}}').encode())


@pytest.mark.parametrize("value", [1, 0, "true", 1.0])
def test_whether_outputs_are_binary_is_true_or_false(value: Any) -> None:
    """C30."""
    assert "must be true or false" in wrong(x(parameters={"binary_data_output": value}))
    assert "must be true or false" in wrong(x(outputs=[{"name": "y", "parameters": {"binary_data": value}}]))


def test_unknown_members_are_ignored_wherever_they_stand() -> None:
    """C31."""
    inputs = [tensor("x", "FP32", [1, 2], [1, 2], surprise=None)]
    answer, _ = to_add({"inputs": inputs, "surprise": [{}], "outputs": [{"name": "y", "surprise": 1}]})
    assert answer.json["outputs"][0]["data"] == [1.0, 2.0]


@pytest.mark.parametrize("datatype", [*DATATYPES[:-1], "FP31", "fp32", "", "TYPE_FP32"])
def test_another_datatype_than_the_models_is_refused_naming_both(datatype: str) -> None:
    """C32."""
    if datatype == "FP32":
        return
    error = wrong({"inputs": [tensor("x", datatype, [1, 2], [0, 0])]})
    assert f"the model takes FP32, got {datatype!r}" in error


@pytest.mark.parametrize("rows", [1, 3, 4, 7, 9])
def test_more_rows_than_a_batch_may_have_are_split_and_answered_as_one(rows: int) -> None:
    """C33."""
    answer, (submit,) = to_add(x(rows), models=[model("add", 1, max_batch_size=3)])
    assert answer.json["outputs"][0]["data"] == [float(n) for n in range(2 * rows)]
    sizes = [3] * (rows // 3) + ([rows % 3] if rows % 3 else [])
    assert submit.parts == [Part(size, 1) for size in sizes]
    assert [to_numpy(part.tensors[0]).shape[0] for part in submit.payload] == sizes


def test_what_the_model_declares_is_what_it_is_checked_against() -> None:
    """C3, C27: -1 takes any size, a number only itself."""
    assert "the model takes [-1, 2] (-1 = any size, the first is the rows), got [1, 3]" in wrong(
        {"inputs": [tensor("x", "FP32", [1, 3], [0, 0, 0])]}
    )
    assert ADD.inputs[0].shape == (-1, 2)
