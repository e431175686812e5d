"""The infer call: every datatype, cutting and joining, what reaches the runtime, how outcomes look."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from headway.config.settings import Limits, Settings
from headway.core.ids import Part
from headway.core.outcomes import Outcome
from headway.wire.messages import InputMeta, ModelMeta, Submit
from headway.wire.tensors import Tensor, from_numpy, to_numpy
from tests.conformance.http_world import ADD, GOOD, FakeRuntime, done, failed, model, run, tensor, world, x


def round_trip(datatype: str, shape: list[int], data: Any) -> Any:
    """What an echoing model makes of it."""

    async def scenario() -> Any:
        async with world() as w:
            name = datatype.lower()
            body = {"inputs": [tensor(name, datatype, shape, data)], "outputs": [{"name": name}]}
            answer = await w.infer("kinds", body)
            assert answer.status == 200, answer
            (output,) = answer.json["outputs"]
            assert (output["name"], output["datatype"], output["shape"]) == (name, datatype, shape)
            return output["data"]

    return run(scenario())


VALUES: dict[str, list[Any]] = {
    "BOOL": [True, False],
    "UINT8": [0, 255],
    "UINT16": [0, 65535],
    "UINT32": [0, 4294967295],
    "UINT64": [0, 18446744073709551615, 9007199254740993],
    "INT8": [-128, 127],
    "INT16": [-32768, 32767],
    "INT32": [-2147483648, 2147483647],
    "INT64": [-9223372036854775808, 9223372036854775807, 9007199254740993],
    "FP16": [0.1, -2048.0, 0.0, 1.5],
    "BF16": [1.5, -2.0, 0.0],
    "FP32": [0.1, 16777216.0, 1e-45, 3.4028235e38, -0.3333333],
    "FP64": [0.1, 1e308, 5e-324, 0.30000000000000004],
    "BYTES": ["", "plain", "na\u00efve \u2603 \U0001f680", "nul\0inside", 'quote"\\\n'],
}


@pytest.mark.parametrize("datatype", VALUES)
def test_values_of_every_datatype_come_back_exactly(datatype: str) -> None:
    values = VALUES[datatype]
    assert round_trip(datatype, [1, len(values)], values) == values


@pytest.mark.parametrize("datatype", VALUES)
def test_flat_and_nested_data_are_the_same(datatype: str) -> None:
    values = (VALUES[datatype] * 3)[:6]
    nested = [values[0:3], values[3:6]]
    assert round_trip(datatype, [2, 3], values) == round_trip(datatype, [2, 3], nested) == values


@pytest.mark.parametrize("datatype", VALUES)
def test_a_dimension_of_length_zero_is_no_values(datatype: str) -> None:
    assert round_trip(datatype, [1, 0], []) == []
    assert round_trip(datatype, [2, 0], [[], []]) == []


def test_booleans_may_be_written_as_0_and_1() -> None:
    assert round_trip("BOOL", [1, 4], [0, 1, True, False]) == [False, True, True, False]


def test_whole_numbers_may_be_given_where_numbers_are_wanted() -> None:
    assert round_trip("FP32", [1, 2], [1, -2]) == [1.0, -2.0]


def test_fp32_is_printed_with_no_more_digits_than_it_takes_to_read_it_back() -> None:
    rng = np.random.default_rng(5)
    values = rng.standard_normal(400).astype(np.float32)

    async def scenario() -> bytes:
        answer_with = [[Tensor("y", "FP32", (200, 2), values.tobytes()), from_numpy("z", np.arange(200))]]
        runtime = FakeRuntime(lambda submit: done(submit.request, answer_with))
        async with world(runtime, models=[model("add", 1, max_batch_size=200)]) as w:
            return (await w.infer("add", x(200))).body

    body = run(scenario())
    printed = json.loads(body, parse_float=str)["outputs"][0]["data"]
    assert [np.float32(text) for text in printed] == list(values)
    assert all(len(text) <= len(str(value)) or "e" in str(value) for text, value in zip(printed, values, strict=True))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("datatype", ["FP32", "FP64", "FP16"])
def test_a_result_that_json_can_not_write_is_a_clear_error_and_never_null(bad: float, datatype: str) -> None:
    dtype = {"FP16": "<f2", "FP32": "<f4", "FP64": "<f8"}[datatype]

    async def scenario() -> None:
        result = [[Tensor("y", datatype, (1, 2), np.array([1, bad], dtype).tobytes())]]
        async with world(FakeRuntime(lambda submit: done(submit.request, result))) as w:
            answer = await w.infer("add", x(outputs=[{"name": "y"}]))
            assert (answer.status, answer.json["code"]) == (400, "not_representable")
            assert "'y'" in answer.json["error"] and "position 1" in answer.json["error"]

    run(scenario())


def test_text_that_is_not_utf_8_is_a_clear_error() -> None:
    async def scenario() -> None:
        result = [[Tensor("y", "BYTES", (1,), b"\x02\0\0\0\xff\xfe")]]
        async with world(FakeRuntime(lambda submit: done(submit.request, result))) as w:
            answer = await w.infer("add", x(outputs=[{"name": "y"}]))
            assert (answer.status, answer.json["code"]) == (400, "not_representable")

    run(scenario())


# -- what reaches the runtime ------------------------------------------------------------------


def test_the_runtime_gets_the_request_with_its_deadline_tenant_priority_and_parameters() -> None:
    async def scenario() -> None:
        runtime = FakeRuntime()
        async with world(
            runtime, now=lambda: 1000, settings=Settings(tenant_header="X-Tenant"), request_timeout_s=60
        ) as w:
            body = x(parameters={"timeout": 5_000, "priority": 1, "temperature": 0.5, "mode": "fast", "deep": True})
            answer = await w.infer("add", body, X_Tenant="acme", X_Request_Timeout_Ms="250")
            assert answer.status == 200
            submit = await runtime.next(Submit)
            assert submit.tenant == "acme"
            assert submit.received == 1000
            assert submit.deadline == 1000 + 5_000_000
            assert submit.priority == 0
            assert submit.parameters == {"temperature": 0.5, "mode": "fast", "deep": True}
            assert submit.parts == [Part(1, 1)]
            assert submit.bytes == 8
            assert (submit.key.model, submit.key.version) == ("add", 1)
            (sent,) = submit.payload[0].tensors
            assert (sent.name, sent.datatype, sent.shape) == ("x", "FP32", (1, 2))
            assert to_numpy(sent).tolist() == [[0.0, 1.0]]

    run(scenario())


@pytest.mark.parametrize(
    ("header", "parameter", "expected_ms"),
    [
        (None, None, 60_000),
        ("250", None, 250),
        ("0.5", None, 0.5),
        (None, 7_000, 7),
        ("5", 7_000, 5),
        ("1e9", None, 60_000),
        (None, 0, 60_000),
    ],
)
def test_the_shortest_of_all_timeouts_counts(header: str | None, parameter: int | None, expected_ms: float) -> None:
    async def scenario() -> None:
        runtime = FakeRuntime()
        async with world(runtime, now=lambda: 0) as w:
            body = x() if parameter is None else x(parameters={"timeout": parameter})
            await w.infer("add", body, **({} if header is None else {"X_Request_Timeout_Ms": header}))
            assert (await runtime.next(Submit)).deadline == expected_ms * 1_000_000

    run(scenario())


@pytest.mark.parametrize(("given", "expected"), [(None, 1), (0, 1), (1, 0), (2, 1), (3, 2), (99, 2)])
def test_priority_1_is_the_most_urgent_class_and_0_the_ordinary_one(given: int | None, expected: int) -> None:
    async def scenario() -> None:
        runtime = FakeRuntime()
        async with world(runtime) as w:
            await w.infer("add", x() if given is None else x(parameters={"priority": given}))
            assert (await runtime.next(Submit)).priority == expected
            if given is not None:
                await w.infer("add", GOOD, X_Priority=str(given))
                assert (await runtime.next(Submit)).priority == expected

    run(scenario())


async def keys_of(w: Any, *calls: tuple[str, Any]) -> list[Any]:
    keys = []
    for name, body in calls:
        assert (await w.infer(name, body)).status == 200
        keys.append((await w.runtime.next(Submit)).key)
    return keys


def texts(rows: int, length: int, **more: Any) -> dict[str, Any]:
    data = list(range(rows * length))
    shape = [rows, length]
    return {"inputs": [tensor("ids", "INT64", shape, data), tensor("mask", "INT64", shape, data)], **more}


def test_rows_and_lengths_are_not_in_the_key_of_a_padded_model() -> None:
    async def scenario() -> None:
        async with world() as w:
            first, *rest = await keys_of(w, ("text", texts(1, 3)), ("text", texts(2, 9)), ("text", texts(1, 5, id="a")))
            assert all(key is first for key in rest)

    run(scenario())


def test_what_may_not_share_a_batch_has_another_key() -> None:
    def kinds(shape: list[int], name: str = "fp32") -> tuple[str, Any]:
        entry = tensor(name, name.upper(), shape, [0] * (shape[0] * shape[1]))
        return "kinds", {"inputs": [entry], "outputs": [{"name": name}]}

    async def scenario() -> None:
        bias = tensor("bias", "FP32", [1, 2], [0, 0])
        async with world() as w:
            keys = await keys_of(
                w,
                ("add", GOOD),
                ("add", {"inputs": [*GOOD["inputs"], bias]}),
                ("add", x(parameters={"mode": "fast"})),
                ("add", x(parameters={"mode": "slow"})),
                ("add", x(parameters={"mode": "1"})),
                ("add", x(parameters={"mode": 1})),
                kinds([1, 2]),
                kinds([1, 3]),
                kinds([1, 2], "fp64"),
            )
            assert len(dict.fromkeys(keys)) == len(keys)

    run(scenario())


def test_the_order_of_inputs_and_parameters_and_those_per_row_do_not_matter_for_the_key() -> None:
    async def scenario() -> None:
        per_row = ModelMeta("fake", ADD.inputs, ADD.outputs, per_row_parameters=("seed",))
        bias = tensor("bias", "FP32", [1, 2], [0, 0])
        async with world(metas={"add": per_row}) as w:
            first, second = await keys_of(
                w,
                ("add", {"inputs": [*GOOD["inputs"], bias], "parameters": {"a": 1, "b": 2, "seed": 1, "timeout": 9}}),
                ("add", {"inputs": [bias, *GOOD["inputs"]], "parameters": {"b": 2, "a": 1, "seed": 2, "priority": 1}}),
            )
            assert first is second

    run(scenario())


# -- parts -------------------------------------------------------------------------------------


def test_a_request_with_more_rows_than_a_batch_may_have_is_cut_and_put_together_again() -> None:
    async def scenario() -> None:
        runtime = FakeRuntime()
        async with world(runtime, models=[model("add", 1, max_batch_size=3)]) as w:
            answer = await w.infer("add", x(7))
            submit = await runtime.next(Submit)
            assert submit.parts == [Part(3, 1), Part(3, 1), Part(1, 1)]
            assert [to_numpy(p.tensors[0]).tolist()[0] for p in submit.payload] == [[0, 1], [6, 7], [12, 13]]
            assert submit.bytes == 7 * 2 * 4
            y, z = answer.json["outputs"]
            assert (y["shape"], y["data"]) == ([7, 2], [float(n) for n in range(14)])
            assert (z["shape"], z["data"]) == ([7], [0, 1, 2, 0, 1, 2, 0])

    run(scenario())


def test_text_is_cut_by_rows_too() -> None:
    async def scenario() -> None:
        words = ["a", "", "ccc", "\u2603", "e", "ff"]
        runtime = FakeRuntime()
        async with world(runtime, models=[model("kinds", 1, max_batch_size=2)]) as w:
            body = {"inputs": [tensor("bytes", "BYTES", [3, 2], words)], "outputs": [{"name": "bytes"}]}
            answer = await w.infer("kinds", body)
            assert [part.rows for part in (await runtime.next(Submit)).parts] == [2, 1]
            assert answer.json["outputs"][0]["data"] == words

    run(scenario())


@pytest.mark.parametrize(
    ("batching", "in_model", "length", "expected"),
    [
        ({"max_batch_size": 4}, 0, 10, [4, 4, 2]),
        ({"max_batch_size": 4}, 3, 10, [3, 3, 3, 1]),
        ({"max_batch_tokens": 50}, 0, 10, [5, 5]),
        ({"max_batch_tokens": 5}, 0, 10, [1] * 10),
        ({"max_batch_mb": 500 / (1 << 20)}, 0, 10, [3, 3, 3, 1]),  # a row has 2 x 10 x 8 bytes
        ({"max_batch_mb": 1600 / (1 << 20)}, 0, 10, [10]),
        ({"max_batch_mb": 1599 / (1 << 20)}, 0, 10, [9, 1]),
        ({"max_batch_mb": 1 / (1 << 20)}, 0, 10, [1] * 10),
        ({}, 0, 10, [10]),
    ],
)
def test_a_part_fits_a_batch_by_every_cap(
    batching: dict[str, float], in_model: int, length: int, expected: list[int]
) -> None:
    meta = ModelMeta(
        "fake",
        (InputMeta("ids", "INT64", (-1, -1), pad_axis=1), InputMeta("mask", "INT64", (-1, -1), pad_axis=1)),
        (InputMeta("ids", "INT64", (-1, -1)),),
        max_batch_size=in_model,
    )

    async def scenario() -> None:
        runtime = FakeRuntime()
        async with world(runtime, models=[model("text", 1, **batching)], metas={"text": meta}) as w:
            answer = await w.infer("text", texts(10, length))
            assert (await runtime.next(Submit)).parts == [Part(rows, length) for rows in expected]
            assert answer.json["outputs"][0]["data"] == list(range(10 * length))

    run(scenario())


def test_a_request_with_too_many_parts_is_refused_with_the_numbers() -> None:
    async def scenario() -> None:
        async with world(models=[model("add", 1, max_batch_size=1)], limits=Limits(max_parts=5)) as w:
            answer = await w.infer("add", x(6))
            assert answer.status == 400
            assert "6 parts" in answer.json["error"] and "5 parts" in answer.json["error"]
        async with world(models=[model("add", 1, max_batch_mb=1 / (1 << 20))], limits=Limits(max_parts=5)) as w:
            answer = await w.infer("add", x(6))
            assert answer.status == 400
            assert "6 parts" in answer.json["error"] and "5 parts" in answer.json["error"]

    run(scenario())


# -- the reply ---------------------------------------------------------------------------------


def test_the_reply_names_model_and_version_and_the_id_only_if_given() -> None:
    async def scenario() -> None:
        async with world(models=[model("add", 1, 3)]) as w:
            plain = (await w.infer("add", GOOD)).json
            assert (plain["model_name"], plain["model_version"]) == ("add", "3")
            assert "id" not in plain
            named = (await w.ask("POST", "/v2/models/add/versions/1/infer", x(id=""))).json
            assert (named["model_version"], named["id"]) == ("1", "")

    run(scenario())


@pytest.mark.parametrize(
    ("asked", "expected"), [(None, ["y", "z"]), ([], ["y", "z"]), (["z"], ["z"]), (["z", "y"], ["z", "y"])]
)
def test_outputs_are_those_asked_for_in_that_order(asked: list[str] | None, expected: list[str]) -> None:
    async def scenario() -> None:
        async with world() as w:
            body = GOOD if asked is None else x(outputs=[{"name": name} for name in asked])
            answer = await w.infer("add", body)
            assert [output["name"] for output in answer.json["outputs"]] == expected

    run(scenario())


def test_unknown_members_are_ignored_and_of_duplicate_keys_the_last_counts() -> None:
    async def scenario() -> None:
        async with world() as w:
            assert (await w.infer("add", x(surprise={"a": [1]}))).status == 200
            raw = json.dumps(x())[:-1] + ', "id": "first", "id": "last"}'
            assert (await w.infer("add", raw.encode())).json["id"] == "last"

    run(scenario())


def test_binary_data_may_be_declined() -> None:
    async def scenario() -> None:
        async with world() as w:
            outputs = [{"name": "y", "parameters": {"binary_data": False}}]
            assert (await w.infer("add", x(outputs=outputs, parameters={"binary_data_output": False}))).status == 200

    run(scenario())


@pytest.mark.parametrize(
    ("outcome", "status", "retryable", "should_retry", "retry_after"),
    [
        (Outcome.QUEUE_FULL, 503, True, None, "2"),
        (Outcome.OVERLOADED, 503, True, None, "2"),
        (Outcome.DRAINING, 503, True, None, "2"),
        (Outcome.NO_WORKER, 503, True, None, "2"),
        (Outcome.WORKER_LOST, 503, True, None, "2"),
        (Outcome.DEADLINE_UNMEETABLE, 503, False, "false", None),
        (Outcome.DEADLINE_EXCEEDED, 504, False, "false", None),
        (Outcome.MODEL_ERROR, 500, False, "false", None),
        (Outcome.INVALID_INPUT, 400, False, None, None),
        (Outcome.TOO_LARGE, 413, False, None, None),
        (Outcome.UNKNOWN_VERSION, 404, False, None, None),
    ],
)
def test_every_outcome_has_its_status_and_says_whether_to_try_again(
    outcome: Outcome, status: int, retryable: bool, should_retry: str | None, retry_after: str | None
) -> None:
    async def scenario() -> None:
        runtime = FakeRuntime(lambda submit: failed(submit.request, outcome, "so it is", 1_200_000_000))
        async with world(runtime) as w:
            answer = await w.infer("add", GOOD)
            assert (answer.status, answer.json["code"], answer.json["retryable"]) == (status, outcome.value, retryable)
            assert answer.json["error"] == "so it is"
            assert answer.headers.get("x-should-retry") == should_retry
            assert answer.headers.get("retry-after") == retry_after

    run(scenario())


@pytest.mark.parametrize(
    "outputs",
    [
        [],
        [[Tensor("other", "FP32", (1, 2), b"\0" * 8)]],
        [[Tensor("y", "FP32", (3, 2), b"\0" * 24)]],
        [[Tensor("y", "FP32", (1, 2), b"\0" * 7)]],
        [[Tensor("y", "FP32", (), b"\0" * 4)]],
        [[Tensor("y", "BYTES", (1,), b"\xff\0\0\0a")]],
    ],
    ids=["no parts", "other name", "other rows", "bytes missing", "no rows", "cut text"],
)
def test_a_model_that_breaks_its_declaration_is_a_500_that_says_how(outputs: list[list[Tensor]]) -> None:
    async def scenario() -> None:
        async with world(FakeRuntime(lambda submit: done(submit.request, outputs))) as w:
            answer = await w.infer("add", x(outputs=[{"name": "y"}]))
            assert (answer.status, answer.json["code"]) == (500, "model_error"), answer
            assert "'y'" in answer.json["error"]

    run(scenario())
