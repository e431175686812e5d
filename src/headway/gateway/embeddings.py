"""/v1/embeddings: text or token ids in, vectors out. Every text is a part of its own."""

from __future__ import annotations

import asyncio
import base64
import logging
from asyncio import AbstractEventLoop
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Meta

from headway.config.settings import Embeddings
from headway.core.ids import Part
from headway.gateway.access import Caller
from headway.gateway.calls import Calls, WholeCall
from headway.gateway.catalog import Catalog, Version
from headway.gateway.errors import BadRequest, HeadwayError, InternalError, ModelBroke
from headway.gateway.exchange import Pending, Request, Response
from headway.gateway.fallback import Fallbacks
from headway.gateway.idempotency import KEY, KeyedCalls
from headway.gateway.json_errors import in_words
from headway.gateway.json_tensors import text
from headway.gateway.options import Options
from headway.gateway.parts import join
from headway.gateway.signature import signature
from headway.gateway.tokenizing import TextTokenizer, TokenizerUnavailable, Tokens, find_tokenizer
from headway.wire.bfloat16 import to_float32
from headway.wire.messages import InputMeta, PartPayload
from headway.wire.tensors import NUMPY_DTYPES, Tensor

TOKENIZER_THREADS = 2
ENCODINGS = ("float", "base64")
FLOATS = {2: "FP16", 4: "FP32", 8: "FP64"}
"""By item size."""
FED = ("input_ids", "attention_mask", "token_type_ids")
"""What can be made from text. A model may declare any of these, as INT64 or INT32."""


class EmbeddingsBody(msgspec.Struct):
    """Unknown fields are ignored; null is as good as absent.

    truncate_prompt_tokens: cut longer texts to so many tokens, -1 = to what the model takes; truncate: the same as -1.
    """

    model: str
    input: str | list[Any]
    encoding_format: str | None = None
    dimensions: Annotated[int, Meta(ge=1)] | None = None
    truncate: bool | None = None
    truncate_prompt_tokens: Annotated[int, Meta(ge=-1)] | None = None
    user: str | None = None


_body_decoder = msgspec.json.Decoder(EmbeddingsBody)
_encode = msgspec.json.Encoder().encode
log = logging.getLogger("headway.gateway")


class EmbeddingsApi:
    """`load` before the first request."""

    def __init__(self, catalog: Catalog, calls: Calls, fallbacks: Fallbacks, keyed: KeyedCalls, max_parts: int) -> None:
        self._catalog = catalog
        self._calls = calls
        self._fallbacks = fallbacks
        self._keyed = keyed
        self._max_parts = max_parts
        self._pool = ThreadPoolExecutor(TOKENIZER_THREADS, thread_name_prefix="headway-tokenizer")
        self._tokenizers: dict[tuple[str, int], TextTokenizer] = {}

    def load(self) -> None:
        """Read the tokenizers of all models that have one. Raises TokenizerUnavailable. Blocks."""
        for version in self._catalog.all_versions():
            settings = version.settings.embeddings
            if settings is not None:
                tokenizer = TextTokenizer(find_tokenizer(version.path, settings), settings.max_length)
                check_vocabulary(version, tokenizer)
                self._tokenizers[version.model, version.number] = tokenizer

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def handle(self, request: Request, caller: Caller, options: Options) -> Pending:
        body = _decode(request.body)
        caller.check_model(body.model)
        version = self._catalog.version(body.model, None)
        if KEY in request.headers:
            asked = ("embeddings",)
            return self._keyed.submit(request, caller, asked, lambda own: self._run(own, version, body, options))
        return self._run(request, version, body, options)

    def _run(self, request: Request, version: Version, body: EmbeddingsBody, options: Options) -> Pending:
        job = _Job(self._calls, version, body, request, options)
        return self._fallbacks.submit(job.call, version, lambda to: self._send(job, to))

    def _send(self, job: _Job, version: Version) -> None:
        body = job.body
        tokenizer = self._tokenizers.get((version.model, version.number))
        if tokenizer is None:
            language = version.meta is not None and version.meta.language is not None
            why = (
                "it is a language model: POST /v1/chat/completions" if language else "its settings say nothing of them"
            )
            raise BadRequest(f"model {body.model!r} makes no embeddings: {why}", param="model")
        version.require_ready()
        _check_dimensions(body, version)
        keep = _kept(body, tokenizer.max_length)
        texts, ids = split_input(body.input, self._max_parts)
        job.version = version
        job.call.request.on_disconnect = job.abandon
        self._pool.submit(job.tokenize, tokenizer, texts, ids, keep, asyncio.get_running_loop())


