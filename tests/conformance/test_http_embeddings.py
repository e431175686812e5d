"""/v1/embeddings: four forms of input, two of output, and everything that can be wrong with them."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

from headway.config.settings import Batching, Embeddings, Limits, ModelSettings
from headway.core.ids import Part
from headway.core.outcomes import Outcome
from headway.gateway.catalog import CatalogModel, CatalogVersion
from headway.gateway.gateway import Gateway
from headway.gateway.tokenizing import TokenizerUnavailable
from headway.wire.messages import Cancel, InputMeta, ModelMeta, Reply, Submit
from headway.wire.tensors import Tensor, from_numpy, to_numpy
from tests.conformance.http_world import FakeRuntime, World, done, failed, model, run, world

WORDS = {"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "one": 3, "two": 4, "three": 5}
PADDED = tuple(
    InputMeta(name, "INT64", (-1, -1), pad_axis=1) for name in ("input_ids", "attention_mask", "token_type_ids")
)
ENCODER = ModelMeta("fake", PADDED, (InputMeta("embedding", "FP32", (-1, 2)),))


@pytest.fixture
def encoder(tmp_path: Path) -> CatalogModel:
    """A model folder with a tokenizer that knows three words and adds [CLS] and [SEP]."""
    tokenizer = Tokenizer(WordLevel(WORDS, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)])
    tokenizer.enable_padding(length=50)  # as the file of many a model has it: it must not count
    tokenizer.enable_truncation(4)
    folder = tmp_path / "encoder" / "1"
    folder.mkdir(parents=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = ModelSettings(embeddings=Embeddings(max_length=6), batching=Batching(max_batch_size=2))
    return CatalogModel("encoder", (CatalogVersion(1, str(folder)),), settings)


def embed(submit: Submit) -> Reply:
    """The vector of a text is (its length, the sum of its ids)."""
    outputs = []
    for payload in submit.payload:
        ids = to_numpy(payload.tensors[0])
        outputs.append([from_numpy("embedding", np.array([[ids.shape[1], ids.sum() / 10]], np.float32))])
    return done(submit.request, outputs)


async def ask(w: World, **body: Any) -> Any:
    return await w.ask("POST", "/v1/embeddings", {"model": "encoder", **body})


def encoder_world(encoder: CatalogModel, answer: Any = embed, meta: ModelMeta = ENCODER, **settings: Any) -> Any:
    metas = {"encoder": meta}
    return world(FakeRuntime(answer), models=[encoder, model("add", 1)], metas=metas, **settings)


def test_one_text_is_one_vector_in_the_openai_shape(encoder: CatalogModel) -> None:
    async def scenario() -> None:
        async with encoder_world(encoder) as w:
            answer = await ask(w, input="one two")
            assert (answer.status, answer.json) == (
                200,
                {
                    "object": "list",
                    "data": [{"object": "embedding", "index": 0, "embedding": [4.0, 1.0]}],
                    "model": "encoder",
                    "usage": {"prompt_tokens": 4, "total_tokens": 4},
                },
            )

    run(scenario())


def test_every_text_is_a_part_with_its_own_length_and_no_padding(encoder: CatalogModel) -> None:
    async def scenario() -> None:
        async with encoder_world(encoder) as w:
            answer = await ask(w, input=["one", "one two three", "two"])
            submit = await w.runtime.next(Submit)
            assert submit.parts == [Part(1, 3), Part(1, 5), Part(1, 3)]
            ids, mask, types = (to_numpy(tensor).tolist() for tensor in submit.payload[1].tensors)
            assert (ids, mask, types) == ([[1, 3, 4, 5, 2]], [[1] * 5], [[0] * 5])
            assert submit.bytes == (3 + 5 + 3) * 8 * 3
            assert [entry["index"] for entry in answer.json["data"]] == [0, 1, 2]
            assert [entry["embedding"][0] for entry in answer.json["data"]] == [3.0, 5.0, 3.0]
            assert answer.json["usage"]["total_tokens"] == 11

    run(scenario())


def test_text_and_tensors_for_the_same_model_may_share_a_batch(encoder: CatalogModel) -> None:
    async def scenario() -> None:
        async with encoder_world(encoder) as w:
            await ask(w, input="one two")
            by_text = (await w.runtime.next(Submit)).key
            entries = [
                {"name": name, "datatype": "INT64", "shape": [2, 3], "data": [1] * 6}
                for name in ("input_ids", "attention_mask", "token_type_ids")
            ]
            await w.infer("encoder", {"inputs": entries})
            assert (await w.runtime.next(Submit)).key == by_text

    run(scenario())


@pytest.mark.parametrize(("given", "lengths"), [([1, 3, 2], [3]), ([[1, 3, 2], [1, 2]], [3, 2])])
def test_token_ids_are_used_as_they_are(encoder: CatalogModel, given: Any, lengths: list[int]) -> None:
    async def scenario() -> None:
        async with encoder_world(encoder) as w:
            answer = await ask(w, input=given)
            assert answer.status == 200
            assert [part.length for part in (await w.runtime.next(Submit)).parts] == lengths
            assert answer.json["usage"]["prompt_tokens"] == sum(lengths)

    run(scenario())


def test_base64_is_little_endian_float32(encoder: CatalogModel) -> None:
    async def scenario() -> None:
        async with encoder_world(encoder) as w:
            answer = await ask(w, input=["one two", "one"], encoding_format="base64")
            vectors = [base64.b64decode(entry["embedding"]) for entry in answer.json["data"]]
            assert [struct.unpack("<2f", vector) for vector in vectors] == [
                (4.0, 1.0),
                (3.0, struct.unpack("<f", struct.pack("<f", 0.6))[0]),
            ]

    run(scenario())


def test_numbers_are_printed_as_short_as_float32_allows(encoder: CatalogModel) -> None:
    async def scenario() -> None:
        async with encoder_world(encoder) as w:
            assert b"[3.0,0.6]" in (await ask(w, input="one", encoding_format="float")).body

    run(scenario())


def test_a_vector_in_bf16_is_answered_as_numbers_and_as_float32(encoder: CatalogModel) -> None:
    def in_bf16(submit: Submit) -> Reply:
        row = np.array([[0x3DCD, 0xC0A0]], np.uint16)
        return done(submit.request, [[Tensor("embedding", "BF16", (1, 2), row.view(np.uint8).data)]])

    async def scenario() -> None:
        meta = msgspec.structs.replace(ENCODER, outputs=(InputMeta("embedding", "BF16", (-1, 2)),))
        async with encoder_world(encoder, in_bf16, meta) as w:
            answer = await ask(w, input="one")
            assert np.float32(answer.json["data"][0]["embedding"][0]) == np.float32(0.10009765625)
            assert answer.json["data"][0]["embedding"][1] == -5

    run(scenario())


def test_a_vector_with_a_nan_is_told_with_its_place_among_all(encoder: CatalogModel) -> None:
    def broken(submit: Submit) -> Reply:
        rows = [[[0.5, 1.0]], [[2.0, np.nan]]]
        return done(submit.request, [[from_numpy("embedding", np.array(row, np.float32))] for row in rows])

    async def scenario() -> None:
        async with encoder_world(encoder, broken) as w:
            answer = await ask(w, input=["one", "two"])
            assert answer.status >= 400 and "has nan at position 3" in answer.json["error"]["message"]

    run(scenario())


def test_null_is_as_good_as_absent_and_unknown_fields_are_ignored(encoder: CatalogModel) -> None:
    async def scenario() -> None:
        async with encoder_world(encoder) as w:
            answer = await ask(w, input="one", encoding_format=None, dimensions=None, user=None, surprise=[1])
            assert answer.status == 200

    run(scenario())


def test_a_text_too_long_is_refused_with_both_numbers_unless_it_may_be_cut(encoder: CatalogModel) -> None:
    async def scenario() -> None:
        async with encoder_world(encoder) as w:
            answer = await ask(w, input=["one", "one " * 10])
            assert answer.status == 400
            message = answer.json["error"]["message"]
            assert "input 1" in message and "12 tokens" in message and "takes 6" in message
            assert (await ask(w, input="one " * 10, truncate=True)).json["usage"]["total_tokens"] == 6
            ids = to_numpy((await w.runtime.next(Submit)).payload[0].tensors[0]).tolist()
            assert ids == [[1, 3, 3, 3, 3, 2]], "the end mark is kept"
            assert (await ask(w, input=[3] * 7)).status == 400
            assert (await ask(w, input=[3] * 7, truncate=True)).status == 200

    run(scenario())


def test_only_the_models_own_dimensions_may_be_asked_for(encoder: CatalogModel) -> None:
    async def scenario() -> None:
        async with encoder_world(encoder) as w:
            assert (await ask(w, input="one", dimensions=2)).status == 200
            answer = await ask(w, input="one", dimensions=3)
            assert (answer.status, answer.json["error"]["param"]) == (400, "dimensions")
            assert "2" in answer.json["error"]["message"] and "3" in answer.json["error"]["message"]

    run(scenario())


BAD: dict[str, dict[str, Any]] = {
    "no input": {},
    "input is null": {"input": None},
    "input is a number": {"input": 5},
    "input is an object": {"input": {}},
    "empty list": {"input": []},
    "empty string": {"input": ""},
    "empty string in a list": {"input": ["one", ""]},
    "empty list of ids": {"input": [[]]},
    "text and ids": {"input": ["one", [1]]},
    "ids and text": {"input": [1, "one"]},
    "ids and lists": {"input": [1, [1]]},
    "null in a list": {"input": ["one", None]},
    "float ids": {"input": [1.5]},
    "boolean ids": {"input": [True]},
    "id beyond the vocabulary": {"input": [1, 6]},
    "negative id": {"input": [[-1]]},
    "deep list": {"input": [[[1]]]},
    "unknown encoding format": {"input": "one", "encoding_format": "hex"},
    "dimensions is 0": {"input": "one", "dimensions": 0},
    "dimensions is text": {"input": "one", "dimensions": "2"},
    "model is a number": {"input": "one", "model": 5},
    "a model that makes none": {"input": "one", "model": "add"},
    "truncate is a number": {"input": "one", "truncate": 1},
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_request_is_a_400_in_the_openai_shape_and_the_next_one_is_served(
    encoder: CatalogModel, case: str
) -> None:
    async def scenario() -> None:
        async with encoder_world(encoder) as w:
            answer = await ask(w, **BAD[case])
            assert answer.status == 400, answer
            assert answer.json["error"]["type"] == "invalid_request_error"
            assert answer.json["error"]["message"]
            assert not w.runtime.said
            assert (await ask(w, input="one")).status == 200

    run(scenario())


@pytest.mark.parametrize(
    "raw", [b"", b"{", b'{"model":"encoder","input":"\\ud800"}', b'{"model":"encoder","input":"\xff"}']
)
def test_a_body_that_is_not_json_or_not_unicode_is_a_400(encoder: CatalogModel, raw: bytes) -> None:
    async def scenario() -> None:
        async with encoder_world(encoder) as w:
            assert (await w.ask("POST", "/v1/embeddings", raw)).status == 400

    run(scenario())


def test_more_texts_than_a_request_may_have_are_refused_with_the_numbers(encoder: CatalogModel) -> None:
    async def scenario() -> None:
        async with encoder_world(encoder, limits=Limits(max_parts=3)) as w:
            assert (await ask(w, input=["one"] * 3)).status == 200
            answer = await ask(w, input=["one"] * 4)
            assert answer.status == 400
            assert "4" in answer.json["error"]["message"] and "3" in answer.json["error"]["message"]

    run(scenario())


def test_outcomes_are_told_in_the_openai_shape(encoder: CatalogModel) -> None:
    def full(submit: Submit) -> Reply:
        return failed(submit.request, Outcome.QUEUE_FULL, "full", 3_000_000_000)

    async def scenario() -> None:
        async with encoder_world(encoder, full) as w:
            answer = await ask(w, input="one")
            assert (answer.status, answer.headers["retry-after"]) == (503, "3")
            assert answer.json["error"] == {
                "message": "full",
                "type": "server_error",
                "param": None,
                "code": "queue_full",
            }

    run(scenario())


def test_a_disconnect_cancels(encoder: CatalogModel) -> None:
    async def scenario() -> None:
        async with encoder_world(encoder, None) as w:
            client = await w.connect()
            body = json.dumps({"model": "encoder", "input": "one"}).encode()
            client.send(b"POST /v1/embeddings HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
            request = (await w.runtime.next(Submit)).request
            client.close()
            assert (await w.runtime.next(Cancel)).request == request

    run(scenario())


def test_a_model_takes_only_the_inputs_that_it_declares(encoder: CatalogModel) -> None:
    async def scenario() -> None:
        only_ids = ModelMeta("fake", (InputMeta("input_ids", "INT32", (-1, -1), pad_axis=1),), ENCODER.outputs)
        async with encoder_world(encoder, meta=only_ids) as w:
            assert (await ask(w, input="one two")).json["data"][0]["embedding"] == [4.0, 1.0]
            (sent,) = (await w.runtime.next(Submit)).payload[0].tensors
            assert (sent.name, sent.datatype) == ("input_ids", "INT32")

    run(scenario())


def test_a_model_that_needs_more_than_text_says_so(encoder: CatalogModel) -> None:
    async def scenario() -> None:
        image = ModelMeta("fake", (*PADDED, InputMeta("pixels", "FP32", (-1, 3))), ENCODER.outputs)
        async with encoder_world(encoder, meta=image) as w:
            answer = await ask(w, input="one")
            assert answer.status == 500
            assert "'pixels'" in answer.json["error"]["message"]

    run(scenario())


def test_without_padding_texts_of_different_length_can_not_go_together(encoder: CatalogModel) -> None:
    async def scenario() -> None:
        unpadded = ModelMeta("fake", tuple(InputMeta(m.name, "INT64", (-1, -1)) for m in PADDED), ENCODER.outputs)
        async with encoder_world(encoder, meta=unpadded) as w:
            assert (await ask(w, input=["one", "two"])).status == 200
            assert (await ask(w, input=["one", "one two"])).status == 400

    run(scenario())


@pytest.fixture
def nowhere(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "encoder" / "1"
    folder.mkdir(parents=True)
    yield folder


def start_with(folder: Path) -> None:
    entry = CatalogModel("encoder", (CatalogVersion(1, str(folder)),), ModelSettings(embeddings=Embeddings()))

    async def scenario() -> None:
        gateway = Gateway([entry], lambda message: None)
        try:
            await gateway.start("127.0.0.1", 0)
        finally:
            gateway.close()

    run(scenario())


def test_a_missing_tokenizer_is_told_at_the_start_with_the_places_searched(nowhere: Path) -> None:
    with pytest.raises(TokenizerUnavailable) as error:
        start_with(nowhere)
    assert str(nowhere / "tokenizer.json") in error.value.message
    assert str(nowhere.parent / "tokenizer.json") in error.value.message


def test_a_broken_tokenizer_is_told_at_the_start_with_its_place(nowhere: Path) -> None:
    (nowhere.parent / "tokenizer.json").write_text("{}")
    with pytest.raises(TokenizerUnavailable) as error:
        start_with(nowhere)
    assert str(nowhere.parent / "tokenizer.json") in error.value.message


@pytest.mark.parametrize(
    ("keep", "ids"),
    [
        (-1, [1, 3, 4, 5, 3, 2]),
        (6, [1, 3, 4, 5, 3, 2]),
        (4, [1, 3, 4, 2]),
        (3, [1, 3, 2]),
    ],
)
def test_a_text_is_cut_to_the_tokens_that_are_asked_for_its_special_ones_kept(
    encoder: CatalogModel, keep: int, ids: list[int]
) -> None:
    async def scenario() -> None:
        async with encoder_world(encoder) as w:
            answer = await ask(w, input="one two three one two", truncate_prompt_tokens=keep)
            assert to_numpy((await w.runtime.next(Submit)).payload[0].tensors[0]).tolist() == [ids]
            assert answer.json["usage"]["prompt_tokens"] == len(ids)

    run(scenario())


@pytest.mark.parametrize(("keep", "words"), [(7, ["7", "6"]), (0, ["at least 1"]), (2, ["2"]), (-2, ["-1"]), (1.5, [])])
def test_a_text_cannot_be_cut_to_what_the_model_does_not_take(
    encoder: CatalogModel, keep: float, words: list[str]
) -> None:
    async def scenario() -> None:
        async with encoder_world(encoder) as w:
            answer = await ask(w, input="one two", truncate_prompt_tokens=keep)
            assert answer.status == 400
            for word in words:
                assert word in answer.json["error"]["message"]

    run(scenario())


def test_token_ids_are_cut_too(encoder: CatalogModel) -> None:
    async def scenario() -> None:
        async with encoder_world(encoder) as w:
            answer = await ask(w, input=[[1, 3, 4, 5, 2], [1, 2]], truncate_prompt_tokens=2)
            assert answer.json["usage"]["prompt_tokens"] == 4

    run(scenario())


def test_null_is_as_good_as_absent(encoder: CatalogModel) -> None:
    async def scenario() -> None:
        async with encoder_world(encoder) as w:
            nulls = dict.fromkeys(("encoding_format", "dimensions", "user", "truncate_prompt_tokens"))
            assert (await ask(w, input="one", truncate=None, **nulls)).json == (await ask(w, input="one")).json

    run(scenario())
