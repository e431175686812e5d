"""Python models that batching does something to, one for each way, and one to which it does nothing.

`MODELS`: name -> (model.py, model.toml, verdict, mode).
"""

from __future__ import annotations

from pathlib import Path

from headway.config.load import load_model_settings
from headway.config.settings import ModelSettings

HEAD = """
import itertools
import numpy as np

class Model:
    inputs = {"x": ("FP32", [-1, 6])}
    outputs = {"y": ("FP32", [-1, 6])}
    warm_up = True

    def execute(self, requests):
        x = np.concatenate([request["x"] for request in requests])
        y = self.all(x).astype(np.float32)
        ends = np.cumsum([request.rows for request in requests])[:-1]
        return [{"y": rows} for rows in np.split(y, ends)]
"""

TOKENS = """
import numpy as np

class Model:
    inputs = {"ids": ("INT64", [-1, -1])}
    outputs = {"vector": ("FP32", [-1, 4])}
    warm_up = True

    def load(self, context):
        self.table = np.random.default_rng(5).normal(size=(101, 4)).astype(np.float32)

    def execute(self, requests):
        longest = max(request["ids"].shape[1] for request in requests)
        rows = [row for request in requests for row in request["ids"]]
        tokens = np.zeros((len(rows), longest, 4), np.float32)
        mask = np.zeros((len(rows), longest, 1), np.float32)
        for at, row in enumerate(rows):
            tokens[at, : len(row)] = self.table[row]
            mask[at, : len(row)] = 1
        vectors = self.pool(tokens, mask).astype(np.float32)
        ends = np.cumsum([request.rows for request in requests])[:-1]
        return [{"vector": part} for part in np.split(vectors, ends)]
"""

PADDED = """
max_length = 64
[inputs.ids]
pad_axis = 1
[bounds.ids]
minimum = 0
maximum = 100
"""


def rows(body: str) -> str:
    return HEAD + "\n" + body


def tokens(body: str) -> str:
    return TOKENS + "\n" + body


BATCH_NORM_IN_TRAINING = rows("""
    def all(self, x):
        return (x - x.mean(axis=0)) / np.sqrt(x.var(axis=0) + 1e-5)
""")
DEPENDS_ON_BATCH_SIZE = rows("""
    def all(self, x):
        return x + 0.01 * (len(x) - 1)
""")
MIXES_UP_ROWS = rows("""
    def all(self, x):
        return x[np.argsort(x[:, 0])]
""")
DEPENDS_ON_ORDER = rows("""
    def all(self, x):
        return np.cumsum(x, axis=0) * 0.1 + x
""")
NOT_DETERMINISTIC = rows("""
    def all(self, x):
        return x + np.random.normal(size=x.shape)
""")
CHANGES_WITH_USE = rows("""
    seen = 0.0
    def all(self, x):
        if len(x) > 1:
            self.seen = 0.9 * self.seen + 0.1 * x.mean()
        return x - self.seen
""")
FAILS_IN_COMPANY = rows("""
    def all(self, x):
        return x.reshape(1, 6)
""")
CORRECT_ROWS = rows("""
    def all(self, x):
        return np.tanh(x) * 2
""")
NO_MASK = tokens("""
    def pool(self, tokens, mask):
        scores = tokens @ tokens.transpose(0, 2, 1)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return ((weights / weights.sum(axis=-1, keepdims=True)) @ tokens)[:, 0]
""")
PADDED_MEAN = tokens("""
    def pool(self, tokens, mask):
        return tokens.mean(axis=1)
""")
CORRECT_TOKENS = tokens("""
    def pool(self, tokens, mask):
        return (tokens * mask).sum(axis=1) / mask.sum(axis=1)
""")

MODELS: dict[str, tuple[str, str, str, str]] = {
    "batch_norm_in_training": (BATCH_NORM_IN_TRAINING, "", "unsafe", "unbatched"),
    "depends_on_batch_size": (DEPENDS_ON_BATCH_SIZE, "", "unsafe", "unbatched"),
    "mixes_up_rows": (MIXES_UP_ROWS, "", "unsafe", "unbatched"),
    "depends_on_order": (DEPENDS_ON_ORDER, "", "unsafe", "unbatched"),
    "fails_in_company": (FAILS_IN_COMPANY, "", "unsafe", "unbatched"),
    "not_deterministic": (NOT_DETERMINISTIC, "", "not_deterministic", "unbatched"),
    "changes_with_use": (CHANGES_WITH_USE, "", "not_deterministic", "unbatched"),
    "correct_rows": (CORRECT_ROWS, "", "safe", "batched"),
    "no_mask": (NO_MASK, PADDED, "unsafe", "equal_lengths"),
    "padded_mean": (PADDED_MEAN, PADDED, "unsafe", "equal_lengths"),
    "correct_tokens": (CORRECT_TOKENS, PADDED, "safe", "batched"),
}


def put(root: Path, name: str, settings: str = "") -> Path:
    """The version's folder, root/NAME/1. settings: TOML before that of the model."""
    code, toml, _, _ = MODELS[name]
    folder = root / name / "1"
    folder.mkdir(parents=True)
    (folder / "model.py").write_text(code)
    (folder.parent / "model.toml").write_text(settings + toml)
    return folder


def settings_of(folder: Path) -> ModelSettings:
    settings, problems = load_model_settings(folder.parent / "model.toml", {})
    assert settings is not None, problems
    return settings
