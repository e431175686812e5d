"""A model's tokenizer: text to token ids, what a token stands for, which tokens are special and which end an output.

From a Hugging Face folder (tokenizer.json, tokenizer_config.json, generation_config.json, chat_template.jinja) or from
a GGUF file. `encode` of a long text takes long, a second for a few hundred thousand tokens, and releases the
interpreter for nearly all of it: an event loop hands it to a thread.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Encoder

from headway.llm.text import gguf_metadata, gguf_tokenizer
from headway.llm.text.detokenize import decode
from headway.llm.text.vocabulary import TokenBytes, byte_fallback, byte_level

ENDS = ("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<end_of_turn>", "<|end|>", "<|endoftext|>", "<|end_of_text|>")
"""Names under which vocabularies have the end of a turn or text: a GGUF file often tells only one of its own."""
NAMES = ("bos_token", "eos_token", "unk_token", "pad_token")


class TokenizerError(ValueError):
    """The model's tokenizer cannot be used. The message names file and reason."""


@dataclass(frozen=True)
class Tokenizer:
    """bos, eos: token ids, or None.  stops: tokens that end an output, eos among them.
    special: ids of tokens that are not shown.  names: how templates call tokens (`bos_token`: its text).
    templates: chat templates by name, "default" the usual one; empty for a model that has none.
    """

    encoder: Encoder
    vocabulary: TokenBytes
    bos: int | None = None
    eos: int | None = None
    stops: tuple[int, ...] = ()
    special: tuple[int, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    templates: Mapping[str, str] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """How many ids there are; a model's logits may be padded beyond it."""
        return len(self.vocabulary)

    def encode(self, text: str, add_special: bool = True) -> list[int]:
        """add_special: with what the model wants around a text by itself; False for what a chat template made."""
        return self.encode_all([text], add_special)[0]

    def encode_all(self, texts: Sequence[str], add_special: bool = True) -> list[list[int]]:
        encodings = self.encoder.encode_batch_fast(list(texts), add_special_tokens=add_special)
        return [encoding.ids for encoding in encodings]

    def decode(self, tokens: Iterable[int], skip_special: bool = True) -> str:
        """The same text as the stream of them has."""
        return decode(self.vocabulary if skip_special else self.vocabulary.with_special(), tokens)

    def id_of(self, text: str) -> int | None:
        """Of a token that is written so in the vocabulary."""
        found: int | None = self.encoder.token_to_id(text)
        return found


def load(path: Path) -> Tokenizer:
    """path: a folder, or a GGUF file. Raises TokenizerError."""
    try:
        return _from_gguf(path) if path.is_file() else _from_folder(path)
    except (gguf_metadata.GgufError, gguf_tokenizer.UnknownTokenizer, OSError) as error:
        raise TokenizerError(f"the tokenizer of {path} cannot be used: {error}") from error


def _from_gguf(path: Path) -> Tokenizer:
    metadata = gguf_metadata.read_metadata(path)
    encoder = gguf_tokenizer.build(metadata)

    def id_at(name: str) -> int | None:
        number = metadata.get(f"tokenizer.ggml.{name}_token_id")
        return number if isinstance(number, int) and number < encoder.get_vocab_size() else None

    ids = {f"{name}_token": id_at(long) for name, long in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"))}
    ids["pad_token"] = id_at("padding")
    added = encoder.get_added_tokens_decoder()
    named = {token.content: number for number, token in added.items() if token.special}
    ends = [ids["eos_token"], id_at("eot"), id_at("eom"), *(named.get(name) for name in ENDS)]
    prefix = "tokenizer.chat_template"
    templates = {
        key[len(prefix) + 1 :] or "default": text
        for key, text in metadata.items()
        if (key == prefix or key.startswith(prefix + ".")) and isinstance(text, str)
    }
    return _made(encoder, ids, ends, templates)


def _from_folder(path: Path) -> Tokenizer:
    file = path / "tokenizer.json"
    try:
        encoder = Encoder.from_file(str(file))
    except Exception as error:  # the binding raises nothing narrower
        raise TokenizerError(f"{file} is no tokenizer: {error}") from None
    encoder.no_truncation()
    encoder.no_padding()
    config = _json(path / "tokenizer_config.json")
    ids = {}
    for name in NAMES:
        text = config.get(name)
        text = text.get("content") if isinstance(text, dict) else text
        ids[name] = encoder.token_to_id(text) if isinstance(text, str) else None
    ends = [ids["eos_token"]]
    for name in ("generation_config.json", "config.json"):
        told = _json(path / name).get("eos_token_id")
        ends += told if isinstance(told, list) else [told]
    return _made(encoder, ids, ends, _templates(path, config))


def _templates(path: Path, config: Mapping[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    told = config.get("chat_template")
    if isinstance(told, str):
        found["default"] = told
    elif isinstance(told, list):
        found = {entry["name"]: entry["template"] for entry in told if isinstance(entry, dict) and len(entry) == 2}
    file = path / "chat_template.jinja"
    if file.is_file():
        found["default"] = file.read_text(encoding="utf-8")
    for extra in sorted((path / "additional_chat_templates").glob("*.jinja")):
        found[extra.stem] = extra.read_text(encoding="utf-8")
    return found


def _json(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise TokenizerError(f"{file} is not JSON: {error}") from None
    return found if isinstance(found, dict) else {}


def _made(
    encoder: Encoder, ids: Mapping[str, int | None], ends: Iterable[object], templates: Mapping[str, str]
) -> Tokenizer:
    added = encoder.get_added_tokens_decoder()
    special = tuple(number for number, token in added.items() if token.special)
    plain = {token.content: number for number, token in added.items()}
    parts = _decoder_parts(encoder)
    tokens = encoder.get_vocab(with_added_tokens=False)
    if "ByteLevel" in parts:
        table = byte_level(tokens, plain)
    elif "ByteFallback" in parts or "Metaspace" in parts:
        table = byte_fallback(tokens, plain)
    else:
        raise TokenizerError(
            f"its decoder is {' + '.join(parts) or 'none'}; known are byte-level ones, and sentencepiece's"
        )
    names = {name: encoder.id_to_token(number) or "" for name, number in ids.items() if number is not None}
    return Tokenizer(
        encoder=encoder,
        vocabulary=TokenBytes(table, special),
        bos=ids.get("bos_token"),
        eos=ids.get("eos_token"),
        stops=tuple(dict.fromkeys(number for number in ends if isinstance(number, int))),
        special=special,
        names=names,
        templates=dict(templates),
    )


def _decoder_parts(encoder: Encoder) -> list[str]:
    """Types of what its decoder does, one after the other."""
    decoder = encoder.decoder
    if decoder is None:
        return []
    told = json.loads(decoder.__getstate__())
    return [part["type"] for part in told.get("decoders", [told])]
