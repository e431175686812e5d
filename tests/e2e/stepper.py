"""A streaming Python model that tells each of its steps, and pauses before one where a test says so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.e2e.client import send

STEPPER = """
import json
import os
import socket


class Model:
    active = 0

    def load(self, context):
        self.log = context.settings.options["log"]

    def tell(self, *what):
        with open(self.log, "a") as log:
            log.write(json.dumps(what) + "\\n")

    def stream(self, request):
        name = request["name"]
        self.active += 1
        self.tell("begins", name, self.active)
        try:
            for step in range(request["steps"]):
                self.tell("step", name, step)
                if step == request.get("hold_at"):
                    with socket.create_connection(("127.0.0.1", request["hold"])) as connection:
                        connection.sendall(b"%d\\n" % os.getpid())
                        connection.recv(1)
                yield {"name": name, "step": step}
        finally:
            self.active -= 1
            self.tell("ends", name, self.active)
"""


class Stepper:
    """The streaming model on disk, and what it wrote."""

    def __init__(self, root: Path, name: str, capacity: int) -> None:
        self.name = name
        self._log = root / f"{name}.log"
        self._log.touch()
        (root / "models" / name / "1").mkdir(parents=True)
        (root / "models" / name / "1" / "model.py").write_text(STEPPER)
        (root / "models" / name / "model.toml").write_text(
            f'max_sequences = {capacity}\n[options]\nlog = "{self._log}"\n'
        )

    def told(self, what: str) -> list[list[Any]]:
        lines = [json.loads(line) for line in self._log.read_text().splitlines()]
        return [rest for kind, *rest in lines if kind == what]

    def order(self) -> list[tuple[str, str]]:
        lines = [json.loads(line) for line in self._log.read_text().splitlines()]
        return [(kind, name) for kind, name, _ in lines if kind != "step"]

    async def events(self, address: str, name: str, steps: int, **more: Any) -> list[Any]:
        body = {"name": name, "steps": steps, **more}
        exchange = await send(address, f"/v2/models/{self.name}/generate_stream", body)
        await exchange.head()
        assert exchange.status == 200
        return [event async for event in exchange.events()]
