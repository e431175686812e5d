"""A Python model that tells what it executed, and pauses where a test says so.

Over a request's parameter `hold` it connects to the test, says so, and goes on when told: no test has to
guess how long something takes.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.e2e.client import Reply, ask, infer_body

WITNESS = '''
import json
import os
import signal
import socket
import threading
import time

import numpy as np

from headway.worker.errors import InputError


def pause(port):
    """Until the test says go on, or has gone itself."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(b"%d\\n" % os.getpid())
        connection.recv(1)


class Model:
    inputs = {"x": ("FP32", [-1, -1])}
    outputs = {"sum": ("FP32", [-1]), "process": ("INT64", [-1])}

    def load(self, context):
        self.options = context.settings.options
        started = os.path.exists(self.options["log"])
        self.tell([])
        if started and "restart" in self.options:
            pause(self.options["restart"])

    def tell(self, batch):
        with open(self.options["log"], "a") as log:
            log.write(json.dumps(batch) + "\\n")

    def execute(self, requests):
        self.tell([float(request["x"][0, 0]) for request in requests])
        for request in requests:
            if "hold" in request.parameters:
                pause(request.parameters["hold"])
        time.sleep(self.options.get("delay_ms", 0) / 1000)
        return self.answers(requests)

    def answers(self, requests):
        return [self.answer(request["x"]) for request in requests]

    def answer(self, x):
        return {"sum": x.sum(axis=1), "process": np.full(len(x), os.getpid())}
'''

FAULTS = """
    def answers(self, requests):
        asked = [float(request["x"][0, 0]) for request in requests]
        if RAISES in asked:
            raise RuntimeError("the model fell over")
        if EXITS in asked:
            os._exit(9)
        if SEGFAULTS in asked:
            os.kill(os.getpid(), signal.SIGSEGV)
        if HANGS in asked:
            threading.Event().wait()
        if NO_MEMORY in asked and len(asked) > 1:
            raise MemoryError("for so many at once")
        return [self.faulty(value, request["x"]) for value, request in zip(asked, requests)]

    def faulty(self, value, x):
        if value == LOSES_A_ROW:
            return {"sum": x.sum(axis=1)[1:], "process": np.zeros(len(x), np.int64)}
        if value == RETURNS_AN_ERROR:
            return ValueError("this one alone")
        if value == REFUSES:
            return InputError("x must be a nicer number")
        return self.answer(x)


RAISES, LOSES_A_ROW, RETURNS_AN_ERROR, REFUSES = -1, -2, -3, -4
EXITS, SEGFAULTS, HANGS, NO_MEMORY = -5, -6, -7, -8
"""
RAISES, LOSES_A_ROW, RETURNS_AN_ERROR, REFUSES = -1, -2, -3, -4
EXITS, SEGFAULTS, HANGS, NO_MEMORY = -5, -6, -7, -8
"""Values of x on which the faulty witness errs."""


class Witness:
    """The model on disk and what it wrote. It takes no cores: while it waits for a test, others run.

    settings: TOML before its tables; options: lines of [options]."""

    def __init__(self, root: Path, name: str = "witness", code: str = WITNESS, settings: str = "", options: str = ""):
        self.name = name
        self._log = root / f"{name}.log"
        folder = root / "models" / name
        (folder / "1").mkdir(parents=True)
        (folder / "1" / "model.py").write_text(code)
        (folder / "model.toml").write_text(
            f'per_row_parameters = ["hold"]\ncores = 0\n{settings}\n[options]\nlog = "{self._log}"\n{options}\n'
        )

    def batches(self) -> list[list[float]]:
        """The first number of each request, batch by batch."""
        return [batch for line in self._log.read_text().splitlines() if (batch := json.loads(line))]

    def executed(self) -> list[float]:
        return [value for batch in self.batches() for value in batch]

    @property
    def path(self) -> str:
        return f"/v2/models/{self.name}/infer"

    def body(self, *row: float, **parameters: Any) -> dict[str, Any]:
        return infer_body([("x", "FP32", [1, len(row)], list(row))], parameters=parameters)

    async def ask(self, address: str, *row: float, **parameters: Any) -> Reply:
        return await ask(address, self.path, self.body(*row, **parameters))


class Pause:
    """One model that waits. worker: the process in which it does."""

    def __init__(self, worker: int, writer: asyncio.StreamWriter) -> None:
        self.worker = worker
        self._writer = writer

    async def end(self) -> None:
        self._writer.write(b".")
        await self.close()

    async def close(self) -> None:
        self._writer.close()


class Pauses:
    """port: where models that are to pause connect."""

    def __init__(self) -> None:
        self.port = 0
        self._begun: asyncio.Queue[Pause] = asyncio.Queue()
        self._all: list[Pause] = []

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pause = Pause(int(await reader.readline()), writer)
        self._all.append(pause)
        self._begun.put_nowait(pause)

    async def begun(self) -> Pause:
        """The next model that has begun to wait."""
        return await self._begun.get()

    async def close(self) -> None:
        for pause in self._all:
            await pause.close()


@asynccontextmanager
async def pauses(port: int = 0) -> AsyncIterator[Pauses]:
    """Whoever still waits at the end goes on."""
    found = Pauses()
    server = await asyncio.start_server(found.connected, "127.0.0.1", port)
    found.port = server.sockets[0].getsockname()[1]
    try:
        yield found
    finally:
        server.close()
        await found.close()
