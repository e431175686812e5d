"""Text to token ids, off the event loop."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from tokenizers import Tokenizer

from headway.config.settings import Embeddings
from headway.gateway.errors import BadRequest, ServerError, TooLong


class TokenizerUnavailable(ServerError):
    code = "tokenizer_unavailable"


class Tokens(NamedTuple):
    ids: list[int]
    types: list[int]


class TextTokenizer:
    """A tokenizer without padding; with truncation only where the request asks for it.

    Threads share it, so it is never changed: truncation, which is a state of the library's object, is done here.
    """

    def __init__(self, path: Path, max_length: int) -> None:
        """Raises TokenizerUnavailable."""
        try:
            self._tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises bare Exception for every kind of bad file
            raise TokenizerUnavailable(f"{path}: not a readable tokenizer file: {error}") from error
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._special = self._tokenizer.num_special_tokens_to_add(is_pair=False)
        self.max_length = max_length
        self.vocabulary = self._tokenizer.get_vocab_size()

    def encode(self, texts: list[str], keep: int | None) -> list[Tokens]:
        """keep: tokens to cut a text to, its special ones among them; None = all.

        Raises BadRequest for a text that is too long, naming both numbers.
        """
        if keep is not None and keep <= self._special:
            raise BadRequest(
                f"truncate_prompt_tokens must be above {self._special}, which is what this model adds to every text; "
                f"got {keep}",
                param="truncate_prompt_tokens",
            )
        encodings = self._tokenizer.encode_batch_fast(texts, add_special_tokens=keep is None)
        if keep is not None:
            for encoding in encodings:
                encoding.truncate(keep - self._special)
            encodings = [self._tokenizer.post_process(encoding) for encoding in encodings]
        result = [Tokens(encoding.ids, encoding.type_ids) for encoding in encodings]
        for index, tokens in enumerate(result):
            self._check_length(index, len(tokens.ids))
        return result

    def accept(self, ids: list[list[int]], keep: int | None) -> list[Tokens]:
        """Token ids from the client, used as they are: no special tokens are added."""
        result = []
        for index, sequence in enumerate(ids):
            kept = sequence[:keep]
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
            raise TooLong(
                f"input {index} has {length} tokens, this model takes {self.max_length}; "
                'shorten it or send "truncate_prompt_tokens": -1',
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