def check_vocabulary(version: Version, tokenizer: TextTokenizer) -> None:
    """Raises TokenizerUnavailable where it makes ids that the model does not take."""
    bounds = version.settings.bounds.get("input_ids")
    last = tokenizer.vocabulary - 1
    if bounds is not None and bounds.maximum is not None and last > bounds.maximum:
        raise TokenizerUnavailable(
            f"model {version.model!r} version {version.number}: the tokenizer has ids up to {last}, "
            f"bounds.input_ids.maximum is {bounds.maximum:.15g}"
        )


class _Job:
    """One request between its arrival and its submission. version: that it is for, the fallback's in the end."""

    def __init__(
        self, calls: Calls, version: Version, body: EmbeddingsBody, request: Request, options: Options
    ) -> None:
        self._calls = calls
        self.version = version
        self.body = body
        self._options = options
        self._tokens = 0
        self._count = 0
        self._abandoned = False
        self.call = WholeCall(calls, request, self._render)

    def abandon(self) -> None:
        """The client went away while its text was being tokenised."""
        self._abandoned = True
        self.call.again = None

    def tokenize(
        self,
        tokenizer: TextTokenizer,
        texts: list[str],
        ids: list[list[int]],
        keep: int | None,
        loop: AbstractEventLoop,
    ) -> None:
        """In a thread; its result goes back to the loop. keep: tokens of each, None = all."""
        if self._abandoned:
            return
        result: list[Tokens] | HeadwayError
        try:
            result = tokenizer.encode(texts, keep) if texts else tokenizer.accept(ids, keep)
        except HeadwayError as error:
            result = error
        except Exception:
            log.exception("request %s: tokenising failed", self.call.request.id)
            result = InternalError(f"internal error, logged under {self.call.request.id}")
        loop.call_soon_threadsafe(self._tokenized, result)

    def _tokenized(self, result: list[Tokens] | HeadwayError) -> None:
        """Back in the loop."""
        if self._abandoned:
            return
        try:
            if isinstance(result, HeadwayError):
                raise result
            self._submit(result)
        except HeadwayError as error:
            self.call.fail(self.call.stand_by(error))
        except Exception:
            log.exception("request %s: submission failed", self.call.request.id)
            self.call.fail(InternalError(f"internal error, logged under {self.call.request.id}"))

    def _submit(self, texts: list[Tokens]) -> None:
        version = self.version
        fed = fed_inputs(version)
        self._count = len(texts)
        self._tokens = sum(len(text.ids) for text in texts)
        signatures = dict.fromkeys(signature([(m, (1, len(t.ids))) for m in fed], {}) for t in texts)
        if len(signatures) > 1:
            raise BadRequest(
                f"model {version.model!r} declares no padding, so texts of different length can not go together",
                param="input",
            )
        padded = any(meta.pad_axis is not None for meta in fed)
        parts = [Part(1, len(text.ids) if padded else 1) for text in texts]
        payload = [PartPayload([_tensor(meta, text) for meta in fed]) for text in texts]
        size = sum(len(tensor.data) for part in payload for tensor in part.tensors)
        key = version.key(next(iter(signatures)))
        self._calls.submit(self.call, key, parts, payload, size, self._options, {})

    def _render(self, outputs: list[list[Tensor]]) -> Response:
        settings = self.version.settings.embeddings or Embeddings()
        datatype, array = join(outputs, settings.output, self._count)
        if datatype == "BF16":
            array = to_float32(array)
        if array.ndim != 2 or array.dtype.kind != "f":
            raise ModelBroke(
                f"output {settings.output!r} should be numbers of shape [texts, dimensions], "
                f"it is {array.dtype} of shape {list(array.shape)}"
            )
        if self.body.dimensions is not None and self.body.dimensions < array.shape[1]:
            array = shortened(array, self.body.dimensions)
        vectors: list[str] | list[msgspec.Raw] = (
            _as_base64(array) if self.body.encoding_format == "base64" else _as_numbers(settings.output, array)
        )
        data = [{"object": "embedding", "index": index, "embedding": v} for index, v in enumerate(vectors)]
        usage = {"prompt_tokens": self._tokens, "total_tokens": self._tokens}
        return Response(200, _encode({"object": "list", "data": data, "model": self.version.model, "usage": usage}))


