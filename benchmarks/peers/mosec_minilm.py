"""MiniLM behind mosec, as one of its users would write it and with what makes it fastest here.

    python mosec_minilm.py --port PORT --model DIR --threads N --rows N

Runs in an environment of its own (peers/mosec.txt). One worker process, which tokenises where it deserialises
and answers in the same shape as headway does. DIR has model.onnx and tokenizer.json.
rows: mosec's max_batch_size; 1 is its best here, larger ones pad to the longest of whoever came first.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnxruntime
from mosec import Server, Worker
from tokenizers import Tokenizer

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
TIMEOUT_MS = 60_000
CAPACITY = 10_000


class MiniLM(Worker):
    def __init__(self) -> None:
        super().__init__()
        directory = Path(os.environ["PEER_MODEL"])
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = int(os.environ["PEER_THREADS"])
        options.inter_op_num_threads = 1
        # as in headway's worker, so that nothing but the server differs
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self.session = onnxruntime.InferenceSession(
            str(directory / "model.onnx"), options, providers=["CPUExecutionProvider"]
        )
        self.tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(256)

    def deserialize(self, data: bytes) -> list[int]:
        ids: list[int] = self.tokenizer.encode(msgspec.json.decode(data)["input"]).ids
        return ids

    def forward(self, data: Any) -> Any:
        """One text where the batch size is 1, else a list of them."""
        return self.batch(data) if self.max_batch_size > 1 else self.batch([data])[0]

    def batch(self, texts: list[list[int]]) -> Any:
        shape = (len(texts), max(len(ids) for ids in texts))
        feeds = {name: np.zeros(shape, np.int64) for name in INPUTS}
        for row, ids in enumerate(texts):
            feeds["input_ids"][row, : len(ids)] = ids
            feeds["attention_mask"][row, : len(ids)] = 1
        return self.session.run(["embedding"], feeds)[0]

    def serialize(self, data: Any) -> bytes:
        item = {"object": "embedding", "index": 0, "embedding": data.tolist()}
        return msgspec.json.encode({"object": "list", "data": [item], "model": "all-MiniLM-L6-v2"})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--rows", type=int, required=True)
    wanted = parser.parse_args()
    os.environ.update(PEER_MODEL=wanted.model, PEER_THREADS=str(wanted.threads))
    # mosec reads the command line itself.
    own = ["--address", "127.0.0.1", "--port", str(wanted.port)]
    sys.argv[1:] = [*own, "--timeout", str(TIMEOUT_MS), "--capacity", str(CAPACITY), "--log-level", "warning"]
    server = Server()
    # No waiting for company: a batch is whoever is there when the worker becomes free.
    server.append_worker(MiniLM, num=1, max_batch_size=wanted.rows, route="/v1/embeddings")
    server.run()


if __name__ == "__main__":
    main()
