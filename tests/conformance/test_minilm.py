"""The exported default model against transformers, by another way than the export's own comparison."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from tokenizers import Tokenizer

from headway.registry.minilm import find_source, prepare

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).parents[2] / ".headway" / "models"
TEXTS = ["Two trains meet.", "x", "The interval between two vehicles on a line is called headway. " * 12, "été 42"]


def reference(texts: list[str]) -> np.ndarray:
    """By the library's own tokenizer and model, each text alone, pooled with numpy in double precision."""
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")
    import torch
    from transformers import AutoModel, AutoTokenizer

    source = str(find_source())
    tokenizer = AutoTokenizer.from_pretrained(source, local_files_only=True)
    model = AutoModel.from_pretrained(source, local_files_only=True).eval()
    vectors = []
    for text in texts:
        with torch.no_grad():
            states = model(**tokenizer(text, return_tensors="pt", truncation=True, max_length=256)).last_hidden_state
        mean = states[0].double().numpy().mean(axis=0)
        vectors.append(mean / np.linalg.norm(mean))
    return np.array(vectors)


def test_padded_together_or_alone_every_text_has_the_vector_that_transformers_gives_it() -> None:
    version = prepare(REPOSITORY) / "1"
    session = onnxruntime.InferenceSession(str(version / "model.onnx"), providers=["CPUExecutionProvider"])
    tokenizer = Tokenizer.from_file(str(version / "tokenizer.json"))
    expected = reference(TEXTS)

    def embed(texts: list[str]) -> np.ndarray:
        encoded = tokenizer.encode_batch(texts)
        fed = {
            "input_ids": np.array([text.ids for text in encoded]),
            "attention_mask": np.array([text.attention_mask for text in encoded]),
            "token_type_ids": np.array([text.type_ids for text in encoded]),
        }
        return np.asarray(session.run(["embedding"], fed)[0])

    for text, vector in zip(TEXTS, expected, strict=True):
        np.testing.assert_allclose(embed([text])[0], vector, atol=1e-5)
    tokenizer.enable_padding()
    np.testing.assert_allclose(embed(TEXTS), expected, atol=1e-5)