def split_input(given: str | list[Any], most: int) -> tuple[list[str], list[list[int]]]:
    """The texts, or else the token ids, of an `input` in any of its four forms. Raises BadRequest."""
    if isinstance(given, str):
        given = [given]
    if not given:
        raise BadRequest("input is empty", param="input")
    if len(given) > most and type(given[0]) is not int:
        raise BadRequest(f"input has {len(given)} texts, the most is {most}", param="input")
    if all(type(item) is str for item in given):
        if "" in given:
            raise BadRequest(f"input {given.index('')} is an empty string", param="input")
        return given, []
    kind = type(given[0])
    odd = next((index for index, item in enumerate(given) if not _is_input(item) or type(item) is not kind), None)
    if odd is not None:
        raise BadRequest(
            f"input must be a string, a list of strings, a list of token ids, or a list of such lists; "
            f"item {odd} is something else",
            param="input",
        )
    return [], [given] if kind is int else given


def _is_input(item: Any) -> bool:
    """A text, a token id, or a list of token ids."""
    return type(item) in (str, int) or (type(item) is list and all(type(token) is int for token in item))


def fed_inputs(version: Version) -> list[InputMeta]:
    """The inputs that the model declares. Raises ModelBroke when text alone can not make them."""
    fed = []
    for meta in version.require_ready().inputs:
        if meta.name in FED and meta.datatype in ("INT64", "INT32") and len(meta.shape) == 2:
            fed.append(meta)
        elif not meta.optional:
            raise ModelBroke(
                f"model {version.model!r} needs input {meta.name!r} ({meta.datatype}, {list(meta.shape)}); "
                f"from text come only {', '.join(FED)}, INT64 or INT32, of two dimensions"
            )
    return fed


def _tensor(meta: InputMeta, text: Tokens) -> Tensor:
    count = len(text.ids)
    dtype = NUMPY_DTYPES[meta.datatype]
    if meta.name == "attention_mask":
        array = np.ones(count, dtype)
    else:
        array = np.array(text.ids if meta.name == "input_ids" else text.types, dtype)
    return Tensor(meta.name, meta.datatype, (1, count), array.view(np.uint8).data)


def _decode(raw: bytes) -> EmbeddingsBody:
    try:
        body = _body_decoder.decode(raw)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadRequest(f"the body is not an embeddings request: {in_words(error, raw)}") from None
    if body.encoding_format not in (None, *ENCODINGS):
        known = " or ".join(map(repr, ENCODINGS))
        raise BadRequest(f"encoding_format: expected {known}, got {body.encoding_format!r}", param="encoding_format")
    return body


def _kept(body: EmbeddingsBody, longest: int) -> int | None:
    """To how many tokens texts are cut; None = they are not. Raises BadRequest."""
    wanted = body.truncate_prompt_tokens
    if wanted is None:
        return longest if body.truncate else None
    if wanted > longest:
        raise BadRequest(
            f"truncate_prompt_tokens is {wanted}, this model takes {longest} tokens", param="truncate_prompt_tokens"
        )
    if wanted == 0:
        raise BadRequest("truncate_prompt_tokens must be at least 1, or -1", param="truncate_prompt_tokens")
    return longest if wanted < 0 else wanted


def shortened(array: npt.NDArray[Any], dimensions: int) -> npt.NDArray[Any]:
    """The first of each row's numbers [rows, dimensions], scaled to length 1 (in float32 or better)."""
    cut = array[:, :dimensions].astype(np.result_type(array.dtype, np.float32))
    norms = np.linalg.norm(cut, axis=1, keepdims=True)
    result: npt.NDArray[Any] = cut / np.where(norms > 0, norms, 1)
    return result


def _check_dimensions(body: EmbeddingsBody, version: Version) -> None:
    """The model's own size, or one of those that it is said to be trained for."""
    settings = version.settings.embeddings
    if body.dimensions is None or settings is None:
        return
    sizes = {meta.name: meta.shape[-1] for meta in version.declared().outputs if meta.shape}
    own = sizes.get(settings.output, -1)
    if body.dimensions == own or (body.dimensions in settings.dimensions and body.dimensions < own):
        return
    known = f"makes vectors of {own} dimensions" if own > 0 else "does not declare its dimensions"
    shorter = ", ".join(str(size) for size in settings.dimensions if size < own)
    also = f" (or {shorter})" if shorter else ""
    raise BadRequest(f"model {body.model!r} {known}{also}, asked for {body.dimensions}", param="dimensions")


def _as_base64(array: npt.NDArray[Any]) -> list[str]:
    """Little-endian float32."""
    return [base64.b64encode(row.tobytes()).decode() for row in np.ascontiguousarray(array, "<f4")]


def _as_numbers(output: str, array: npt.NDArray[Any]) -> list[msgspec.Raw]:
    """Each row's JSON. Raises NotRepresentable."""
    datatype = FLOATS[array.dtype.itemsize]
    if not np.isfinite(array).all():
        text(output, datatype, array)  # raises, with the place in all of it
    return [msgspec.Raw(text(output, datatype, row)) for row in array]
