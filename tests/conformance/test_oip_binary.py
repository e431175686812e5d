"""Binary tensors, over raw bytes: what a client library would put right by itself is sent as it is (C34-C43)."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from headway.config.settings import Bounds, ModelSettings
from headway.core.ids import Part
from headway.wire.messages import InputMeta, ModelMeta, Submit
from headway.wire.tensors import DATATYPES, NUMPY_DTYPES, Tensor, from_numpy, pack_bytes, to_numpy
from tests.conformance.http_world import Answer, FakeRuntime, World, done, echo, message, model, run, tensor, world, x

Tensors = list[tuple[str, str, list[int], bytes]]
LENGTH = "inference-header-content-length"


def binary_input(name: str, datatype: str, shape: list[int], size: int, **more: Any) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": shape, "parameters": {"binary_data_size": size}, **more}


def packed(tensors: Tensors, *inputs: dict[str, Any], **more: Any) -> tuple[bytes, dict[str, str]]:
    """Body and header. inputs: further ones, before the tensors."""
    entries = [*inputs, *(binary_input(name, kind, shape, len(data)) for name, kind, shape, data in tensors)]
    text = json.dumps({"inputs": entries, **more}).encode()
    return text + b"".join(data for *_, data in tensors), {LENGTH: str(len(text))}


def unpacked(answer: Answer) -> dict[str, Any]:
    """Outputs by name; binary ones have their bytes as "raw". Checks that header, sizes and body agree."""
    assert answer.status == 200, answer
    end = int(answer.headers[LENGTH])
    assert answer.headers["content-type"] == "application/octet-stream"
    outputs = {}
    at = end
    for output in json.loads(answer.body[:end])["outputs"]:
        size = output.get("parameters", {}).get("binary_data_size")
        if size is not None:
            assert "data" not in output
            output["raw"] = answer.body[at : at + size]
            at += size
        outputs[output["name"]] = output
    assert at == len(answer.body)
    return outputs


def x_bytes(rows: int = 1) -> bytes:
    return np.arange(rows * 2, dtype="<f4").tobytes()


async def ask(w: World, name: str, body: bytes, headers: dict[str, str]) -> Answer:
    return await w.infer(name, body, **headers)


def refused(body: bytes, headers: dict[str, str], name: str = "add", **settings: Any) -> str:
    """The words of the 400; and that the connection and the next request are as before."""

    async def scenario() -> str:
        async with world(**settings) as w:
            client = await w.connect()
            for _ in range(2):
                client.send(message("POST", f"/v2/models/{name}/infer", body, **headers))
                answer = await client.answer()
                assert (answer.status, answer.json["code"]) == (400, "invalid_request"), answer
            client.send(message("POST", "/v2/models/add/infer", x()))
            assert (await client.answer()).status == 200
            assert not any(submit.key.model == name and name != "add" for submit in w.runtime.all(Submit))
            return str(answer.json["error"])

    return run(scenario())


ELEMENTS: dict[str, bytes] = {
    "BOOL": b"\x01\0",
    "FP16": np.array([0.1, np.inf], "<f2").tobytes(),
    "BF16": b"\xcd\x3d\xc0\x7f",
    "FP32": np.array([np.nan, -0.0], "<f4").tobytes(),
    "FP64": np.array([5e-324, -np.inf], "<f8").tobytes(),
    "BYTES": pack_bytes([b"\xff\xfe", b""]),
}


def elements(datatype: str) -> bytes:
    """Two."""
    if datatype in ELEMENTS:
        return ELEMENTS[datatype]
    limits = np.iinfo(NUMPY_DTYPES[datatype])
    return np.array([limits.min, limits.max], NUMPY_DTYPES[datatype]).tobytes()


def test_every_datatype_comes_back_byte_for_byte_nan_and_infinity_too() -> None:
    """C34."""

    async def scenario() -> None:
        async with world() as w:
            tensors: Tensors = [(kind.lower(), kind, [1, 2], elements(kind)) for kind in DATATYPES]
            body, headers = packed(tensors, parameters={"binary_data_output": True})
            outputs = unpacked(await ask(w, "kinds", body, headers))
            for name, kind, shape, data in tensors:
                assert (outputs[name]["datatype"], outputs[name]["shape"]) == (kind, shape)
                assert outputs[name]["raw"] == data

    run(scenario())


@pytest.mark.parametrize("turned", [False, True])
def test_json_and_binary_inputs_mix_and_bytes_follow_the_order_of_the_request(turned: bool) -> None:
    """C34."""

    async def scenario() -> None:
        async with world() as w:
            tensors: Tensors = [
                ("int8", "INT8", [1, 3], b"\x01\x02\x03"),
                ("bytes", "BYTES", [1, 1], pack_bytes([b"ab"])),
                ("fp64", "FP64", [1, 1], np.array([0.5]).tobytes()),
            ]
            body, headers = packed(tensors[::-1] if turned else tensors, tensor("int64", "INT64", [1, 2], [7, 2**62]))
            assert (await ask(w, "kinds", body, headers)).status == 500, "the outputs that were not sent are missing"
            sent = {entry.name: entry for entry in (await w.runtime.next(Submit)).payload[0].tensors}
            assert {name: bytes(entry.data) for name, entry in sent.items() if name != "int64"} == {
                name: data for name, _, _, data in tensors
            }
            assert to_numpy(sent["int64"]).tolist() == [[7, 2**62]]

    run(scenario())


BODY, HEADERS = packed([("x", "FP32", [1, 2], x_bytes())])
JSON_BYTES = int(HEADERS[LENGTH])


@pytest.mark.parametrize(
    ("length", "words"),
    [
        (str(JSON_BYTES - 1), f"the first {JSON_BYTES - 1} of the body's {len(BODY)} bytes are not an infer request"),
        (str(JSON_BYTES + 1), f"the first {JSON_BYTES + 1} of the body's"),
        ("1", "the first 1 of"),
        (str(len(BODY)), "are not an infer request"),
        (str(len(BODY) + 1), f"it says {len(BODY) + 1} and the whole body has {len(BODY)} bytes"),
        ("9" * 5000, "got '99999"),
        ("-1", "got '-1'"),
        ("+5", "got '+5'"),
        ("1.0", "got '1.0'"),
        ("0x10", "got '0x10'"),
        ("\xb2", "got"),
        ("many", "got 'many'"),
        ("", "got ''"),
        (f"{JSON_BYTES}, {JSON_BYTES}", "got"),
    ],
)
def test_a_wrong_length_of_the_json_is_refused_with_advice(length: str, words: str) -> None:
    """C35."""
    error = refused(BODY, {LENGTH: length})
    assert words in error
    assert "must be the number of bytes of the JSON object that the body begins with" in error


def test_a_length_of_several_headers_is_none() -> None:
    """C35."""

    async def scenario() -> None:
        async with world() as w:
            client = await w.connect()
            head = f"Host: a\r\nContent-Length: {len(BODY)}\r\n{LENGTH}: {JSON_BYTES}\r\n{LENGTH}: {JSON_BYTES}\r\n\r\n"
            client.send(b"POST /v2/models/add/infer HTTP/1.1\r\n" + head.encode() + BODY)
            assert (await client.answer()).status == 400

    run(scenario())


@pytest.mark.parametrize(
    ("name", "shape", "data"),
    [
        ("fp32", [1, 2], bytes(7)),
        ("fp32", [1, 2], bytes(12)),
        ("fp32", [1, 2], b""),
        ("int8", [2, 2], bytes(3)),
        ("bf16", [1, 1], bytes(4)),
        ("fp64", [3, 0], bytes(8)),
    ],
)
def test_a_size_that_is_not_shape_times_width_is_refused_naming_both(name: str, shape: list[int], data: bytes) -> None:
    """C36."""
    error = refused(*packed([(name, name.upper(), shape, data)]), name="kinds")
    expected = shape[0] * shape[1] * {"fp32": 4, "int8": 1, "bf16": 2, "fp64": 8}[name]
    assert f"{name.upper()} of shape {shape} is {expected} bytes, binary_data_size is {len(data)}" in error


@pytest.mark.parametrize("size", [-8, 8.0, "8", True, 2**70])
def test_a_size_that_is_no_number_of_bytes_is_refused(size: Any) -> None:
    """C36."""
    entry = {"name": "x", "datatype": "FP32", "shape": [1, 2], "parameters": {"binary_data_size": size}}
    text = json.dumps({"inputs": [entry]}).encode()
    assert "binary_data_size" in refused(text + x_bytes(), {LENGTH: str(len(text))})


def test_bytes_that_nobody_claims_and_bytes_that_are_missing_are_refused_with_the_numbers() -> None:
    """C37."""
    assert "9 bytes follow the JSON, the inputs' binary_data_size add up to 8" in refused(BODY + b"!", HEADERS)
    assert "binary_data_size is 8, but 7 of the 7 bytes behind the JSON are left" in refused(BODY[:-1], HEADERS)
    only_json = json.dumps(x()).encode()
    assert "4 bytes follow the JSON" in refused(only_json + b"four", {LENGTH: str(len(only_json))})


def test_binary_data_without_the_header_that_says_where_it_begins_is_refused() -> None:
    """C37."""
    text = json.dumps({"inputs": [binary_input("x", "FP32", [1, 2], 8)]}).encode()
    assert "header inference-header-content-length missing" in refused(text, {})


def test_an_input_has_data_or_binary_data_and_not_both_or_neither() -> None:
    """C38."""
    doubled = json.dumps({"inputs": [binary_input("x", "FP32", [1, 2], 8, data=[1, 2])]}).encode()
    assert "both data and binary_data_size" in refused(doubled + x_bytes(), {LENGTH: str(len(doubled))})
    neither = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2]}]}).encode()
    assert "has no data" in refused(neither, {LENGTH: str(len(neither))})


@pytest.mark.parametrize("of_all", [None, False, True])
@pytest.mark.parametrize("own", [None, False, True])
def test_an_outputs_own_word_goes_before_the_requests_where_it_is_given(of_all: bool | None, own: bool | None) -> None:
    """C39."""

    async def scenario() -> None:
        async with world() as w:
            y: dict[str, Any] = {"name": "y"} if own is None else {"name": "y", "parameters": {"binary_data": own}}
            more = {} if of_all is None else {"parameters": {"binary_data_output": of_all}}
            answer = await w.infer("add", x(2, outputs=[y, {"name": "z"}], **more))
            assert answer.status == 200
            y_binary, z_binary = bool(of_all if own is None else own), bool(of_all)
            if not (y_binary or z_binary):
                assert LENGTH not in answer.headers and answer.headers["content-type"] == "application/json"
                return
            outputs = unpacked(answer)
            assert (("raw" in outputs["y"]), ("raw" in outputs["z"])) == (y_binary, z_binary)
            assert outputs["y"].get("raw", x_bytes(2)) == x_bytes(2)
            assert outputs["z"].get("raw", b"") in (b"", np.array([0, 1], "<i8").tobytes())

    run(scenario())


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x01\0", "ends inside the length of BYTES element 0"),
        (b"\x05\0\0\0ab", "BYTES element 0 of 5 bytes, but 2 are left"),
        (b"\xff\xff\xff\xffab", "of 4294967295 bytes"),
        (pack_bytes([b"a"]), "needs 2 elements, the binary data has 1"),
        (pack_bytes([b"a"] * 3), "needs 2 elements, the binary data has 3"),
        (pack_bytes([b"a", b"b"]) + b"\0", "ends inside the length of BYTES element 2"),
    ],
)
def test_bytes_elements_whose_lengths_do_not_add_up_are_refused(data: bytes, words: str) -> None:
    """C40."""
    assert words in refused(*packed([("bytes", "BYTES", [1, 2], data)]), name="kinds")


def test_a_byte_of_bool_is_0_or_1() -> None:
    """C40."""
    assert "a byte of BOOL is 0 or 1" in refused(*packed([("bool", "BOOL", [1, 2], b"\x01\x02")]), name="kinds")


RAW = {LENGTH: "0"}


def one_input(datatype: str, *sizes: int, pad_axis: int | None = None) -> dict[str, ModelMeta]:
    inputs = (InputMeta("x", datatype, (-1, *sizes), pad_axis=pad_axis),)
    return {"raw": ModelMeta("fake", inputs, (InputMeta("x", datatype, (-1, *sizes)),))}


@pytest.mark.parametrize(
    ("datatype", "sizes", "body", "shape"),
    [
        ("FP32", (2,), x_bytes(), (1, 2)),
        ("FP32", (-1,), x_bytes(3), (1, 6)),
        ("INT8", (3, -1, 2), bytes(12), (1, 3, 2, 2)),
        ("INT8", (), b"\x07", (1,)),
        ("FP64", (-1,), b"", (1, 0)),
        ("BYTES", (1,), b"any \xff bytes", (1, 1)),
        ("BYTES", (-1,), b"", (1, 1)),
    ],
)
def test_a_raw_request_is_one_row_of_the_only_input_and_all_outputs_come_raw(
    datatype: str, sizes: tuple[int, ...], body: bytes, shape: tuple[int, ...]
) -> None:
    """C41."""

    async def scenario() -> None:
        async with world(models=[model("raw", 1)], metas=one_input(datatype, *sizes)) as w:
            outputs = unpacked(await ask(w, "raw", body, RAW))
            (sent,) = (await w.runtime.next(Submit)).payload[0].tensors
            expected = pack_bytes([body]) if datatype == "BYTES" else body
            assert (sent.shape, bytes(sent.data), outputs["x"]["raw"]) == (shape, expected, expected)

    run(scenario())


@pytest.mark.parametrize(
    ("metas", "body", "words"),
    [
        (one_input("FP32", 2), bytes(12), "is 8 bytes, binary_data_size is 12"),
        (one_input("FP32", -1), bytes(7), "is 4 bytes, binary_data_size is 7"),
        (one_input("FP32", 2, -1), bytes(12), "is 8 bytes, binary_data_size is 12"),
        (one_input("FP32", 0, -1), bytes(4), "is 0 bytes, binary_data_size is 4"),
        (one_input("FP32", -1, -1), bytes(8), "the size of one dimension open"),
        (one_input("BYTES", 2), b"text", "needs 2 elements, the binary data has 1"),
        (one_input("INT64", -1, pad_axis=1), b"", "at least 1, got 0"),
        (
            {"raw": ModelMeta("fake", (InputMeta("a", "FP32", (-1, 1)), InputMeta("b", "FP32", (-1, 1))), ())},
            bytes(8),
            "models with one input, this one has 2",
        ),
    ],
)
def test_a_raw_request_that_does_not_fit_its_input_is_refused(
    metas: dict[str, ModelMeta], body: bytes, words: str
) -> None:
    """C41."""
    models = [model("raw", 1), model("add", 1)]
    assert words in refused(body, RAW, name="raw", models=models, metas=metas)


def test_binary_bodies_may_come_in_chunks_and_after_expect_100_continue() -> None:
    """C43."""

    async def scenario() -> None:
        body, headers = packed([("x", "FP32", [1, 2], x_bytes())], parameters={"binary_data_output": True})
        async with world() as w:
            client = await w.connect()
            head = f"POST /v2/models/add/infer HTTP/1.1\r\nHost: a\r\n{LENGTH}: {headers[LENGTH]}\r\n"
            client.send(head.encode() + b"Transfer-Encoding: chunked\r\n\r\n")
            for at in range(0, len(body), 7):  # chunks that end within the JSON, within a number, between both
                piece = body[at : at + 7]
                client.send(b"%x\r\n%b\r\n" % (len(piece), piece))
            client.send(b"0\r\n\r\n")
            assert unpacked(await client.answer())["y"]["raw"] == x_bytes()
            client.send(head.encode() + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body))
            assert (await client.head())[0] == 100
            client.send(body)
            assert unpacked(await client.answer())["y"]["raw"] == x_bytes()

    run(scenario())


def test_rows_beyond_a_batch_are_cut_from_the_body_and_joined_without_a_change() -> None:
    """C33, C34."""

    async def scenario() -> None:
        words = pack_bytes([b"w" * n for n in range(10)])
        numbers = np.arange(15_000, dtype="<i4").tobytes()
        tensors: Tensors = [("int32", "INT32", [5, 3000], numbers), ("bytes", "BYTES", [5, 2], words)]
        outputs = [{"name": "bytes"}, {"name": "int32"}]
        body, headers = packed(tensors, outputs=outputs, parameters={"binary_data_output": True})
        async with world(models=[model("kinds", 1, max_batch_size=2)]) as w:
            got = unpacked(await ask(w, "kinds", body, headers))
            assert (got["int32"]["raw"], got["int32"]["shape"]) == (numbers, [5, 3000])
            assert (got["bytes"]["raw"], got["bytes"]["shape"]) == (words, [5, 2])
            assert list(got) == ["bytes", "int32"]
            assert (await w.runtime.next(Submit)).parts == [Part(2, 1), Part(2, 1), Part(1, 1)]

    run(scenario())


def test_large_binary_data_is_not_copied_on_its_way_to_the_runtime() -> None:
    async def scenario() -> None:
        data = np.arange(100_000, dtype="<f4").tobytes()
        body, headers = packed([("fp32", "FP32", [100, 1000], data)], outputs=[{"name": "fp32"}])
        async with world(models=[model("kinds", 1, max_batch_size=10)], runtime=FakeRuntime(echo)) as w:
            assert (await ask(w, "kinds", body, headers)).status == 200
            payload = (await w.runtime.next(Submit)).payload
            views = [part.tensors[0].data for part in payload]
            assert all(isinstance(view, memoryview) for view in views)
            first = views[0].obj  # type: ignore[union-attr]
            assert all(view.obj is first for view in views)  # type: ignore[union-attr]

    run(scenario())


def test_a_small_tensor_behind_large_json_does_not_keep_the_json_in_memory() -> None:
    async def scenario() -> None:
        data = bytes(8000)
        text = tensor("int64", "INT64", [1, 20_000], list(range(20_000)))
        body, headers = packed([("fp32", "FP32", [1, 2000], data)], text, outputs=[{"name": "fp32"}])
        async with world() as w:
            assert (await ask(w, "kinds", body, headers)).status == 200
            sent = {entry.name: entry for entry in (await w.runtime.next(Submit)).payload[0].tensors}
            assert len(sent["fp32"].data.obj) == len(data)  # type: ignore[union-attr]

    run(scenario())


def test_bounds_hold_for_binary_data_too() -> None:
    settings = ModelSettings(bounds={"x": Bounds(minimum=0, maximum=1)})
    models = [model("bounded", 1, settings=settings), model("add", 1)]
    metas = {"bounded": ModelMeta("fake", (InputMeta("x", "FP32", (-1, 2)),), (InputMeta("y", "FP32", (-1, 2)),))}
    for value, shown in ((2.0, "2.0"), (np.nan, "nan")):
        data = np.array([0, value], "<f4").tobytes()
        error = refused(*packed([("x", "FP32", [1, 2], data)]), name="bounded", models=models, metas=metas)
        assert f"{shown} at position 1 is out of bounds, the model takes 0 to 1" in error


@pytest.mark.parametrize(
    "outputs",
    [
        [[Tensor("y", "FP32", (3, 2), bytes(24))]],
        [[Tensor("y", "FP32", (1, 2), bytes(7))]],
        [[Tensor("y", "FP32", (), bytes(4))]],
        [[Tensor("y", "BYTES", (1,), b"\xff\0\0\0a")]],
        [[from_numpy("other", np.zeros(1))]],
    ],
    ids=["other rows", "bytes missing", "no rows", "cut text", "other name"],
)
def test_a_model_that_breaks_its_declaration_is_a_500_for_binary_outputs_too(outputs: list[list[Tensor]]) -> None:
    async def scenario() -> None:
        async with world(FakeRuntime(lambda submit: done(submit.request, outputs))) as w:
            answer = await w.infer("add", x(outputs=[{"name": "y", "parameters": {"binary_data": True}}]))
            assert (answer.status, answer.json["code"]) == (500, "model_error"), answer

    run(scenario())
