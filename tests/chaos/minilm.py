"""The default model under chaos: what it answers alone, before anything goes wrong, is what is right afterwards."""

from __future__ import annotations

from pathlib import Path
from random import Random

from tests.chaos.models import INSTANCES, Ask, Outputs

ROOT = Path(__file__).parents[2]
NAME = "all-MiniLM-L6-v2"
FOLDER = ROOT / ".headway" / "models" / NAME
SETTINGS = f"""\
[models."{NAME}"]
instances = {INSTANCES}
threads = 1
hang_s = 2
batch_safety = "off"
[models."{NAME}".warm_up]
rows = [1, 2]
lengths = [8, 64]
"""
TEXTS = 24
LONGEST = 48
VOCABULARY = (1000, 30_000)
TOLERANCE = 1e-4
"""Of the numbers of a vector of length 1: what company and padding change in float32, and no other text's vector."""


class Encoder:
    """Texts, as the tokens that they would be, and their vectors once they are known."""

    def __init__(self, rng: Random) -> None:
        lengths = [rng.randint(4, LONGEST) for _ in range(TEXTS)]
        self.texts = [[rng.randrange(*VOCABULARY) for _ in range(length)] for length in lengths]
        self.vectors: list[list[float]] = []

    def ask(self, rng: Random) -> Ask:
        return self.about(rng.randrange(TEXTS))

    def about(self, number: int) -> Ask:
        text = self.texts[number]
        shape = [1, len(text)]
        columns = {"input_ids": text, "attention_mask": [1] * len(text), "token_type_ids": [0] * len(text)}
        inputs = [(name, "INT64", shape, values) for name, values in columns.items()]
        return Ask("minilm", NAME, inputs, lambda outputs: self._judge(number, outputs))

    def _judge(self, number: int, outputs: Outputs) -> str:
        """Without a reference yet it becomes the reference."""
        vector = outputs["embedding"]
        if number == len(self.vectors):
            self.vectors.append(vector)
        expected = self.vectors[number]
        off = max(abs(a - b) for a, b in zip(vector, expected, strict=True))
        return "" if off <= TOLERANCE else f"text {number}: off by {off:.2g} from what it is alone"


def is_there() -> bool:
    return (FOLDER / "1" / "model.onnx").is_file()


def put(root: Path) -> None:
    (root / "models").mkdir(exist_ok=True)
    (root / "models" / NAME).symlink_to(FOLDER)
