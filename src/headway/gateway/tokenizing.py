"""Text to token ids, off the event loop."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from tokenizers import Tokenizer

from headway.config.settings import Embeddings
from headway.gateway.errors import BadRequest, ServerError


class TokenizerUnavailable(ServerError):
    code = "tokenizer_unavailable"


class Tokens(NamedTuple):
    ids: list[int]
    types: list[int]


class TextTokenizer:
    """A tokenizer without padding; with truncation only where the request asks for it.

    Two tokenizers, since truncation is a state of the object and threads share it.
    """

    def __init__(self, path: Path, max_length: int) -> None:
        """Raises TokenizerUnavailable."""
        try:
            self._whole = Tokenizer.from_file(str(path))
            self._cut = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises bare Exception for every kind of bad file
            raise TokenizerUnavailable(f"{path}: not a readable tokenizer file: {error}") from error
        for tokenizer in (self._whole, self._cut):
            tokenizer.no_padding()
        self._whole.no_truncation()
        self._cut.enable_truncation(max_length)
        self.max_length = max_length
        self.vocabulary = self._whole.get_vocab_size()

    def encode(self, texts: list[str], truncate: bool) -> list[Tokens]:
        """Raises BadRequest for a text that is too long, naming both numbers."""
        tokenizer = self._cut if truncate else self._whole
        encodings = tokenizer.encode_batch_fast(texts)
        result = [Tokens(encoding.ids, encoding.type_ids) for encoding in encodings]
        for index, tokens in enumerate(result):
            self._check_length(index, len(tokens.ids))
        return result

    def accept(self, ids: list[list[int]], truncate: bool) -> list[Tokens]:
        """Token ids from the client, used as they are: no special tokens are added."""
        result = []
        for index, sequence in enumerate(ids):
            kept = sequence[: self.max_length] if truncate else sequence
            self._check_length(index, len(kept))
            for token in kept:
                if not 0 <= token < self.vocabulary:
                    raise BadRequest(
                        f"input {index}: token id {token} is outside of 0 to {self.vocabulary - 1}", param="input"
                    )
            result.append(Tokens(kept, [0] * len(kept)))
        return result

    def _check_length(self, index: int, length: int) -> None:
        if length > self.max_length:
            raise BadRequest(
                f"input {index} has {length} tokens, this model takes {self.max_length}; "
                'shorten it or send "truncate": true',
                param="input",
            )
        if length < 1:
            raise BadRequest(f"input {index} has no tokens", param="input")


def find_tokenizer(version_path: str, settings: Embeddings) -> Path:
    """Beside the version or, shared by all versions, in the model's folder. Raises TokenizerUnavailable."""
    folder = Path(version_path)
    candidates = [folder / settings.tokenizer, folder.parent / settings.tokenizer]
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    raise TokenizerUnavailable(f"no tokenizer file: neither {candidates[0]} nor {candidates[1]} exists")
