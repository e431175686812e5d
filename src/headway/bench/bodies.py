"""Requests, encoded before the run so that the client only writes bytes while it measures."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from urllib.parse import SplitResult

from headway.bench.lengths import Sampler

# Each is one token for the usual English word-piece vocabularies, so a text's length is known without a tokenizer.
_WORDS = (
    "the of and to in was on for as by with that from at his it an were which this are be had first one have their "
    "new after they who two her she but also into when more time other only some years city all part up over world "
    "area national during used several many about most there no between history early three such high river where "
    "name while state line group made still game team work music book water house school family people day night life"
)
WORDS = _WORDS.split()

START, END = 101, 102  # of the uncased English word-piece vocabulary
FIRST_WORD, LAST_WORD = 1996, 9999


def text_of(tokens: int, rng: random.Random) -> str:
    """A text of `tokens` tokens, the start and the end mark included."""
    return " ".join(rng.choices(WORDS, k=tokens - 2))


def embeddings_body(model: str, length: Sampler, rows: int, rng: random.Random) -> bytes:
    """`rows` texts, each with its own length."""
    texts = [text_of(length(rng), rng) for _ in range(rows)]
    return _json({"model": model, "input": texts[0] if rows == 1 else texts})


def infer_body(length: Sampler, rows: int, rng: random.Random) -> bytes:
    """Token ids of `rows` rows of one length, as the Open Inference Protocol's JSON."""
    size = length(rng)
    ids = [[START, *rng.choices(range(FIRST_WORD, LAST_WORD), k=size - 2), END] for _ in range(rows)]
    inputs = {"input_ids": ids, "attention_mask": [[1] * size] * rows, "token_type_ids": [[0] * size] * rows}
    return _json(
        {
            "inputs": [
                {"name": name, "shape": [rows, size], "datatype": "INT64", "data": [x for row in data for x in row]}
                for name, data in inputs.items()
            ]
        }
    )


def encode_request(url: SplitResult, body: bytes, headers: Iterable[str]) -> bytes:
    """The bytes of one POST. headers: "Name: value" lines to add; one that is named there replaces ours."""
    path = (url.path or "/") + (f"?{url.query}" if url.query else "")
    lines = {"host": f"Host: {url.netloc}", "content-type": "Content-Type: application/json"}
    lines |= {line.partition(":")[0].strip().lower(): line for line in headers}
    head = "\r\n".join([f"POST {path} HTTP/1.1", *lines.values(), f"Content-Length: {len(body)}"])
    return head.encode("latin-1") + b"\r\n\r\n" + body


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
