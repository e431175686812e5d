"""A tokenizer from the metadata of a GGUF file.

Byte-level BPE (`tokenizer.ggml.model` = gpt2) with the pre-tokenizers that are known here, and sentencepiece's BPE
(llama), whose merges are found again from the scores. Anything else is refused by its name: text that is divided
differently from how a model was trained is worse than none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

CONTROL, USER_DEFINED, UNUSED = 3, 4, 5
"""Types of tokens; 1 is normal, 2 unknown, 6 a byte."""

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
MODERN = (
    CONTRACTIONS + r"|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
GPT2 = ("gpt-2", "gpt2", "phi-2", "olmo", "mpt", "roberta-bpe")
SINGLE_DIGITS = ("smollm", "starcoder", "refact", "command-r", "codeshell")
LLAMA_3 = ("llama-bpe", "llama3", "llama-v3", "smaug-bpe")
QWEN_2 = ("qwen2", "deepseek-r1-qwen")


class UnknownTokenizer(ValueError):
    """The file's vocabulary is of a kind that is not known here, or contradicts itself."""


def build(metadata: Mapping[str, Any]) -> Tokenizer:
    """Raises UnknownTokenizer, with the kind that it names."""
    kind = metadata.get("tokenizer.ggml.model")
    tokens, types = _tokens(metadata)
    if kind == "gpt2":
        tokenizer = _byte_level(metadata, tokens)
    elif kind == "llama":
        tokenizer = _sentencepiece(metadata, tokens, types)
    else:
        raise UnknownTokenizer(f"its tokenizer is of the kind {kind!r}; known are 'gpt2' and 'llama'")
    special = [text for text, type_ in zip(tokens, types, strict=True) if type_ == CONTROL]
    plain = [text for text, type_ in zip(tokens, types, strict=True) if type_ == USER_DEFINED]
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in special])
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in plain])
    _frame(metadata, tokenizer, tokens)
    return tokenizer


def _tokens(metadata: Mapping[str, Any]) -> tuple[list[str], list[int]]:
    tokens = metadata.get("tokenizer.ggml.tokens")
    if not isinstance(tokens, list) or not tokens:
        raise UnknownTokenizer("it has no tokens (tokenizer.ggml.tokens)")
    types = metadata.get("tokenizer.ggml.token_type") or [1] * len(tokens)
    if len(types) != len(tokens):
        raise UnknownTokenizer(f"it has {len(tokens)} tokens and {len(types)} types of tokens")
    return tokens, types


def _byte_level(metadata: Mapping[str, Any], tokens: Sequence[str]) -> Tokenizer:
    merges = [tuple(merge.split(" ", 1)) for merge in metadata.get("tokenizer.ggml.merges", [])]
    if not merges or any(len(merge) != 2 for merge in merges):
        raise UnknownTokenizer("it has no merges (tokenizer.ggml.merges), or some that are not two tokens")
    pre = metadata.get("tokenizer.ggml.pre", "default")
    vocabulary = {text: number for number, text in enumerate(tokens)}
    try:
        tokenizer = Tokenizer(models.BPE(vocabulary, merges, ignore_merges=pre in LLAMA_3))
    except Exception as error:  # the binding raises nothing narrower
        raise UnknownTokenizer(f"its merges do not fit its tokens: {error}") from None
    if pre in GPT2:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    elif pre in SINGLE_DIGITS:
        digits = pre_tokenizers.Digits(individual_digits=True)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    elif pre in LLAMA_3 or pre in QWEN_2:
        pattern = MODERN.format(digits=r"\p{N}{1,3}" if pre in LLAMA_3 else r"\p{N}")
        split = pre_tokenizers.Split(Regex(pattern), "isolated")
        bytes_only = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, bytes_only])
        if pre in QWEN_2:
            tokenizer.normalizer = normalizers.NFC()
    else:
        known = ", ".join((*GPT2, *SINGLE_DIGITS, *LLAMA_3, *QWEN_2))
        raise UnknownTokenizer(f"its pre-tokenizer is {pre!r}; known are {known}")
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _sentencepiece(metadata: Mapping[str, Any], tokens: Sequence[str], types: Sequence[int]) -> Tokenizer:
    scores = metadata.get("tokenizer.ggml.scores")
    if not isinstance(scores, list) or len(scores) != len(tokens):
        raise UnknownTokenizer("it has not a score for each token (tokenizer.ggml.scores)")
    vocabulary = {text: number for number, text in enumerate(tokens)}
    aside = dict.fromkeys(
        text for text, kind in zip(tokens, types, strict=True) if kind in (CONTROL, USER_DEFINED, UNUSED)
    )
    merges = _merges(vocabulary, scores, aside)
    unknown = metadata.get("tokenizer.ggml.unknown_token_id")
    tokenizer = Tokenizer(
        models.BPE(
            vocabulary,
            merges,
            unk_token=tokens[unknown] if unknown is not None and 0 <= unknown < len(tokens) else None,
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    space = normalizers.Replace(" ", "\u2581")
    if metadata.get("tokenizer.ggml.add_space_prefix", True):
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), space])
    else:
        tokenizer.normalizer = space
    tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    return tokenizer


def _merges(vocabulary: Mapping[str, int], scores: Sequence[float], aside: Mapping[str, None]) -> list[tuple[str, str]]:
    """Every way to make a token of two others, the best token first. aside: tokens that are found as they are."""
    found = []
    for text, number in vocabulary.items():
        if text in aside:
            continue
        ways = [
            (text[:cut], text[cut:])
            for cut in range(1, len(text))
            if text[:cut] in vocabulary and text[cut:] in vocabulary
        ]
        ways = [pair for pair in ways if pair[0] not in aside and pair[1] not in aside]
        ways.sort(key=lambda pair: (vocabulary[pair[0]], vocabulary[pair[1]]))
        found += [(scores[number], pair) for pair in ways]
    found.sort(key=lambda entry: (-entry[0], -len(entry[1][0]), -len(entry[1][1])))
    return [pair for _, pair in found]


def _frame(metadata: Mapping[str, Any], tokenizer: Tokenizer, tokens: Sequence[str]) -> None:
    """What comes before and after a text by itself."""
    before, after = [], []
    bos, eos = metadata.get("tokenizer.ggml.bos_token_id"), metadata.get("tokenizer.ggml.eos_token_id")
    if bos is not None and metadata.get("tokenizer.ggml.add_bos_token", metadata["tokenizer.ggml.model"] == "llama"):
        before = [(tokens[bos], bos)]
    if eos is not None and metadata.get("tokenizer.ggml.add_eos_token", False):
        after = [(tokens[eos], eos)]
    if before or after:
        names = [text for text, _ in before], [text for text, _ in after]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=[*names[0], "$A", *names[1]], special_tokens=[*before, *after]
        )
