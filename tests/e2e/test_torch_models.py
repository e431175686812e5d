"""PyTorch models behind a real server: a Hugging Face folder as it lies on disk, and an exported program."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tests import torch_models  # noqa: E402
from tests.e2e.client import ask, in_a_loop, infer_body  # noqa: E402
from tests.e2e.server import put, running  # noqa: E402

pytestmark = pytest.mark.e2e

TEXTS = ["w5 w6 w7", "w9", " ".join(f"w{number}" for number in range(2, 40)), "w5 w6 w7"]


@in_a_loop
async def test_a_hugging_face_folder_answers_embeddings_without_a_setting(tmp_path: Path) -> None:
    folder = torch_models.encoder(tmp_path / "models" / "encoder" / "1")
    torch_models.exported_affine(tmp_path / "models" / "affine" / "1")
    with running(tmp_path) as server:
        reply = await ask(server.address, "/v1/embeddings", {"model": "encoder", "input": TEXTS})
        assert reply.status == 200, reply
        vectors = np.array([entry["embedding"] for entry in reply.json["data"]])
        np.testing.assert_allclose(vectors, reference(folder, TEXTS), atol=1e-5)
        assert reply.json["usage"]["prompt_tokens"] == 3 + 1 + 38 + 3
        ids = infer_body([("input_ids", "INT64", [1, 2], [3, 4])])
        outputs = (await ask(server.address, "/v2/models/encoder/infer", ids)).outputs
        assert len(outputs["embedding"]) == torch_models.WIDTH
        beyond = infer_body([("input_ids", "INT64", [1, 2], [3, 50])])
        refused = await ask(server.address, "/v2/models/encoder/infer", beyond)
        assert (refused.status, "49" in refused.json["error"], "50" in refused.json["error"]) == (400, True, True)
        long = await ask(server.address, "/v1/embeddings", {"model": "encoder", "input": "w2 " * 41})
        assert (long.status, "41 tokens, this model takes 40" in long.json["error"]["message"]) == (400, True)
        doubled = await ask(
            server.address, "/v2/models/affine/infer", infer_body([("x", "FP32", [1, 4], [1, 2, 3, 4])])
        )
        assert doubled.outputs["y"] == [3, 5, 7, 9]


@in_a_loop
async def test_a_folder_that_cannot_be_loaded_fails_alone_with_the_reason(tmp_path: Path) -> None:
    torch_models.exported_affine(tmp_path / "models" / "affine" / "1")
    folder = torch_models.encoder(tmp_path / "models" / "broken" / "1")
    (folder / "model.safetensors").write_bytes(b"no weights")
    put(tmp_path, "headway.toml", "[workers]\nmax_failures = 1\n")
    with running(tmp_path) as server:
        reply = await ask(server.address, "/v1/embeddings", {"model": "broken", "input": "w2"})
        assert reply.status == 503 and "transformers cannot load this folder" in reply.json["error"]["message"]
        good = await ask(server.address, "/v2/models/affine/infer", infer_body([("x", "FP32", [1, 4], [0, 0, 0, 0])]))
        assert good.outputs["y"] == [1, 1, 1, 1]


def reference(folder: Path, texts: list[str]) -> np.ndarray:
    from transformers import AutoModel

    module = AutoModel.from_pretrained(str(folder), local_files_only=True).eval()
    vectors = []
    for text in texts:
        ids = torch.tensor([[int(word[1:]) for word in text.split()]])
        with torch.no_grad():
            mean = module(ids).last_hidden_state[0].mean(0).numpy()
        vectors.append(mean / np.linalg.norm(mean))
    return np.array(vectors)
