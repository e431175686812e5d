"""A 16 x 16 matrix product behind mosec, with what makes it fastest here.

    python mosec_matmul.py --port PORT --rows N

Runs in an environment of its own (peers/mosec.txt). One worker process; bodies and answers are those of
headway's /v2/models/matmul/infer. rows: mosec's max_batch_size.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import msgspec
import numpy as np
from mosec import Server, Worker

WIDTH = 16
TIMEOUT_MS = 60_000
CAPACITY = 10_000


class Input(msgspec.Struct):
    data: list[float]


class Body(msgspec.Struct):
    inputs: list[Input]


class MatMul(Worker):
    def __init__(self) -> None:
        super().__init__()
        self.weights = np.eye(WIDTH, dtype=np.float32)
        self.decoder = msgspec.json.Decoder(Body)
        self.encoder = msgspec.json.Encoder()

    def deserialize(self, data: bytes) -> Any:
        return np.array(self.decoder.decode(data).inputs[0].data, np.float32)

    def forward(self, data: Any) -> Any:
        """One row where the batch size is 1, else a list of them."""
        if self.max_batch_size > 1:
            return list(np.stack(data) @ self.weights)
        return data @ self.weights

    def serialize(self, data: Any) -> bytes:
        output = {"name": "y", "datatype": "FP32", "shape": [1, WIDTH], "data": data.tolist()}
        return self.encoder.encode({"model_name": "matmul", "model_version": "1", "outputs": [output]})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--rows", type=int, required=True)
    wanted = parser.parse_args()
    # mosec reads the command line itself.
    own = ["--address", "127.0.0.1", "--port", str(wanted.port)]
    sys.argv[1:] = [*own, "--timeout", str(TIMEOUT_MS), "--capacity", str(CAPACITY), "--log-level", "warning"]
    server = Server()
    server.append_worker(MatMul, num=1, max_batch_size=wanted.rows, route="/v2/models/matmul/infer")
    server.run()


if __name__ == "__main__":
    main()
